"""Supervised warm start: base, demos -> policy folder, log table."""

from turncredit.workflow import job


def main(job: job.Job) -> dict[str, float]:
    """Hand the job's files to the library."""
    from turncredit.training.sft import sft

    return sft(
        experiment=job.experiment,
        base=job.input["base"],
        demos=job.input["demos"],
        out=job.output["policy"],
        log=job.output["log"],
        processes=job.threads,
    )


if __name__ == "__main__":
    job.run(main, globals().get("snakemake"))
