"""Invariants: every artifact of a run's rounds -> invariants table."""

from turncredit.pipeline import job_script

if __name__ == "__main__":
    job_script.run("invariants", globals().get("snakemake"))
