"""Values: credit model, turns, hiddens -> values table."""

from turncredit.workflow import job


def main(job: job.Job) -> dict[str, float]:
    """Hand the job's files to the library."""
    from turncredit.credit_models.train import values

    return values(
        experiment=job.experiment,
        method=job.wildcards["method"],
        seed=int(job.wildcards["seed"]),
        round=int(job.wildcards["round"]),
        model=job.input["model"],
        turns=job.input["turns"],
        hiddens=job.input["hiddens"],
        out=job.output["values"],
    )


if __name__ == "__main__":
    job.run(main, globals().get("snakemake"))
