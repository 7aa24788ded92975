"""Evaluation: policy, tasks -> evals table."""

from turncredit.workflow import job

if __name__ == "__main__":
    job.run("eval", globals().get("snakemake"))
