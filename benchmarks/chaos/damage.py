"""A flipped byte, a truncated file, in every kind of artifact, and in the records beside them.

A damaged file is looked at in three ways. A job that reads it must fail with a line that names it, or make exactly what
it would have made of the whole file. A query must do the same. And `turncredit check` must name the file if it is not
what was written, whether a job would have noticed or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.chaos import children, world
from benchmarks.chaos.faults import Fault, Made, Verdict, line_naming, outputs_of, problems
from turncredit import tables
from turncredit.errors import UserError
from turncredit.layout import ARTIFACTS
from turncredit.results import sql
from turncredit.stages.jobs import Step, jobs_and_inputs
from turncredit.stages.plan import Plan
from turncredit.stages.wanted import current

#: Jobs that read a damaged file, and are run: the others read it by the same code.
READERS = 1
#: Stages that are left out as readers: the report takes long and is looked at in `of_records`.
SLOW = ("report", "track", "config")


def flip(path: Path, at: int, bit: int) -> None:
    """Flip one bit."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


def of_artifacts(made: Made, rng: np.random.Generator, *, flips: int, truncations: int) -> Iterator[Fault]:
    """A flipped bit at random places, and a random length, of a random artifact of every kind (a random file of a
    folder); of a table also flips in its last tenth, where the footer is, which has no checksum."""
    for name, kind in ARTIFACTS.items():
        found = [one.path for one in made.plan.layout.find(name)]
        if not found:
            continue
        for number in range(flips + truncations):
            path = found[rng.integers(len(found))]
            if kind.folder:
                files = sorted(file for file in path.rglob("*") if file.is_file())
                path = files[rng.integers(len(files))]
            size = path.stat().st_size
            if number < flips:
                footer = kind.schema is not None and number % 2 == 1
                at = int(rng.integers(size * 9 // 10 if footer else 0, size))
                yield flipped(made, name, path, at, int(rng.integers(8)))
            else:
                cut = int(rng.integers(size))
                yield damaged(made, name, path, f"cut to {cut} bytes", lambda file, cut=cut: truncate(file, cut))


def truncate(path: Path, size: int) -> None:
    """Keep the first `size` bytes."""
    path.write_bytes(path.read_bytes()[:size])


def of_records(made: Made, rng: np.random.Generator, *, flips: int) -> Iterator[Fault]:
    """The same in the metrics of jobs, which the report reads."""
    metrics = sorted(path for _, _, path in made.plan.layout.find_metrics())
    for path in rng.choice(np.array(metrics), flips):
        yield flipped(made, "metrics", path, int(rng.integers(path.stat().st_size)), int(rng.integers(8)))


def flipped(made: Made, kind: str, path: Path, at: int, bit: int) -> Fault:
    """A flipped bit in the file at `path`, which belongs to an artifact of this kind."""
    return damaged(made, kind, path, f"bit {bit} of byte {at}", lambda file: flip(file, at, bit))


def damaged(made: Made, kind: str, path: Path, when: str, damage: Callable[[Path], None]) -> Fault:
    """Damage to the file at `path`, which belongs to an artifact of this kind."""
    relative = path.relative_to(made.folder)

    def inflict(folder: Path) -> Verdict:
        owner = owner_of(made.plan, path)
        readers = readers_of(made.plan, owner)[:READERS]
        world.copy(made.folder, folder, outputs_of(made.plan, readers))
        file, plan = folder / relative, made.there(folder)
        damage(file)
        if file.read_bytes() == path.read_bytes():
            return Verdict("unreached", "the damage left the file as it was")
        names = [str(file), str(folder / owner.relative_to(made.folder))]
        said = []
        for reader in readers:
            ended = children.run(lambda reader=reader: world.perform(plan, [reader]))
            verdict = judge_reader(made, folder, reader, ended, names)
            if verdict.outcome == "SILENT":
                return verdict
            said.append(verdict.printed)
        if wrong := wrong_answer(made, plan, kind):
            return Verdict("SILENT", wrong)
        found = children.run(lambda: print("\n".join(problems(folder))))
        checked = line_naming(found.printed, names) if not found.status else ""
        if not checked:
            why = found.last_line if found.status else "turncredit check does not name it"
            return Verdict("SILENT", f"{why}; jobs that read it: {', '.join(filter(None, said)) or 'none failed'}")
        return Verdict("named", next(filter(None, said), f"turncredit check: {checked}").replace(f"{folder}/", ""))

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


def judge_reader(made: Made, folder: Path, step: Step, ended: children.Ended, names: list[str]) -> Verdict:
    """How a job ended that read a damaged file."""
    if ended.status:
        line = line_naming(ended.printed, names)
        return Verdict("named", line) if line else Verdict("SILENT", f"fails without naming it: {ended.last_line}")
    for path in made.plan.outputs(*step).values():
        there = folder / Path(path).relative_to(made.folder)
        if there.name == "invariants.parquet" and (line := violation(there, names)):
            return Verdict("named", line)
        if there.suffix == ".parquet" and not world.same_rows(there, Path(path)):
            return Verdict("SILENT", f"{step[0]} {step[1]} made another {there.name} of it")
        if there.is_dir() and weights_in(there) != weights_in(Path(path)):
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


def wrong_answer(made: Made, plan: Plan, kind: str) -> str:
    """What a query over the view of a damaged table answers, if it is wrong and no refusal; empty otherwise."""
    schema = ARTIFACTS[kind].schema if kind in ARTIFACTS else None
    if schema is None:
        return ""
    columns = [field.name for field in tables.schema(schema) if not str(field.type).startswith("list")]
    # A range of values asks for the statistics in the footer, by which a reader skips what cannot match.
    first = columns[0]
    query = f"SELECT {', '.join(f'count({name})' for name in columns)}, max({first}) FROM {schema} WHERE {first} >= ' '"
    if str(tables.schema(schema).field(first).type) != "string":
        query = query.replace("' '", "-1000000")
    answers = []
    for one in (made.plan, plan):
        try:
            answers.append(sql.answer(query, one.layout.root, current).to_pylist())
        except UserError:
            answers.append(None)
    wanted, found = answers
    return f"turncredit sql answers {found}, not {wanted}" if found is not None and found != wanted else ""
