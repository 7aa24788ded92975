"""MLflow: copy what the stages measured."""

from turncredit.workflow import job

if __name__ == "__main__":
    job.run("track", globals().get("snakemake"))
