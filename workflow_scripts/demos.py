"""Demonstrations: tasks -> demos table."""

from turncredit.pipeline import job_script

if __name__ == "__main__":
    job_script.run("demos", globals().get("snakemake"))
