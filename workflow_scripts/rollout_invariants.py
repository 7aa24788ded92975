"""Invariants: every artifact that an audit made of some turns -> invariants table."""

from turncredit.pipeline import job_script

if __name__ == "__main__":
    job_script.run("rollout_invariants", globals().get("snakemake"))
