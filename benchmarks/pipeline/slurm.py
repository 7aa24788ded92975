"""What a Slurm job takes besides its stage, by part: the tiny experiment through a Slurm on this machine.

python -m benchmarks.pipeline.slurm [--jobs 2] [--granularity run]        needs root and Debian's slurm-wlm

Prints a Markdown table of means over all jobs of a run in which every stage is a job. Slurm and Snakemake tell whole
seconds, so the parts of one job are uncertain by a second each, and their means by a tenth of that.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from tests import tiny
from tests.slurm.cluster import Cluster, cluster, missing
from turncredit.pipeline import init_folder, launch

#: Consecutive parts of a job's time, by the moment at which each ends.
PARTS = {
    "started": "waits for Slurm",
    "planned": "Slurm starts the script; Snakemake starts and reads the workflow",
    "began": "Python starts and imports the stage",
    "done": "**the stage**",
    "ended": "Python, Snakemake and Slurm end",
    "noticed": "until Snakemake, which asks every 10 s, has noticed",
}


def timed(folder: Path, slurm: Cluster, jobs: int, *more: str) -> float:
    """Wall seconds of the tiny experiment through Slurm in a new `folder`, where said.log has what Snakemake says."""
    init_folder.init(folder)
    command = [sys.executable, "-m", "snakemake", "--profile", "slurm", *tiny.ARGUMENTS, "--jobs", str(jobs)]
    command += ["--latency-wait", "5", "--slurm-keep-successful-logs", "--config", "tracking={enabled: false}", *more]
    environment = {**os.environ, **slurm.environment, **launch.ONE_THREAD, "PYTHONPATH": str(tiny.ROOT)}
    begin = time.monotonic()
    with (folder / "said.log").open("w", encoding="utf-8") as said:
        subprocess.run(command, cwd=folder, env=environment, stdout=said, stderr=subprocess.STDOUT, check=True)
    return time.monotonic() - begin


def comment(described: dict) -> str:
    """What the plugin calls a job in Slurm: its rule and the values of its wildcards."""
    values = [str(value) for value in described["wildcards"].values()]
    return (f"rule_{described['rule']}" + (f"_wildcards_{'_'.join(values)}" if values else "")).replace("/", "_")


def moments(folder: Path, slurm: Cluster) -> dict[str, dict[str, float]]:
    """The moments of each job, in seconds since 1970: when it was submitted, and the keys of `PARTS`."""
    listed = slurm.ask("scontrol", "show", "job", "-o").splitlines()
    fields = [dict(re.findall(r"(\w+)=(\S+)", line)) for line in listed]
    by_comment = {job["Comment"]: job for job in fields if "Comment" in job}
    said = (folder / "said.log").read_text(encoding="utf-8")
    submitted = re.findall(r"^Job (\d+) has been submitted with SLURM jobid (\d+) \(log: (.*)\)\.$", said, re.MULTILINE)
    numbers, logs = {ours: slurms for ours, slurms, _ in submitted}, {slurms: log for _, slurms, log in submitted}
    noticed = {
        numbers[number]: when.timestamp()
        for when, number in (
            (datetime.strptime(when, "%c"), number)
            for when, number in re.findall(r"^\[(.*)\]\nFinished jobid: (\d+) ", said, re.MULTILINE)
        )
        if number in numbers
    }
    found = {}
    for path in folder.glob("results/tiny/**/*.job.json"):
        described = json.loads(path.read_text(encoding="utf-8"))
        job = by_comment.get(comment(described))
        if job is None or "metrics" not in described["output"]:
            continue
        measured = json.loads((folder / described["output"]["metrics"]).read_text(encoding="utf-8"))
        log = Path(logs[job["JobId"]]).read_text(encoding="utf-8")
        planned = re.findall(r"^\[(.*)\]$", log, re.MULTILINE)[0]
        times = {
            key: datetime.fromisoformat(job[f"{name}Time"]).timestamp()
            for key, name in (("submitted", "Submit"), ("started", "Start"), ("ended", "End"))
        }
        found[comment(described)] = {
            **times,
            "planned": datetime.strptime(planned, "%c").timestamp(),
            "began": measured["started"],
            "done": measured["started"] + measured["wall_s"],
            "noticed": noticed[job["JobId"]],
        }
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2, help="jobs at once")
    parser.add_argument("--granularity", default="run", help="how large jobs are in the second measurement")
    given = parser.parse_args()
    if missing():
        sys.exit(missing())
    with tempfile.TemporaryDirectory() as name:
        stages, larger, files = (Path(name) / part for part in ("stages", "larger", "slurm"))
        files.mkdir()
        with cluster(files) as slurm:
            wall = timed(stages, slurm, given.jobs)
            jobs = list(moments(stages, slurm).values())
            wall_larger = timed(larger, slurm, given.jobs, f"granularity={given.granularity}")
    print("# What a Slurm job takes besides its stage\n")
    print(f"`python -m benchmarks.pipeline.slurm --jobs {given.jobs}`, ", end="")
    print(f"{os.cpu_count()} cores, {platform.machine()}, Snakemake {version('snakemake')}, ", end="")
    print(f"load {os.getloadavg()[0]:.1f} at the end. Means over {len(jobs)} jobs of the tiny experiment.\n")
    print("| part of a job | seconds |\n|---|---:|")
    ends = ["submitted", *PARTS]
    for before, after in itertools.pairwise(ends):
        print(f"| {PARTS[after]} | {statistics.mean(job[after] - job[before] for job in jobs):.1f} |")
    whole = statistics.mean(job["ended"] - job["started"] for job in jobs)
    print(f"| all of it in Slurm | {whole:.1f} |")
    print(f"\nWall time of the experiment, every stage a job: {wall:.0f} s; ", end="")
    print(f"with `granularity: {given.granularity}`: {wall_larger:.0f} s.")


if __name__ == "__main__":
    main()
