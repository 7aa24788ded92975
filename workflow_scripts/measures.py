"""Measures: turns, games -> measures table."""

from turncredit.workflow import job

if __name__ == "__main__":
    job.run("measures", globals().get("snakemake"))
