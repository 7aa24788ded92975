"""Report: everything in the experiment's folder -> page, summary table."""

from turncredit.workflow import job


def main(job: job.Job) -> dict[str, float]:
    """Hand the job's files to the library."""
    from pathlib import Path

    from turncredit.report.report import report

    return report(experiment=job.experiment, results=job.params["results"], out=str(Path(job.output["page"]).parent))


if __name__ == "__main__":
    job.run(main, globals().get("snakemake"))
