"""Continuations: policy, tasks, turns -> continuations table."""

from turncredit.workflow import job

if __name__ == "__main__":
    job.run("continuations", globals().get("snakemake"))
