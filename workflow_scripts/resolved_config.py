"""Write the resolved configuration: every key, also those that nobody set."""

import json
import os
from pathlib import Path

from turncredit.workflow import job


def main(job: job.Job) -> dict[str, float]:
    """Hand the job's files to the library."""
    out = Path(job.output["config"])
    part = out.with_name(f".{out.name}.part")
    part.write_text(json.dumps(job.experiment.model_dump(mode="json"), indent=2) + "\n")
    os.replace(part, out)
    return {}


if __name__ == "__main__":
    job.run(main, globals().get("snakemake"))
