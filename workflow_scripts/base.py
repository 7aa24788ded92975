"""Tokenizer and untrained policy: demos -> model folder."""

from turncredit.workflow import job


def main(job: job.Job) -> dict[str, float]:
    """Hand the job's files to the library."""
    from turncredit.policy.base import make_base

    return make_base(experiment=job.experiment, demos=job.input["demos"], out=job.output["model"])


if __name__ == "__main__":
    job.run(main, globals().get("snakemake"))
