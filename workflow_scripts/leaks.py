"""Leaks: turns, credit models and what they read, branches -> leaks table."""

from turncredit.workflow import job


def main(job: job.Job) -> dict[str, float]:
    """Hand the job's files to the library."""
    from turncredit.analysis.leak_tests import leaks

    learned, labels = job.params["learned"], job.params["labels"]
    return leaks(
        experiment=job.experiment,
        seed=int(job.wildcards["seed"]),
        round=int(job.wildcards["round"]),
        turns=job.input["turns"],
        models=dict(zip(learned, job.input["models"], strict=True)),
        hiddens=dict(zip(learned, job.input["hiddens"], strict=True)),
        side={name: {"labels": labels[name]} for name in learned if labels[name]},
        branches=job.input["branches"],
        out=job.output["leaks"],
    )


if __name__ == "__main__":
    job.run(main, globals().get("snakemake"))
