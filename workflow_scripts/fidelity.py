"""Fidelity: turns, branches, credits, labels -> fidelity table and the same as JSON."""

from turncredit.workflow import job


def main(job: job.Job) -> dict[str, float]:
    """Hand the job's files to the library."""
    from turncredit.cli.fidelity import fidelity_stage

    return fidelity_stage(
        seed=int(job.wildcards["seed"]),
        round=int(job.wildcards["round"]),
        turns=job.input["turns"],
        credits=job.input["credits"],
        branches=job.input["branches"],
        labels=next(iter(job.input["labels"]), None),
        out=job.output["fidelity"],
        json=job.output["json"],
    )


if __name__ == "__main__":
    job.run(main, globals().get("snakemake"))
