"""Gradients: policy, turns, credits -> gradients table."""

from turncredit.workflow import job

if __name__ == "__main__":
    job.run("gradients", globals().get("snakemake"))
