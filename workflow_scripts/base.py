"""Tokenizer and untrained policy: demos -> model folder."""

from turncredit.pipeline import job_script

if __name__ == "__main__":
    job_script.run("base", globals().get("snakemake"))
