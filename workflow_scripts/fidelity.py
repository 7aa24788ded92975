"""Fidelity: turns, branches, credits, labels -> fidelity table and the same as JSON."""

from turncredit.pipeline import job_script

if __name__ == "__main__":
    job_script.run("fidelity", globals().get("snakemake"))
