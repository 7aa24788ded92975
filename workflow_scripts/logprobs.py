"""Second pass: policy, turns -> logprobs table."""

from turncredit.pipeline import job_script

if __name__ == "__main__":
    job_script.run("logprobs", globals().get("snakemake"))
