"""Games of one split: configuration -> tasks table."""

from turncredit.workflow import job

if __name__ == "__main__":
    job.run("tasks", globals().get("snakemake"))
