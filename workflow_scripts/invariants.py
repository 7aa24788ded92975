"""Invariants: every artifact of a run's rounds -> invariants table."""

from turncredit.workflow import job

if __name__ == "__main__":
    job.run("invariants", globals().get("snakemake"))
