"""Learned credit model: turns, hiddens, (credits,) the model before -> model folder."""

from turncredit.workflow import job


def main(job: job.Job) -> dict[str, float]:
    """Hand the job's files to the library."""
    from turncredit.credit_models.train import credit_model

    return credit_model(
        experiment=job.experiment,
        method=job.wildcards["method"],
        seed=int(job.wildcards["seed"]),
        round=int(job.wildcards["round"]),
        turns=job.input["turns"],
        hiddens=job.input["hiddens"],
        credits=job.input["credits"],
        previous=job.input["previous"] or None,
        out=job.output["model"],
    )


if __name__ == "__main__":
    job.run(main, globals().get("snakemake"))
