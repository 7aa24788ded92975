"""Evaluation: policy, tasks -> evals table. Without a method among the wildcards it is the SFT policy's."""

from turncredit.workflow import job


def main(job: job.Job) -> dict[str, float]:
    """Hand the job's files to the library."""
    from turncredit.rollouts.evaluate import evaluate

    return evaluate(
        experiment=job.experiment,
        method=job.wildcards.get("method", "sft"),
        seed=int(job.wildcards.get("seed", 0)),
        round=int(job.wildcards["round"]),
        policy=job.input["policy"],
        tasks=job.input["tasks"],
        out=job.output["evals"],
    )


if __name__ == "__main__":
    job.run(main, globals().get("snakemake"))
