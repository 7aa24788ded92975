"""Policy update: policy, reference, turns, credits -> policy folder, updates table."""

from turncredit.workflow import job


def main(job: job.Job) -> dict[str, float]:
    """Hand the job's files to the library."""
    from turncredit.training.update import update

    return update(
        experiment=job.experiment,
        method=job.wildcards["method"],
        seed=int(job.wildcards["seed"]),
        round=int(job.wildcards["round"]),
        policy=job.input["policy"],
        reference=job.input["reference"],
        turns=job.input["turns"],
        credits=job.input["credits"],
        out=job.output["policy"],
        updates=job.output["updates"],
        processes=job.threads,
    )


if __name__ == "__main__":
    job.run(main, globals().get("snakemake"))
