"""Rollouts: policy, tasks -> turns table."""

from turncredit.workflow import job

if __name__ == "__main__":
    job.run("rollout", globals().get("snakemake"))
