"""Labels: turns -> labels table, by the experiment's judge."""

from turncredit.workflow import job


def main(job: job.Job) -> dict[str, float]:
    """Hand the job's files to the library."""
    from turncredit.stages.label import label

    return label(
        experiment=job.experiment,
        ask=job.wildcards["ask"],
        turns=job.input["turns"],
        cache=job.params["cache"],
        out=job.output["labels"],
    )


if __name__ == "__main__":
    job.run(main, globals().get("snakemake"))
