"""Demonstrations: tasks -> demos table."""

from turncredit import stage


def main(job: stage.Job) -> dict[str, float]:
    """Hand the job's files to the library."""
    from turncredit.learn.demos import make_demos

    return make_demos(
        experiment=job.experiment, tasks=job.input["tasks"], out=job.output["demos"], processes=job.threads
    )


if __name__ == "__main__":
    stage.run(main, globals().get("snakemake"))
