"""What a stage's code gets: the keys of its job, its slice of the configuration, its files, and the process's store.

The job's `Store` decides whether tables and policies come from disk or from an earlier job of the same process, so a
stage runs the same code in its own process and as one of many.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from turncredit.config.stages import Artifact
from turncredit.config.warm_starts import SFT
from turncredit.data import provenance, tables
from turncredit.data.files import new_folder
from turncredit.data.provenance import PROVENANCE_FILE
from turncredit.data.tables import TableError


class Slice(BaseModel):
    """A stage's part of the configuration."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def own_code() -> Any:
    """A field for what identifies a user's own code, or an installed package's: absent from slices of built-in code."""
    return Field(None, exclude_if=lambda code: code is None)


#: Records on disk keep the names that these keys had before version 0.4, so that older results stay valid.
RECORDED_NAMES = {
    "question": "ask",
    "hidden_policy": "read",
    "hidden_position": "point",
    "scorer": "reader",
    "continuations": "continued",
    "forks": "forked",
    "warm_start": "start",
}


@dataclass(frozen=True)
class JobKeys:
    """The keys of one job; those that its stage does not have are empty, or -1 for numbers.

    `warm_start` is the one that a job makes, empty for the experiment's own agent (see `Plan.warm_start`).
    """

    policy: str = ""
    method: str = ""
    seed: int = -1
    round: int = -1
    split: str = ""
    judge: str = ""
    question: str = ""
    hidden_policy: str = ""
    hidden_position: str = ""
    scorer: str = ""
    continuations: str = ""
    forks: str = ""
    warm_start: str = ""

    @classmethod
    def of(cls, wildcards: Mapping[str, str]) -> JobKeys:
        """The keys in Snakemake's wildcards. The warm start of the experiment's own agent is left empty."""
        keys: dict[str, Any] = {name: int(key) if name in ("seed", "round") else key for name, key in wildcards.items()}
        return cls(**{**keys, "warm_start": "" if keys.get("warm_start") == SFT else keys.get("warm_start", "")})

    @cached_property
    def keys(self) -> dict[str, str | int]:
        """The keys that are set."""
        # Tens of thousands of jobs are planned: dataclasses.asdict would copy every value.
        return {key: value for key, value in vars(self).items() if value not in ("", -1)}

    @property
    def recorded(self) -> dict[str, str | int]:
        """The keys that are set, under the names that provenance records have."""
        return {RECORDED_NAMES.get(key, key): value for key, value in self.keys.items()}

    def __str__(self) -> str:
        """In a readable form: `flat_grpo seed0 round02`."""
        named = {"seed": "seed{}", "round": "round{:02d}"}
        return " ".join(named.get(key, "{}").format(value) for key, value in self.keys.items())


#: what a job reads, by name: a path, or several in a fixed order
Inputs = dict[str, str | list[str]]


class Store:
    """Tables and policies of one process, kept in memory for its next job; read from disk if `keep` is false.

    `slots` is the most rollouts at a time of any of its jobs, for which sampling engines have room from their start;
    `engines` is the number of vLLM engines that share them.
    """

    def __init__(self, *, keep: bool = False, slots: int = 1, engines: int = 1):
        self.keep, self._slots, self._engines = keep, slots, engines
        self._tables: dict[str, pa.Table] = {}
        self._policies: dict[str, Any] = {}
        self._hashes: dict[str, str] = {}
        self._vllm: Any = None

    def table(
        self, path: str, schema: str | None = None, columns: Sequence[str] | None = None, optional: Sequence[str] = ()
    ) -> pa.Table:
        """The table at `path` (`turncredit.data.tables.read`)."""
        table = self._tables.get(path)
        if table is None:
            return tables.read(path, schema, columns, optional)
        if columns is None:
            return table
        return table.select([*columns, *(name for name in optional if name in table.column_names)])

    def changed(self, path: str) -> None:
        """Forget everything about `path`, which was written."""
        for cache in (self._tables, self._policies, self._hashes):
            cache.pop(path, None)

    def put_table(self, path: str, table: pa.Table) -> None:
        """Remember a table that was written to `path`."""
        self.changed(path)
        if self.keep:
            self._tables[path] = table

    def policy(self, folder: str, *, dtype: str, engine: str = "lockstep") -> Any:
        """The policy in `folder` (`turncredit.policy.open.OpenPolicy`)."""
        from turncredit.policy.open import OpenPolicy

        cached = self._policies.get(folder)
        if cached is not None and (cached.dtype, cached.engine) == (dtype, engine):
            return cached
        policy = OpenPolicy(folder, dtype=dtype, engine=engine, running=self._engine() if engine == "vllm" else None)
        if self.keep:
            self._policies[folder] = policy
        return policy

    def put_policy(self, folder: str, policy: Any) -> None:
        """Remember a policy whose folder was written."""
        self.changed(folder)
        if self.keep:
            self._policies[folder] = policy

    def release(self) -> None:
        """Free the weights of all policies, on a GPU for other processes too: they are read again when next used."""
        from turncredit.policy.sampling import free_memory

        for policy in self._policies.values():
            policy.release()
        free_memory()

    def _engine(self) -> Any:
        """The vLLM engine, or engines, that this process keeps for all policies; None if it keeps nothing."""
        if self.keep and self._vllm is None:
            from turncredit.policy.engines.several import Engines
            from turncredit.policy.engines.vllm import Engine

            one = self._engines == 1
            self._vllm = Engine(slots=self._slots) if one else Engines(self._engines, slots=self._slots)
        return self._vllm

    def rest(self) -> None:
        """Let the sampling engine, if there is one, give the memory of its GPU to other stages."""
        from turncredit.policy.sampling import free_memory

        if self._vllm is not None:
            self._vllm.sleep()
        free_memory()

    def end_engine(self) -> None:
        """End the sampling engine, if there is one: the next stage that samples starts it again."""
        if self._vllm is not None:
            self._vllm.end()

    def hash(self, path: str) -> str:
        """The hash of a file or folder (`content_hash`), computed once."""
        if path not in self._hashes:
            self._hashes[path] = content_hash(path)
        return self._hashes[path]

    def forget(self, keep: Sequence[str]) -> None:
        """Free all tables and policies except those at these paths."""
        kept = set(keep)
        self._tables = {path: table for path, table in self._tables.items() if path in kept}
        self._policies = {path: policy for path, policy in self._policies.items() if path in kept}


