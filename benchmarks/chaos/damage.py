"""A flipped byte, a truncated file, in every kind of artifact, and in the records beside them.

A damaged file is looked at in three ways. A job that reads it must fail with a line that names it, or make exactly what
it would have made of the whole file. A query must do the same. And `turncredit check` must name the file if it is not
what was written, whether a job would have noticed or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.chaos import children, world
from benchmarks.chaos.faults import Baseline, Fault, Verdict, line_naming, outputs_of, problems
from turncredit.config.stages import artifacts
from turncredit.data import tables
from turncredit.errors import UserError
from turncredit.pipeline.all_jobs import jobs_and_inputs
from turncredit.pipeline.expected_artifacts import current
from turncredit.pipeline.loop import Step
from turncredit.pipeline.plan import Plan
from turncredit.views import sql

#: Jobs that read a damaged file, and are run: the others read it by the same code.
READERS = 1
#: Stages that are left out as readers: the report takes long and is looked at in `of_records`.
SLOW = ("report", "track", "config")


def flip(path: Path, at: int, bit: int) -> None:
    """Flip one bit."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


def of_artifacts(baseline: Baseline, rng: np.random.Generator, *, flips: int, truncations: int) -> Iterator[Fault]:
    """A flipped bit at random places, and a random length, of a random artifact of every kind (a random file of a
    folder); of a table also flips in its last tenth, where the footer is, which has no checksum."""
    for name, kind in artifacts().items():
        paths = [one.path for one in baseline.plan.layout.find(name)]
        if not paths:
            continue
        for number in range(flips + truncations):
            path = paths[rng.integers(len(paths))]
            if kind.folder:
                files = sorted(file for file in path.rglob("*") if file.is_file())
                path = files[rng.integers(len(files))]
            size = path.stat().st_size
            if number < flips:
                footer = kind.schema is not None and number % 2 == 1
                at = int(rng.integers(size * 9 // 10 if footer else 0, size))
                yield flipped(baseline, name, path, at, int(rng.integers(8)))
            else:
                cut = int(rng.integers(size))
                yield damaged(baseline, name, path, f"cut to {cut} bytes", partial(truncate, size=cut))


def truncate(path: Path, size: int) -> None:
    """Keep the first `size` bytes."""
    path.write_bytes(path.read_bytes()[:size])


def of_records(baseline: Baseline, rng: np.random.Generator, *, flips: int) -> Iterator[Fault]:
    """The same in the metrics of jobs, which the report reads."""
    metrics = sorted(path for _, _, path in baseline.plan.layout.find_metrics())
    for path in rng.choice(np.array(metrics), flips):
        yield flipped(baseline, "metrics", path, int(rng.integers(path.stat().st_size)), int(rng.integers(8)))


def flipped(baseline: Baseline, kind: str, path: Path, at: int, bit: int) -> Fault:
    """A flipped bit in the file at `path`, which belongs to an artifact of this kind."""
    return damaged(baseline, kind, path, f"bit {bit} of byte {at}", lambda file: flip(file, at, bit))


def damaged(baseline: Baseline, kind: str, path: Path, when: str, damage: Callable[[Path], None]) -> Fault:
    """Damage to the file at `path`, which belongs to an artifact of this kind."""
    relative = path.relative_to(baseline.folder)

    def inflict(folder: Path) -> Verdict:
        owner = owner_of(baseline.plan, path)
        readers = readers_of(baseline.plan, owner)[:READERS]
        world.copy(baseline.folder, folder, outputs_of(baseline.plan, readers))
        file, plan = folder / relative, baseline.plan_in(folder)
        damage(file)
        if file.read_bytes() == path.read_bytes():
            return Verdict("unreached", "the damage left the file as it was")
        names = [str(file), str(folder / owner.relative_to(baseline.folder))]
        lines = []
        for reader in readers:
            ended = children.run(partial(world.perform, plan, [reader]))
            verdict = judge_reader(baseline, folder, reader, ended, names)
            if verdict.outcome == "SILENT":
                return verdict
            lines.append(verdict.printed)
        if wrong := wrong_answer(baseline, plan, kind):
            return Verdict("SILENT", wrong)
        check = children.run(lambda: print("\n".join(problems(folder))))
        checked = line_naming(check.printed, names) if not check.status else ""
        if not checked:
            why = check.last_line if check.status else "turncredit check does not name it"
            return Verdict("SILENT", f"{why}; jobs that read it: {', '.join(filter(None, lines)) or 'none failed'}")
        return Verdict("named", next(filter(None, lines), f"turncredit check: {checked}").replace(f"{folder}/", ""))

    return Fault(f"damaged {kind}", str(relative.relative_to("results")), when, inflict)


def owner_of(plan: Plan, path: Path) -> Path:
    """The artifact that a file is, or is in."""
    for candidate in (path, *path.parents):
        if plan.layout.locate(candidate) is not None:
            return candidate
    return path


def readers_of(plan: Plan, artifact: Path) -> list[Step]:
    """The jobs that read an artifact; those that read the fewest files first."""
    reads = {step: paths for step, paths in jobs_and_inputs(plan).items() if step[0] not in SLOW}
    return sorted((step for step, paths in reads.items() if str(artifact) in paths), key=lambda step: len(reads[step]))


def judge_reader(baseline: Baseline, folder: Path, step: Step, ended: children.Ended, names: list[str]) -> Verdict:
    """How a job ended that read a damaged file."""
    if ended.status:
        line = line_naming(ended.printed, names)
        return Verdict("named", line) if line else Verdict("SILENT", f"fails without naming it: {ended.last_line}")
    for path in baseline.plan.outputs(*step).values():
        copy = folder / Path(path).relative_to(baseline.folder)
        if copy.name == "invariants.parquet" and (line := violation(copy, names)):
            return Verdict("named", line)
        if copy.suffix == ".parquet" and not world.same_rows(copy, Path(path)):
            return Verdict("SILENT", f"{step[0]} {step[1]} made another {copy.name} of it")
        if copy.is_dir() and weights_in(copy) != weights_in(Path(path)):
            return Verdict("SILENT", f"{step[0]} {step[1]} made other weights of it")
    return Verdict("same")


def violation(invariants: Path, names: list[str]) -> str:
    """The first violated invariant whose detail names one of these files: the report's head says that there is one."""
    rows = tables.read(invariants, "invariants").to_pylist()
    details = [f"{row['name']}: {row['detail']}" for row in rows if not row["holds"]]
    return line_naming("\n".join(details), names)


def weights_in(folder: Path) -> dict[str, bytes]:
    """The files of a folder that hold weights."""
    return {file.name: file.read_bytes() for file in sorted(folder.glob("*.safetensors"))}


def wrong_answer(baseline: Baseline, plan: Plan, kind: str) -> str:
    """What a query over the view of a damaged table answers, if it is wrong and no refusal; empty otherwise."""
    schema = artifacts()[kind].schema if kind in artifacts() else None
    if schema is None:
        return ""
    columns = [field.name for field in tables.schema(schema) if not str(field.type).startswith("list")]
    # A range of values asks for the statistics in the footer, by which a reader skips what cannot match.
    first = columns[0]
    query = f"SELECT {', '.join(f'count({name})' for name in columns)}, max({first}) FROM {schema} WHERE {first} >= ' '"
    if str(tables.schema(schema).field(first).type) != "string":
        query = query.replace("' '", "-1000000")
    answers = []
    for one in (baseline.plan, plan):
        try:
            answers.append(sql.answer(query, one.layout.root, current).to_pylist())
        except UserError:
            answers.append(None)
    expected, answer = answers
    return f"turncredit sql answers {answer}, not {expected}" if answer is not None and answer != expected else ""
