"""What the machine withholds: a full disk, a folder that cannot be written, memory that runs out.

A full disk is a small tmpfs, and a read-only folder is that remounted, where this process may mount (root). Elsewhere
a full disk is a limit on the length of files (RLIMIT_FSIZE), and a read-only folder one without the write permission.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.chaos import children, world
from benchmarks.chaos.faults import Baseline, Fault, Verdict, judge_again, line_naming, outputs_of
from benchmarks.chaos.kills import one_of_each
from turncredit.pipeline.loop import Step

#: Megabytes of address space beyond what the process has: too few for the computation, of which some fail.
MEMORY_MB = (1, 4, 16, 48)


def may_mount() -> bool:
    """Whether this process can mount file systems."""
    probe = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    return os.geteuid() == 0 and probe.returncode == 0


@contextmanager
def mounted(folder: Path, size: int) -> Iterator[Path]:
    """A file system of `size` bytes in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "chaos", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def of_disk(baseline: Baseline, rng: np.random.Generator) -> Iterator[Fault]:
    """For a job of every stage: a disk with less space than its outputs take, and one that cannot be written."""
    mounts = may_mount()
    for step in one_of_each(baseline.plan, rng):
        paths = [Path(path) for path in outputs_of(baseline.plan, [step])]
        files = [file for path in paths for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file()]
        share = float(rng.uniform(0, 0.9))
        left = int(share * sum(file.stat().st_size for file in files))
        if mounts:
            yield on_small_disk(baseline, step, f"tmpfs with {left} bytes left", left)
            yield read_only(baseline, step, "tmpfs mounted read-only")
        else:
            longest = int(share * max(file.stat().st_size for file in files))
            yield limited(baseline, step, "full disk", f"no file above {longest} bytes", children.small_files(longest))


def on_small_disk(baseline: Baseline, step: Step, when: str, left: int) -> Fault:
    """A job on a disk that becomes full while it writes. Then the disk has space again, and the job runs again."""

    def inflict(folder: Path) -> Verdict:
        with mounted(folder, 2**30):
            world.copy_into(baseline.folder, folder, outputs_of(baseline.plan, [step]))
            filler = folder / "filler"
            space = os.statvfs(folder)
            with filler.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, max(1, space.f_bavail * space.f_frsize - left))
            return judge(baseline, folder, step, cure=filler.unlink)

    return Fault("full disk", f"{step[0]} {step[1]}".rstrip(), when, inflict)


def read_only(baseline: Baseline, step: Step, when: str) -> Fault:
    """A job whose folder of results cannot be written. Then it can, and the job runs again."""

    def inflict(folder: Path) -> Verdict:
        with mounted(folder, 2**30):
            world.copy_into(baseline.folder, folder, outputs_of(baseline.plan, [step]))
            subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
            writable = ["mount", "-o", "remount,rw", str(folder)]
            return judge(baseline, folder, step, cure=lambda: subprocess.run(writable, check=True))

    return Fault("read-only folder", f"{step[0]} {step[1]}".rstrip(), when, inflict)


def of_memory(baseline: Baseline, rng: np.random.Generator) -> Iterator[Fault]:
    """A job of every stage with a little memory (RLIMIT_AS): it does without, or fails with a line."""
    for step in one_of_each(baseline.plan, rng):
        more = MEMORY_MB[rng.integers(len(MEMORY_MB))]
        yield limited(
            baseline, step, "out of memory", f"{more} MB more than at its start", children.little_memory(more)
        )


def limited(baseline: Baseline, step: Step, kind: str, when: str, fault: Callable[[], None]) -> Fault:
    """A job under a limit of its process. Then it runs again without one."""

    def inflict(folder: Path) -> Verdict:
        world.copy(baseline.folder, folder, outputs_of(baseline.plan, [step]))
        return judge(baseline, folder, step, fault=fault)

    return Fault(kind, f"{step[0]} {step[1]}".rstrip(), when, inflict)


def judge(
    baseline: Baseline,
    folder: Path,
    step: Step,
    *,
    fault: Callable[[], None] | None = None,
    cure: Callable[[], object] = lambda: None,
) -> Verdict:
    """Run a job under a fault, remove the cause, and run it again. A failure must name a file or the job."""
    plan = baseline.plan_in(folder)

    def work() -> None:
        world.perform(plan, [step])

    ended = children.run(work, fault)
    if wrong := world.differences(folder / "results", baseline.content, complete=False):
        return Verdict("SILENT", f"{wrong[0]} was left there and differs")
    named = line_naming(ended.printed, [str(plan.layout.root), f"{step[0]} {step[1]}".rstrip()])
    if ended.status and not named:
        return Verdict("SILENT", f"exit status {ended.status}, and no line names a file or the job: {ended.last_line}")
    cure()
    return judge_again(
        baseline, folder, children.run(work), named=named.replace(f"{folder}/", "") if ended.status else ""
    )