@dataclass
class Job:
    """One job of a stage; `runtime_options` as in its record (`turncredit.config.stages.Stage`)."""

    stage: str
    at: JobKeys
    config: Any
    input: Inputs
    output: dict[str, str]
    makes: Mapping[str, Artifact]
    runtime_options: Any = None
    threads: int = 1
    store: Store = field(default_factory=Store)

    def path(self, name: str) -> str:
        """The path of the single input `name`."""
        value = self.input[name]
        assert isinstance(value, str), f"input '{name}' of {self.stage} is a list"
        return value

    def paths(self, name: str) -> list[str]:
        """The paths of the input `name`, one or several; empty if there is none."""
        value = self.input.get(name, [])
        return [value] if isinstance(value, str) else list(value)

    def table(
        self, name: str, schema: str | None = None, columns: Sequence[str] | None = None, optional: Sequence[str] = ()
    ) -> pa.Table:
        """The input table `name`."""
        return self.store.table(self.path(name), schema, columns, optional)

    def policy(self, name: str) -> Any:
        """The input policy `name`, opened according to the stage's slice (`dtype`, and `engine` if it has one)."""
        engine = getattr(self.config, "engine", "lockstep")
        return self.store.policy(self.path(name), dtype=self.config.dtype, engine=engine)

    def write(self, name: str, table: pa.Table) -> None:
        """Write the output table `name`, with its provenance."""
        schema = self.makes[name].schema
        assert schema is not None, f"output '{name}' of {self.stage} is not a table"
        written = tables.write(table, self.output[name], schema, self.provenance())
        self.store.put_table(self.output[name], written)

    @contextmanager
    def folder(self, name: str) -> Iterator[Path]:
        """A temporary folder that becomes the output folder `name`, with its provenance, when the block succeeds."""
        with new_folder(self.output[name]) as folder:
            yield folder
            (folder / PROVENANCE_FILE).unlink(missing_ok=True)  # of another experiment's policy that was copied
            content, files = provenance.folder_hashes(folder)
            made_by = {**self.provenance(), "content": content, "files": files}
            (folder / PROVENANCE_FILE).write_text(json.dumps(made_by, sort_keys=True) + "\n", encoding="utf-8")
        provenance.remember(self.output[name], files)
        self.store.changed(self.output[name])

    def provenance(self, *, without: Collection[str] = ()) -> dict[str, Any]:
        """The provenance of the outputs: stage, keys, slice, and the hashes of all inputs (but those `without`)."""
        read = named_paths({name: value for name, value in self.input.items() if name not in without})
        inputs = {name: self.store.hash(path) for name, path in read.items()}
        config = {**self.at.recorded, **self.config.model_dump(mode="json")}
        seed = self.at.seed if self.at.seed >= 0 else None
        return provenance.record(self.stage, config=config, hashes=inputs, seed=seed)

    def hash_own_files(self) -> None:
        """Hash the user's own files now, before the work: an edit while it is done is no part of it."""
        for path in (path for name in self.input for path in self.paths(name) if path.endswith(".py")):
            self.store.changed(path)
            self.store.hash(path)

    def made_from(self) -> dict[str, Any]:
        """What the outputs depend on: the provenance without the commit."""
        return _comparable(self.provenance(), set())

    def is_made(self, *, deleted: Sequence[str] = ()) -> bool:
        """Whether every output exists and is up to date with inputs, slice, seed and version (but for the commit).

        Paths in `deleted` are no longer needed: such outputs may be missing, such inputs are not compared.
        """
        expected = [path for path in self.output.values() if path not in deleted]
        if not all(os.path.exists(path) for path in expected):
            return False
        gone = {name for name, value in self.input.items() if value in deleted}
        try:
            current = _comparable(self.provenance(without=gone), gone)
        except (FileNotFoundError, TableError):  # an input that is not there or damaged: the job says which
            return False
        records = [provenance.made_from(path) for path in expected]
        return all(_comparable(one, gone) == current for one in records if one is not None) and any(records)


def named_paths(inputs: Mapping[str, str | Sequence[str]]) -> dict[str, str]:
    """Each input's path by its name in a provenance. Paths in a list get numbered names: `parts_0`."""
    named = {}
    for name, value in inputs.items():
        named |= {name: value} if isinstance(value, str) else {f"{name}_{at}": one for at, one in enumerate(value)}
    return named


def _comparable(made_by: Mapping[str, Any], without: set[str]) -> dict[str, Any]:
    """The part of a provenance that must be equal for an artifact to be up to date."""
    inputs = {name: value for name, value in (made_by.get("inputs") or {}).items() if name not in without}
    version = str(made_by.get("code")).partition("+")[0]
    return {**{key: made_by.get(key) for key in ("stage", "config_hash", "seed")}, "inputs": inputs, "code": version}


def content_hash(path: str | Path) -> str:
    """The hash of a file's content; for a folder written by a stage, the recorded hash."""
    if (Path(path) / PROVENANCE_FILE).is_file():
        return str(provenance.record_of(path)["content"])
    return provenance.file_hash(path)
