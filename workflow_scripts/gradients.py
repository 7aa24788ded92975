"""Gradients: policy, turns, credits -> gradients table."""

from turncredit.pipeline import job_script

if __name__ == "__main__":
    job_script.run("gradients", globals().get("snakemake"))
