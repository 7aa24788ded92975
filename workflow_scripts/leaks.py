"""Leaks: turns, credit models and what they read, branches -> leaks table."""

from turncredit.workflow import job

if __name__ == "__main__":
    job.run("leaks", globals().get("snakemake"))
