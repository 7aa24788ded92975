"""MLflow: copy what the stages measured."""

from turncredit.pipeline import job_script

if __name__ == "__main__":
    job_script.run("track", globals().get("snakemake"))
