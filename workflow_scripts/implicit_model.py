"""Implicit reward model: turns, the model before -> model folder."""

from turncredit.workflow import job

if __name__ == "__main__":
    job.run("implicit_model", globals().get("snakemake"))
