"""Ground truth by branching: policy, tasks, turns -> branches table."""

from turncredit.workflow import job

if __name__ == "__main__":
    job.run("branch", globals().get("snakemake"))
