"""Supervised warm start: base, demos -> policy folder, log table."""

from turncredit.pipeline import job_script

if __name__ == "__main__":
    job_script.run("sft", globals().get("snakemake"))
