"""Rollouts: policy, tasks -> turns table."""

from turncredit.pipeline import job_script

if __name__ == "__main__":
    job_script.run("rollout", globals().get("snakemake"))
