"""Hidden states: policy, turns -> hiddens table."""

from turncredit.workflow import job


def main(job: job.Job) -> dict[str, float]:
    """Hand the job's files to the library."""
    from turncredit.credit_models.hiddens import hiddens

    return hiddens(
        experiment=job.experiment,
        policy=job.input["policy"],
        turns=job.input["turns"],
        out=job.output["hiddens"],
        read=job.params["read"],
        point=job.wildcards["point"].removeprefix("_") or "observation",
    )


if __name__ == "__main__":
    job.run(main, globals().get("snakemake"))
