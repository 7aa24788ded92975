"""Policy update: policy, reference, turns, credits -> policy folder, updates table."""

from turncredit.workflow import job

if __name__ == "__main__":
    job.run("update", globals().get("snakemake"))
