"""Forks: policy, tasks, turns -> forks table."""

from turncredit.pipeline import job_script

if __name__ == "__main__":
    job_script.run("forks", globals().get("snakemake"))
