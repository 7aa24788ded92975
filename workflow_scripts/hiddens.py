"""Hidden states: policy, turns -> hiddens table."""

from turncredit.pipeline import job_script

if __name__ == "__main__":
    job_script.run("hiddens", globals().get("snakemake"))
