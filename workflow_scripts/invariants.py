"""Invariants: every artifact of a run's rounds, or of an audited round -> invariants table."""

from turncredit.workflow import job


def main(job: job.Job) -> dict[str, float]:
    """Hand the job's files to the library."""
    from turncredit.analysis.invariants import RoundFiles
    from turncredit.analysis.logprobs import invariants

    return invariants(
        experiment=job.experiment,
        rounds=[RoundFiles.model_validate(files) for files in job.params["rounds"]],
        out=job.output["invariants"],
    )


if __name__ == "__main__":
    job.run(main, globals().get("snakemake"))
