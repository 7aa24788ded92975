"""Demonstrations: tasks -> demos table."""

from turncredit.workflow import job


def main(job: job.Job) -> dict[str, float]:
    """Hand the job's files to the library."""
    from turncredit.rollouts.demos import make_demos

    return make_demos(
        experiment=job.experiment, tasks=job.input["tasks"], out=job.output["demos"], processes=job.threads
    )


if __name__ == "__main__":
    job.run(main, globals().get("snakemake"))
