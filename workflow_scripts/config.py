"""The resolved configuration: every key, also those that nobody set."""

from turncredit.pipeline import job_script

if __name__ == "__main__":
    job_script.run("config", globals().get("snakemake"))
