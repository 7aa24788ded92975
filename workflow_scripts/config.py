"""The resolved configuration: every key, also those that nobody set."""

from turncredit.workflow import job

if __name__ == "__main__":
    job.run("config", globals().get("snakemake"))
