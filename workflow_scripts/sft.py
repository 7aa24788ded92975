"""Supervised warm start: base, demos -> policy folder, log table."""

from turncredit.workflow import job

if __name__ == "__main__":
    job.run("sft", globals().get("snakemake"))
