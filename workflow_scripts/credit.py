"""Credit: turns, side tables -> credits table."""

from turncredit.pipeline import job_script

if __name__ == "__main__":
    job_script.run("credit", globals().get("snakemake"))
