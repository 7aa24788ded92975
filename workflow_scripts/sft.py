"""Supervised warm start: base, demos -> policy folder, log table."""

from turncredit import stage


def main(job: stage.Job) -> dict[str, float]:
    """Hand the job's files to the library."""
    from turncredit.learn.sft import sft

    return sft(
        experiment=job.experiment,
        base=job.input["base"],
        demos=job.input["demos"],
        out=job.output["policy"],
        log=job.output["log"],
        processes=job.threads,
    )


if __name__ == "__main__":
    stage.run(main, globals().get("snakemake"))
