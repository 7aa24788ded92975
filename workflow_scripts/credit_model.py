"""Learned credit model: turns, hiddens, (credits,) the model before -> model folder."""

from turncredit.pipeline import job_script

if __name__ == "__main__":
    job_script.run("credit_model", globals().get("snakemake"))
