"""Policy update: policy, reference, turns, credits -> policy folder, updates table."""

from turncredit.pipeline import job_script

if __name__ == "__main__":
    job_script.run("update", globals().get("snakemake"))
