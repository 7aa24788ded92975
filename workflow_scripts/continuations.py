"""Continuations: policy, tasks, turns -> continuations table."""

from turncredit.pipeline import job_script

if __name__ == "__main__":
    job_script.run("continuations", globals().get("snakemake"))
