"""Forks: policy, tasks, turns -> forks table."""

from turncredit.workflow import job

if __name__ == "__main__":
    job.run("forks", globals().get("snakemake"))
