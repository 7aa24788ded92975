"""A set of recorded rollouts with true advantages, on which methods are scored: a folder of Parquet files.

    set.json          format, name, licence, the parts, and the SHA-256 of each file
    turns.parquet     the rollouts, and the environment's measures before and after each turn
    branches.parquet  the true advantage of some whole rollouts' turns, with errors and both halves' estimates
    labels.parquet    a judge's labels, by `question`
    values.parquet    the outputs of learned credit models, by `method`
    logprobs.parquet  second passes, by `scorer`
    continuations.parquet   returns of continuations from each state, `per_state` of them (`k9`)

Each row has the column `part`: one policy's rollouts of one round in one world. A side table that no part has is
missing. `benchmarks/score_data.py` writes a set.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from turncredit.audit import scored_turns
from turncredit.audit.scored_turns import Scored
from turncredit.credit.parts.compose import Method
from turncredit.data import tables
from turncredit.data.files import new_folder, write_json, write_text
from turncredit.data.tables import KEYS
from turncredit.data.turns import SideTable, Turns
from turncredit.errors import UserError

#: The version of this layout.
FORMAT = 1
#: The file that describes the set.
ABOUT = "set.json"
#: The side tables, and the column that tells several tables of a kind apart.
SIDE = {"labels": "question", "values": "method", "logprobs": "scorer", "continuations": "per_state"}
#: Side tables that belong to one method, as messages call them.
OWN = {"values": "values of its own model", "continuations": "continuations of its own"}
#: All tables of a set.
TABLES = ("turns", "branches", *SIDE)
#: What remakes a set.
REMAKE = "get it again, or make it with `python -m benchmarks.score_data`"


@dataclass(frozen=True, eq=False)
class Part:
    """One policy's rollouts of one round.

    about       `name`, `world`, `policy`, `round` and counts, as `set.json` has them
    turns       whole groups of rollouts
    branches    the true advantages of some of these turns
    side        side tables: kind (`labels`) -> question, method or scorer -> table
    """

    about: Mapping[str, Any]
    turns: pa.Table
    branches: pa.Table
    side: Mapping[str, Mapping[str, pa.Table]]

    @property
    def name(self) -> str:
        """The part's name."""
        return str(self.about["name"])

    @cached_property
    def view(self) -> Turns:
        """The turns, sorted."""
        return Turns(self.turns, where=f"{self.name}: turns")

    @cached_property
    def _truth(self) -> SideTable:
        return SideTable(self.view, self.branches, f"{self.name}: branches", partial=True)

    @cached_property
    def scored(self) -> Scored:
        """The turns whose true advantage is known."""
        return scored_turns.join(self.view, self._truth)

    def of_scored(self, x_N: np.ndarray) -> np.ndarray:
        """A column of `turns`, in the order of its rows, at the scored turns in their order."""
        return x_N[self.view.order_N][self._truth.has_N]


@dataclass(frozen=True)
class RolloutSet:
    """The parts of a set, its name and version, and the hash over all of its files.

    `values_of` names the method whose values another one reads: the same model with the same settings.
    """

    name: str
    version: str
    digest: str
    parts: tuple[Part, ...]
    values_of: Mapping[str, str] = field(default_factory=dict)
    labels: pa.Table | None = None

    def with_labels(self, labels: pa.Table) -> RolloutSet:
        """The set with these labels of its turns in place of its own, whatever a method asks of a judge.

        Raises UserError for labels that no part's turns have.
        """
        ids = pa.array(sorted({name for part in self.parts for name in part.turns.column("rollout_id").to_pylist()}))
        known = pc.is_in(labels.column("rollout_id").cast(pa.string()), ids)
        if not pc.any(known).as_py():
            raise UserError(f"the labels are of none of the rollouts in '{self.name}'; label its turns.parquet")
        return RolloutSet(self.name, self.version, self.digest, self.parts, self.values_of, labels)

    def lacks(self, method: Method, part: Part) -> str | None:
        """None if the part has all that the method declares to read; otherwise what is missing."""
        if method.forks:
            return "credits a tree of rollouts, of which the set has none"
        for need in method.needs:
            if need == "labels" and self.labels is not None:
                continue
            kind = self._key(method, need)
            if kind not in part.side[need]:
                what = OWN.get(need, f"the side table '{need}' ({kind})")
                return f"reads {what}, which the set does not have"
        have = set(part.turns.column_names)
        missing = next((name for name in method.reads if name not in have), None)
        return None if missing is None else f"reads the column '{missing}', which the set does not have"

    def side_of(self, method: Method, part: Part) -> dict[str, pa.Table]:
        """The side tables that the method reads."""
        return {
            need: self.labels
            if need == "labels" and self.labels is not None
            else part.side[need][self._key(method, need)]
            for need in method.needs
        }

    def _key(self, method: Method, need: str) -> str:
        """Which of the part's tables of a kind the method reads."""
        if need == "labels":
            return method.asks or "role"
        if need == "values":
            return self.values_of.get(method.name, method.name)
        if need == "continuations":
            return f"k{method.continuations}"
        return f"implicit-{method.name}" if method.scorer == "implicit" else str(method.scorer)


