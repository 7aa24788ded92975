"""Learned credit model: turns, hiddens, (credits,) the model before -> model folder."""

from turncredit.workflow import job

if __name__ == "__main__":
    job.run("credit_model", globals().get("snakemake"))
