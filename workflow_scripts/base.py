"""Tokenizer and untrained policy: demos -> model folder."""

from turncredit.workflow import job

if __name__ == "__main__":
    job.run("base", globals().get("snakemake"))
