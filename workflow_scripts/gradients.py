"""Gradients: policy, turns, credits -> gradients table."""

from turncredit.workflow import job


def main(job: job.Job) -> dict[str, float]:
    """Hand the job's files to the library."""
    from turncredit.analysis.gradients import gradients

    return gradients(
        experiment=job.experiment,
        seed=int(job.wildcards["seed"]),
        round=int(job.wildcards["round"]),
        policy=job.input["policy"],
        turns=job.input["turns"],
        credits=dict(zip(job.params["methods"], job.input["credits"], strict=True)),
        out=job.output["gradients"],
    )


if __name__ == "__main__":
    job.run(main, globals().get("snakemake"))
