"""Measures: turns, games -> measures table."""

from turncredit.pipeline import job_script

if __name__ == "__main__":
    job_script.run("measures", globals().get("snakemake"))
