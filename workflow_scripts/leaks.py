"""Leaks: turns, credit models and what they read, branches -> leaks table."""

from turncredit.pipeline import job_script

if __name__ == "__main__":
    job_script.run("leaks", globals().get("snakemake"))
