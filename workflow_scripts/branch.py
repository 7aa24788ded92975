"""Ground truth by branching: policy, tasks, turns -> branches table."""

from turncredit.workflow import job


def main(job: job.Job) -> dict[str, float]:
    """Hand the job's files to the library."""
    from turncredit.truth.branch import branch

    return branch(
        experiment=job.experiment,
        seed=int(job.wildcards["seed"]),
        round=int(job.wildcards["round"]),
        policy=job.input["policy"],
        tasks=job.input["tasks"],
        turns=job.input["turns"],
        out=job.output["branches"],
    )


if __name__ == "__main__":
    job.run(main, globals().get("snakemake"))
