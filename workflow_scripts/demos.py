"""Demonstrations: tasks -> demos table."""

from turncredit.workflow import job

if __name__ == "__main__":
    job.run("demos", globals().get("snakemake"))
