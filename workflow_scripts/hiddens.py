"""Hidden states: policy, turns -> hiddens table."""

from turncredit.workflow import job

if __name__ == "__main__":
    job.run("hiddens", globals().get("snakemake"))
