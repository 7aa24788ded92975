"""Credit: turns, side tables -> credits table."""

from turncredit.workflow import job


def main(job: job.Job) -> dict[str, float]:
    """Hand the job's files to the library."""
    from turncredit.stages.credit import credit

    side = {name: path for name, path in job.input.items() if name not in {"turns", "method"}}
    return credit(
        experiment=job.experiment,
        method=job.wildcards["method"],
        seed=int(job.wildcards["seed"]),
        round=int(job.wildcards["round"]),
        turns=job.input["turns"],
        side=side,
        out=job.output["credits"],
    )


if __name__ == "__main__":
    job.run(main, globals().get("snakemake"))
