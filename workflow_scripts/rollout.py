"""Rollouts: policy, tasks -> turns table. Without a method among the wildcards they are the SFT policy's."""

from turncredit.config import from_mapping, merge
from turncredit.workflow import job


def main(job: job.Job) -> dict[str, float]:
    """Hand the job's files to the library."""
    from turncredit.rollouts.rollout import rollout

    shared = "method" not in job.wildcards
    return rollout(
        experiment=from_mapping(merge(job.config, {"rollout": job.params["rollout"]})) if shared else job.experiment,
        method="sft" if shared else job.wildcards["method"],
        seed=int(job.wildcards["seed"]),
        round=1 if shared else int(job.wildcards["round"]),
        policy=job.input["policy"],
        tasks=job.input["tasks"],
        out=job.output["turns"],
    )


if __name__ == "__main__":
    job.run(main, globals().get("snakemake"))
