"""MLflow: copy what the stages measured."""

from turncredit import stage


def main(job: stage.Job) -> dict[str, float]:
    """Hand the job's files to the library."""
    from turncredit.tracking import track

    return track(experiment=job.experiment, results=job.params["results"])


if __name__ == "__main__":
    stage.run(main, globals().get("snakemake"))
