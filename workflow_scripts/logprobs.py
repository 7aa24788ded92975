"""Second pass: policy, turns -> logprobs table."""

from turncredit.workflow import job

if __name__ == "__main__":
    job.run("logprobs", globals().get("snakemake"))
