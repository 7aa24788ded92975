"""What the script of every rule calls: one stage, or the loop of a job of several rounds."""

from __future__ import annotations

from typing import Any

from turncredit.config import stages
from turncredit.config.experiment import ROUNDS
from turncredit.pipeline import job_script, retries

stages.stages()  # loaded here, so that jobs that are forked from a process with this module need not


def main(snakemake: Any = None) -> None:
    """Run the job that Snakemake, or the `.job.json` named on the command line, describes."""
    if snakemake is None:
        job_script.run_described()
    elif snakemake.rule == ROUNDS:
        from turncredit.pipeline import rounds

        rounds.run(snakemake)
    else:
        job_script.run(retries.stage_of(snakemake.rule), snakemake)
