"""Games of one split: configuration -> tasks table."""

from turncredit import stage


def main(job: stage.Job) -> dict[str, float]:
    """Hand the job's files to the library."""
    from turncredit.learn.tasks import make_tasks

    return make_tasks(experiment=job.experiment, split=job.wildcards["split"], out=job.output["tasks"])


if __name__ == "__main__":
    stage.run(main, globals().get("snakemake"))
