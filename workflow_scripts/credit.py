"""Credit: turns, side tables -> credits table."""

from turncredit.workflow import job

if __name__ == "__main__":
    job.run("credit", globals().get("snakemake"))
