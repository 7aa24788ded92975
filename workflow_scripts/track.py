"""MLflow: copy what the stages measured."""

from turncredit.workflow import job


def main(job: job.Job) -> dict[str, float]:
    """Hand the job's files to the library."""
    from turncredit.results.tracking import track

    return track(experiment=job.experiment, results=job.params["results"])


if __name__ == "__main__":
    job.run(main, globals().get("snakemake"))