@cache
def built_in() -> RolloutSet:
    """The set that comes with the package."""
    with as_file(files("turncredit.audit.score") / "rollouts") as folder:
        return load(folder)


def load(folder: str | Path) -> RolloutSet:
    """Read a set. Raises UserError for a folder that has none, another format, and a file whose hash is not the listed
    one."""
    folder = Path(folder)
    about = _about(folder)
    listed = about["files"]
    whole = {name: _table(folder, name, listed) for name in TABLES if name not in SIDE or f"{name}.parquet" in listed}
    parts = tuple(_part(entry, whole) for entry in about["parts"])
    return RolloutSet(about["name"], str(about["version"]), digest(about["files"]), parts, about["values_of"])


def write(folder: str | Path, whole: Mapping[str, pa.Table], about: Mapping[str, Any], readme: str) -> None:
    """Write a set: its tables by name, its description without format and hashes, and its README.md.

    The same tables give the same bytes.
    """
    with new_folder(folder) as part:
        for name, table in whole.items():
            file = part / f"{name}.parquet"
            pq.write_table(table.replace_schema_metadata(), file, compression="zstd", compression_level=19)
        listed = {f"{name}.parquet": sha256(part / f"{name}.parquet") for name in whole}
        write_json(part / ABOUT, {"format": FORMAT, **about, "files": listed})
        write_text(part / "README.md", readme)


def digest(listed: Mapping[str, str]) -> str:
    """One hash for a set: of its files' names and hashes."""
    return hashlib.sha256(json.dumps(dict(sorted(listed.items()))).encode()).hexdigest()


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _about(folder: Path) -> dict[str, Any]:
    path = folder / ABOUT
    if not path.is_file():
        raise UserError(
            f"{folder}: has no {ABOUT}, so it is no set of rollouts; give the folder of one (docs/score_data.md)"
        )
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path}: damaged ({error}); {REMAKE}") from None
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        found = about.get("format") if isinstance(about, dict) else None
        raise UserError(f"{path}: format {found}, but this version of turncredit reads {FORMAT}; {REMAKE}")
    if missing := sorted({"name", "version", "files", "parts", "values_of"} - about.keys()):
        raise UserError(f"{path}: has no '{missing[0]}'; {REMAKE}")
    return about


def _table(folder: Path, name: str, listed: Mapping[str, str]) -> pa.Table:
    path = folder / f"{name}.parquet"
    if not path.is_file():
        raise UserError(f"{path}: no such file, but {ABOUT} lists it; {REMAKE}")
    if sha256(path) != listed.get(path.name):
        raise UserError(f"{path}: its SHA-256 is not the one in {ABOUT}: damaged or changed; {REMAKE}")
    return tables.read(path)


def _part(entry: Mapping[str, Any], whole: Mapping[str, pa.Table]) -> Part:
    def of_part(table: pa.Table) -> pa.Table:
        own = table.filter(pc.equal(table.column("part"), entry["name"])).drop_columns(["part"])
        return own.combine_chunks()

    side: dict[str, dict[str, pa.Table]] = {kind: {} for kind in SIDE}
    for kind in side.keys() & whole.keys():
        own, column = of_part(whole[kind]), SIDE[kind]
        side[kind] = {
            name: _without_nulls(own.filter(pc.equal(own.column(column), name)).drop_columns([column]))
            for name in sorted(set(own.column(column).to_pylist()))
        }
    return Part(entry, _without_nulls(of_part(whole["turns"])), of_part(whole["branches"]), side)


def _without_nulls(table: pa.Table) -> pa.Table:
    """The table without the columns that none of its rows has a value for: they are other tables' columns."""
    empty = [name for name in table.column_names if name not in KEYS and table.column(name).null_count == len(table)]
    return table.drop_columns(empty)
