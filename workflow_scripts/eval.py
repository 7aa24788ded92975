"""Evaluation: policy, tasks -> evals table."""

from turncredit.pipeline import job_script

if __name__ == "__main__":
    job_script.run("eval", globals().get("snakemake"))
