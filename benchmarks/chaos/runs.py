"""Faults of whole runs of Snakemake: killed, two at a time, with a wrong clock, with files that appear late.

The run trains one method for two rounds from the SFT policy, up to its invariants, with a job for every stage and with
one for every round. What has to happen inside a job's process is patched by the `sitecustomize` that this module writes
next to the run, which Python imports at its start.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import yaml

from benchmarks.chaos import world
from benchmarks.chaos.faults import Baseline, Fault, Verdict, line_naming, outputs_of
from turncredit.pipeline import loop

METHOD = "flat_grpo"
GRANULARITIES = ("stage", "round")
#: Seconds after which a run counts as hung.
HUNG = 1800.0
#: In a job's process: what happens, once, to the first file of the name `NAME` that is put into place.
SITE = """
import os, pathlib, signal, subprocess, sys

rename = os.replace


def replace(source, target, **more):
    if str(target).endswith({name!r}):
        try:
            os.close(os.open({once!r}, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return rename(source, target, **more)
        if {late!r} is None:
            os.kill(os.getpid(), signal.SIGKILL)
        hidden = str(target) + ".late"
        rename(source, hidden, **more)
        move = f"sleep {late!r}; mv {{hidden}} {{target}}"
        subprocess.Popen(["setsid", "sh", "-c", move], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return None
    return rename(source, target, **more)


os.replace = replace
"""
#: Seconds by which a file appears late: within what Snakemake waits for (`--latency-wait`), and beyond it.
LATENCY, LATE, TOO_LATE = 5, 2, 40


class Run:
    """A folder in which the run can be started, with everything made but the training of `METHOD`."""

    def __init__(self, baseline: Baseline, folder: Path, granularity: str):
        self.baseline, self.folder, self.granularity = baseline, folder, granularity
        self.steps = loop.block(baseline.plan, METHOD, 0, [1, 2])
        world.copy(baseline.folder, folder, outputs_of(baseline.plan, self.steps))
        self.source = Path(world.__file__).resolve().parents[2]
        for name in world.PIPELINE:
            (folder / name).symlink_to(self.source / name)
        (folder / "chaos.yaml").write_text(yaml.safe_dump(world.CHANGES), encoding="utf-8")

    def start(self, name: str = "out") -> subprocess.Popen[bytes]:
        """Start the run; what it prints goes to the file `name`."""
        layout = self.baseline.plan.layout
        wanted = [layout.path("invariants", method=METHOD, seed=0)]
        if self.granularity == "stage":
            wanted += [layout.path("evals", method=METHOD, seed=0, round=round) for round in (1, 2)]
        targets = [str(Path(path).relative_to(self.baseline.folder)) for path in wanted]
        command = [sys.executable, "-m", "snakemake", *targets, "--cores", "1", "--latency-wait", str(LATENCY)]
        # The copy of the scripts is younger than the results, which no Snakemake of this folder has made.
        command += ["--rerun-triggers", "mtime", "params", "input"]
        command += ["--configfile", world.TINY, "chaos.yaml", "--config", f"granularity={self.granularity}"]
        paths = f"{self.folder / 'site'}:{self.source}"
        environment = {**os.environ, "PYTHONPATH": paths}
        with (self.folder / name).open("wb") as output:
            return subprocess.Popen(
                command, cwd=self.folder, env=environment, stdout=output, stderr=output, start_new_session=True
            )

    def printed(self, name: str = "out") -> str:
        """What a run printed."""
        return (self.folder / name).read_text(encoding="utf-8", errors="replace")

    def to_its_end(self, name: str = "out") -> int:
        """Run to the end; returns the exit status."""
        return self.start(name).wait(timeout=HUNG)

    def ended_jobs(self) -> int:
        """How many of the stages of the training have ended."""
        paths = [self.baseline.plan.metrics(*step) for step in self.steps]
        return sum((self.folder / Path(path).relative_to(self.baseline.folder)).exists() for path in paths)

    def patch(self, name: str, *, late: float | None) -> None:
        """Let the first file whose path ends in `name` come late, or kill the process that would put it there."""
        site = self.folder / "site" / "sitecustomize.py"
        site.parent.mkdir(exist_ok=True)
        site.write_text(SITE.format(name=name, once=str(self.folder / "struck"), late=late), encoding="utf-8")

    @property
    def struck(self) -> bool:
        """Whether the patch has done what it was for."""
        return (self.folder / "struck").exists()

    def wrong(self, *, complete: bool) -> str:
        """A result that differs from that of a run without faults; empty if there is none."""
        names = world.differences(self.folder / "results", self.baseline.content, complete=complete)
        return next(iter(names), "")

    def verdict(self, named: str = "") -> Verdict:
        """How it ended, after a run to its end (`named`: the line that had named the fault)."""
        if status := self.to_its_end("again"):
            return Verdict("STUCK", f"exit status {status}: {line_naming(self.printed('again'), ['rror'])}")
        if name := self.wrong(complete=True):
            return Verdict("SILENT", f"{name} differs or is missing")
        if left := world.leftovers(self.folder / "results"):
            return Verdict("STUCK", f"{left[0]} was left behind")
        return Verdict("named", named) if named else Verdict("same")


def of_snakemake(baseline: Baseline, rng: np.random.Generator) -> Iterator[Fault]:
    """All faults of whole runs."""
    for granularity in GRANULARITIES:
        for number in range(3):
            yield killed_again_and_again(baseline, granularity, number, rng.uniform(0, 1, (4, 2)))
        files = ("updates.parquet", "policy", "credits/flat_grpo.parquet", "turns.parquet", "evals.parquet")
        struck = files[rng.integers(len(files))] if granularity == "stage" else "policy"
        yield job_killed(baseline, granularity, struck)
        read_by_others = "updates.parquet" if granularity == "stage" else "invariants.parquet"
        for late in (LATE, TOO_LATE):
            yield late_file(baseline, granularity, read_by_others, late)
        for apart in (0.0, float(np.round(rng.uniform(1, 6), 1))):
            yield two_at_once(baseline, granularity, apart)
        for days in (-2, 2):
            yield clock_jump(baseline, granularity, days, rng.uniform(0, 1, 2), int(rng.integers(2**31)))


def killed_again_and_again(baseline: Baseline, granularity: str, number: int, shares: np.ndarray) -> Fault:
    """`kill -9` of Snakemake after some of its jobs and a random part of a second, four times; then to the end."""

    def inflict(folder: Path) -> Verdict:
        run = Run(baseline, folder, granularity)
        kills = 0
        for share, delay in sorted(map(tuple, shares)):
            process = run.start()
            end = time.monotonic() + HUNG
            while process.poll() is None and run.ended_jobs() < share * len(run.steps) and time.monotonic() < end:
                time.sleep(0.02)
            time.sleep(2 * delay)
            kills += process.poll() is None
            process.send_signal(signal.SIGKILL)
            process.wait()
            wait_until_alone(folder)
            if name := run.wrong(complete=False):
                return Verdict("SILENT", f"after kill {kills} {name} is there and differs")
        if not kills:
            return Verdict("unreached")
        outcome, printed = run.verdict()
        return Verdict(outcome, printed or f"{kills} kills")

    return Fault(
        "kill -9 of Snakemake", f"granularity {granularity}", f"series {number + 1} of four kills", inflict, forks=False
    )


def wait_until_alone(folder: Path) -> None:
    """Wait until no process works in `folder` any more: the jobs of a killed run end with it."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        inside = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and Path(os.readlink(entry / "cwd")) == folder:
                    inside.append(entry.name)
            except OSError:
                continue
        if not inside:
            return
        time.sleep(0.05)
    raise RuntimeError(f"{folder}: processes {inside} are still running")


def job_killed(baseline: Baseline, granularity: str, name: str) -> Fault:
    """`kill -9` of a job under Snakemake (as the kernel does when memory runs out, status 137), once."""

    def inflict(folder: Path) -> Verdict:
        run = Run(baseline, folder, granularity)
        run.patch(name, late=None)
        status = run.to_its_end()
        if not run.struck:
            return Verdict("unreached")
        if wrong := run.wrong(complete=False):
            return Verdict("SILENT", f"after the kill {wrong} is there and differs")
        line = line_naming(run.printed(), ["Error in rule"])
        if status == 0 or not line:
            return Verdict("SILENT", f"exit status {status}, and no line names the job")
        return run.verdict(line)

    return Fault(
        "kill -9 of a job (137)", f"granularity {granularity}", f"before {name} is renamed", inflict, forks=False
    )


def late_file(baseline: Baseline, granularity: str, name: str, late: float) -> Fault:
    """An output appears seconds after its job has ended, as on a network file system."""

    def inflict(folder: Path) -> Verdict:
        run = Run(baseline, folder, granularity)
        run.patch(name, late=late)
        status = run.to_its_end()
        if not run.struck:
            return Verdict("unreached")
        line = line_naming(run.printed(), [f"{name} (missing"]) if status else ""
        if status and not line:
            return Verdict("SILENT", f"exit status {status}, and no line names {name}")
        # Whatever was late is there now, before the run goes on.
        time.sleep(late if status else 0)
        return run.verdict(line)

    return Fault("late file", f"granularity {granularity}", f"{name} {late:g} s late", inflict, forks=False)


def two_at_once(baseline: Baseline, granularity: str, apart: float) -> Fault:
    """Two runs in one folder, the second some seconds after the first."""

    def inflict(folder: Path) -> Verdict:
        run = Run(baseline, folder, granularity)
        first = run.start("first")
        time.sleep(apart)
        second = run.start("second")
        status = [first.wait(timeout=HUNG), second.wait(timeout=HUNG)]
        if wrong := run.wrong(complete=False):
            return Verdict("SILENT", f"{wrong} is there and differs")
        named = ""
        for name, one in zip(("first", "second"), status, strict=True):
            if one:
                named = line_naming(run.printed(name), ["cannot be locked", "turncredit: ", "lock"])
                if not named:
                    return Verdict("SILENT", f"the {name} run failed without a reason: {run.printed(name)[-200:]}")
        return run.verdict(named)

    return Fault("two runs in one folder", f"granularity {granularity}", f"{apart:g} s apart", inflict, forks=False)


def clock_jump(baseline: Baseline, granularity: str, days: int, shares: np.ndarray, seed: int) -> Fault:
    """The clock jumps while a run is stopped: some of its files, before it was stopped, are from days away.

    Stopped by `kill -9`. A random half of the files gets other times (os.utime).
    """

    def inflict(folder: Path) -> Verdict:
        run = Run(baseline, folder, granularity)
        process = run.start()
        end = time.monotonic() + HUNG
        while process.poll() is None and run.ended_jobs() < shares[0] * len(run.steps) and time.monotonic() < end:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        wait_until_alone(folder)
        # The warm start and the games keep their times: making them again takes a minute and is no other fault.
        files = [path for path in sorted((folder / "results").rglob("*")) if {"runs", "rollouts"} & set(path.parts)]
        for path in np.random.default_rng(seed).permutation(np.array(files))[: len(files) // 2]:
            then = path.lstat().st_mtime + days * 86400
            os.utime(path, (then, then), follow_symlinks=False)
        named = ""
        if run.to_its_end("skewed"):
            # Snakemake does not accept an output that is older than its input, and says which.
            named = line_naming(run.printed("skewed"), ["has older modification time"])
            if named:  # what docs/running.md says
                subprocess.run(
                    ["find", "results", "-newermt", "now", "-exec", "touch", "{}", "+"], cwd=folder, check=True
                )
        return run.verdict(named)

    return Fault(
        "clock jump", f"granularity {granularity}", f"half of the files from {days:+d} days", inflict, forks=False
    )
