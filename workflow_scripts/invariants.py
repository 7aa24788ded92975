"""Invariants: every artifact of a run's rounds, or of an audited round -> invariants table."""

from turncredit import stage


def main(job: stage.Job) -> dict[str, float]:
    """Hand the job's files to the library."""
    from turncredit.audit.invariants import RoundFiles
    from turncredit.learn.invariants import invariants

    return invariants(
        experiment=job.experiment,
        rounds=[RoundFiles.model_validate(files) for files in job.params["rounds"]],
        out=job.output["invariants"],
    )


if __name__ == "__main__":
    stage.run(main, globals().get("snakemake"))
