"""The evaluations, fidelity, leak tests and ground truth of an experiment in a few small files, for its report.

python -m benchmarks.recorded pack results/methods benchmarks/methods/recorded
python -m benchmarks.recorded add results/more benchmarks/methods/recorded
python -m benchmarks.recorded unpack benchmarks/methods/recorded results/methods_recorded
python -m benchmarks.methods.table results/methods_recorded final
python -m benchmarks.recorded withdraw benchmarks/methods/recorded agentprm has_turnrd

A run's rollouts and policies take gigabytes, its evaluations kilobytes. All rows of these tables are kept; the metadata
of each file says where its first table came from (commit, configuration, hashes of what was read).
`add` is for an experiment that runs in parts, whose folders are not all kept: it adds the newer runs.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from turncredit.config.layout import Layout, Located, artifact
from turncredit.data import provenance, tables
from turncredit.data.files import new_file, write_json, write_text
from turncredit.data.output_paths import output_folder
from turncredit.errors import UserError
from turncredit.views.experiments import read_config

KEPT = ("evals", "fidelity", "gradients", "leaks", "branches")
#: What a key of an artifact is called as a column, so that it is none of its table's own.
KEY = "key_{}"
#: settings that parts of one experiment may have of their own: what ran, and how
OF_A_PART = {"experiment", "seeds", "methods", "define", "audit", "keep_policies"}
OF_A_PART |= {"granularity", "resources", "tracking"}


def pack(results: str | Path, folder: str | Path) -> dict[str, int]:
    """Write the experiment's tables of `KEPT` as one file each, with its configuration; returns their rows.

    Tables without rows are left out. Raises UserError for a folder without an experiment, and TableError for a damaged
    table.
    """
    layout, folder = Layout(results), Path(folder)
    read_config(results)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "config.json", Path(layout.path("config")).read_text(encoding="utf-8"))
    rows = {}
    for name in KEPT:
        artifacts = sorted(layout.find(name), key=lambda one: [str(value) for value in one.keys.values()])
        if not artifacts:
            (folder / f"{name}.parquet").unlink(missing_ok=True)
            continue
        whole = pa.concat_tables([_with_keys(name, one) for one in artifacts], promote_options="default")
        origin = {b"made_from": json.dumps(provenance.made_from(artifacts[0].path), sort_keys=True).encode()}
        whole = whole.replace_schema_metadata(origin)
        _write(folder / f"{name}.parquet", whole)
        rows[name] = len(whole)
    return rows


def unpack(folder: str | Path, results: str | Path) -> None:
    """Write what `pack` kept as an experiment's folder, which the report's code reads.

    Raises UserError for a folder that has an experiment: its own evaluations would be replaced.
    """
    folder, layout = Path(folder), Layout(results)
    config = Path(layout.path("config"))
    output_folder(results, [config.name], ours=False).mkdir(parents=True, exist_ok=True)
    shutil.copyfile(folder / "config.json", config)
    for name in KEPT:
        if (folder / f"{name}.parquet").exists():
            whole = pq.read_table(folder / f"{name}.parquet")
            made_by = json.loads(whole.schema.metadata[b"made_from"])
            for keys, part in _parts(name, whole):
                tables.write(part, layout.path(name, keys), name, made_by)


def add(results: str | Path, folder: str | Path) -> dict[str, int]:
    """Add the tables of a further part of the experiment to those in `folder`; returns the rows of both together.

    Raises UserError if settings beyond `OF_A_PART` or two definitions of a method differ, and if a table is there
    already with other rows: then the same run ended differently, and nothing is written.
    """
    for one in (results, folder):
        read_config(one)
    given, folder = Layout(results), Path(folder)
    old, new = (json.loads(_config(one).read_text(encoding="utf-8")) for one in (Layout(folder), given))
    differing = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)} - OF_A_PART
    shared = old["define"].keys() & new["define"].keys()
    differing |= {f"define.{name}" for name in shared if old["define"][name] != new["define"][name]}
    audit = _both_audits(old["audit"], new["audit"])
    differing |= set() if audit else {"audit"}
    if differing:
        names = ", ".join(sorted(differing))
        raise UserError(f"{results} and {folder} are not parts of one experiment: {names} differ")
    both = {key: [*old[key], *(one for one in new[key] if one not in old[key])] for key in ("seeds", "methods")}
    with tempfile.TemporaryDirectory() as temporary:
        unpack(folder, temporary)
        whole = Layout(temporary)
        for name in KEPT:
            for one in given.find(name):
                path = Path(whole.path(name, one.keys))
                if path.exists() and not tables.read(path, name).equals(tables.read(one.path, name)):
                    raise UserError(f"{one.path}: {folder} has this table with other rows")
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(one.path, path)
        merged = old | both | {"define": old["define"] | new["define"], "audit": audit}
        _config(whole).write_text(json.dumps(merged, indent=2), encoding="utf-8")
        return pack(temporary, folder)


def _config(layout: Layout) -> Path:
    return Path(layout.path("config"))


def _both_audits(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any] | None:
    """What both parts audit: the rounds of both; None if both audit rounds, and in different ways."""
    if not (old["rounds"] and new["rounds"]):
        return new if new["rounds"] else old
    rounds = sorted({*old["rounds"], *new["rounds"]})
    return new | {"rounds": rounds} if old | {"rounds": []} == new | {"rounds": []} else None


def withdraw(folder: str | Path, methods: Sequence[str]) -> dict[str, int]:
    """Remove the rows of these methods, whose results do not hold any more, and the methods from the configuration.

    Returns the number of rows removed from each table. Raises UserError for a method that the configuration lacks.
    """
    folder = Path(folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if missing := sorted(set(methods) - set(config["methods"])):
        raise UserError(f"{folder / 'config.json'}: has no method '{missing[0]}'")
    config["methods"] = [name for name in config["methods"] if name not in methods]
    config["define"] = {name: entry for name, entry in config["define"].items() if name not in methods}
    write_json(folder / "config.json", config, indent=2)
    removed = {}
    for name in KEPT:
        file = folder / f"{name}.parquet"
        if file.exists():
            whole = pq.read_table(file)
            column = "method" if "method" in whole.column_names else KEY.format("policy")
            kept = whole.filter(pc.invert(pc.is_in(whole.column(column), pa.array(list(methods)))))
            _write(file, kept)
            removed[name] = len(whole) - len(kept)
    return removed


def _write(file: Path, table: pa.Table) -> None:
    """Write a kept table in place of the one that is there: a process that is killed leaves one of the two whole."""
    with new_file(file) as temporary:
        pq.write_table(table, temporary, compression="zstd", compression_level=19)


def _with_keys(name: str, located: Located) -> pa.Table:
    """One table with its artifact's keys as columns, without the metadata of its file."""
    table = tables.read(located.path, name).replace_schema_metadata()
    for key, value in located.keys.items():
        table = table.append_column(KEY.format(key), pa.repeat(pa.scalar(value), len(table)))
    return table


