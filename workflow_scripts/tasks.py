"""Games of one split: configuration -> tasks table."""

from turncredit.workflow import job


def main(job: job.Job) -> dict[str, float]:
    """Hand the job's files to the library."""
    from turncredit.rollouts.tasks import make_tasks

    return make_tasks(experiment=job.experiment, split=job.wildcards["split"], out=job.output["tasks"])


if __name__ == "__main__":
    job.run(main, globals().get("snakemake"))
