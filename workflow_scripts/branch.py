"""Ground truth by branching: policy, tasks, turns -> branches table."""

from turncredit.pipeline import job_script

if __name__ == "__main__":
    job_script.run("branch", globals().get("snakemake"))