def _parts(name: str, whole: pa.Table) -> Iterator[tuple[dict[str, Any], pa.Table]]:
    """The tables that were put together, with their keys; a column that none of its rows has is not its own."""
    keys = artifact(name).keys
    columns = [KEY.format(key) for key in keys]
    for row in whole.select(columns).group_by(columns).aggregate([]).to_pylist():
        inside = reduce(and_, (pc.field(column) == value for column, value in row.items()))
        part = whole.filter(inside).drop_columns(columns)
        fields = set(tables.schema(name).names)
        absent = [one for one in part.column_names if one not in fields and part.column(one).null_count == len(part)]
        yield {key: row[column] for key, column in zip(keys, columns, strict=True)}, part.drop_columns(absent)


def main() -> None:
    """Pack, add, unpack or withdraw, as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=["pack", "add", "unpack", "withdraw"])
    parser.add_argument("source", type=Path)
    parser.add_argument("targets", nargs="+", help="a folder to write to; of withdraw: methods")
    given = parser.parse_args()
    try:
        match given.action:
            case "pack" | "add":
                written = (pack if given.action == "pack" else add)(given.source, given.targets[0])
                print(", ".join(f"{name}: {rows} rows" for name, rows in written.items()))
            case "unpack":
                unpack(given.source, given.targets[0])
            case _:
                print(
                    ", ".join(
                        f"{name}: {rows} rows removed" for name, rows in withdraw(given.source, given.targets).items()
                    )
                )
    except UserError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
