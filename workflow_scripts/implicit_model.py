"""Implicit reward model: turns, the model before -> model folder."""

from turncredit.pipeline import job_script

if __name__ == "__main__":
    job_script.run("implicit_model", globals().get("snakemake"))
