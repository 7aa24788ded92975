"""Invariants: every artifact that an audit made of some turns -> invariants table."""

from turncredit.workflow import job

if __name__ == "__main__":
    job.run("rollout_invariants", globals().get("snakemake"))
