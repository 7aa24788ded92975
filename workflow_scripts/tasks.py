"""Games of one split: configuration -> tasks table."""

from turncredit.pipeline import job_script

if __name__ == "__main__":
    job_script.run("tasks", globals().get("snakemake"))
