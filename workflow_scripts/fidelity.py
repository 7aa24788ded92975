"""Fidelity: turns, branches, credits, labels -> fidelity table and the same as JSON."""

from turncredit.workflow import job

if __name__ == "__main__":
    job.run("fidelity", globals().get("snakemake"))
