"""What an artifact was made from: the record that every table and every folder of a stage carries, and its hashes.

A table has it in its metadata, a folder in a file of its own. It depends on neither the time nor the machine.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import subprocess
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from turncredit import __version__
from turncredit.data import tables
from turncredit.data.tables import TableError

#: In every folder that a stage writes: its provenance, and the hash of its other files.
PROVENANCE_FILE = "provenance.json"
#: What to do about a damaged folder.
REPAIR = "`turncredit check --repair` removes what must be made again"

#: Hashes of files that this process has verified or written, by `_state`: `verify` does not read them again.
known_hashes: dict[tuple[int, ...], str] = {}


@cache
def code_version() -> str:
    """The package's version and its commit: a checkout's (`.dirty` where the library differs), or what pip recorded."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return __version__ + _installed_commit()
    git = ["git", "-C", str(root)]
    try:
        head = subprocess.run(
            [*git, "rev-parse", "--short=12", "HEAD"],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=10,
            check=False,
        )
        diff = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "turncredit"], check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return __version__
    if head.returncode:
        return __version__
    return f"{__version__}+{head.stdout.strip()}{'' if diff.returncode == 0 else '.dirty'}"


def _installed_commit() -> str:
    """`+` and the commit that pip installed from a repository (PEP 610); empty for a wheel, which records none."""
    try:
        direct_url = importlib.metadata.distribution("turncredit").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return ""
    commit = json.loads(direct_url or "{}").get("vcs_info", {}).get("commit_id", "")
    return f"+{commit[:12]}" if commit else ""


def file_hash(path: str | Path, *, without: str | None = None) -> str:
    """SHA-256 of a file, or of a folder's files by name, as 16 hexadecimal digits.

    In a folder neither the file `without` counts nor hidden files, such as Snakemake's `.snakemake_timestamp`.
    """
    path = Path(path)
    digest = hashlib.sha256()
    if not path.is_dir():
        _read_into(path, digest)
    for name, file in _files_of(path).items():
        if file.name != without:
            digest.update(name.encode())
            _read_into(file, digest)
    return digest.hexdigest()[:16]


def folder_hashes(folder: str | Path, *, without: str | None = None) -> tuple[str, dict[str, str]]:
    """The hash of a folder (`file_hash`), and that of each of its files by name, computed at the same time."""
    with ThreadPoolExecutor(1) as beside:
        whole = beside.submit(file_hash, folder, without=without)
        files = {name: file for name, file in _files_of(Path(folder)).items() if file.name != without}
        each = {name: file_hash(file) for name, file in files.items()}
        return whole.result(), each


def _files_of(folder: Path) -> dict[str, Path]:
    """The files below a folder that are not hidden, by name, sorted."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {path.relative_to(folder).as_posix(): path for path in files}


def _read_into(file: Path, digest: Any) -> None:
    with file.open("rb") as handle:
        while block := handle.read(1 << 20):
            digest.update(block)


def config_hash(config: Mapping[str, Any]) -> str:
    """The hash by which a table's provenance identifies a part of the configuration."""
    return hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode()).hexdigest()[:16]


def verify(folder: str | Path, only: Callable[[str], bool] = lambda _: True) -> None:
    """Raise TableError for a file of a folder that is not what a stage wrote there, or is gone.

    Call it before a model's files are read: a flipped bit makes another model, not an error. `only` chooses files. A
    process hashes a file once, unless its inode, size or times have changed since.
    """
    folder = Path(folder)
    if not (folder / PROVENANCE_FILE).exists():
        return
    for name, written in record_of(folder).get("files", {}).items():
        if only(name) and _hash_once(folder / name) != written:
            raise TableError(f"{folder / name}: not what was written there; {REPAIR}")


def remember(folder: str | Path, hashes: Mapping[str, str]) -> None:
    """Take the hashes of a folder's files as known: this process has just written these files, and hashed them."""
    known_hashes.update({_state(Path(folder) / name): written for name, written in hashes.items()})


def _hash_once(file: Path) -> str | None:
    """A file's hash, computed once in a process; None if there is no such file."""
    if not file.is_file():
        return None
    state = _state(file)
    if state not in known_hashes:
        known_hashes[state] = file_hash(file)
    return known_hashes[state]


def _state(file: Path) -> tuple[int, ...]:
    """What `stat` says of a file, which changes when it is replaced or written to: no program can set `st_ctime`."""
    status = file.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def record_of(folder: str | Path) -> dict[str, Any]:
    """The provenance of a folder that a stage wrote. Raises TableError where it cannot be read."""
    path = Path(folder) / PROVENANCE_FILE
    try:
        made_by = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(made_by, dict) and "content" in made_by and isinstance(made_by.get("files", {}), dict):
            return made_by
    except (OSError, ValueError):
        pass
    raise TableError(f"{path}: not readable; {REPAIR}")


def record(
    stage: str,
    *,
    config: Mapping[str, Any] | None = None,
    inputs: Mapping[str, str | Path] | None = None,
    hashes: Mapping[str, str] | None = None,
    seed: int | None = None,
) -> dict[str, Any]:
    """A table's provenance: the configuration that its stage reads, and the hashes of the files that it read."""
    input_hashes = {**{name: file_hash(path) for name, path in (inputs or {}).items()}, **(hashes or {})}
    return {
        "stage": stage,
        "code": code_version(),
        "config": json.loads(json.dumps(config or {}, sort_keys=True, default=str)),
        "config_hash": config_hash(config or {}),
        "inputs": dict(sorted(input_hashes.items())),
        "seed": seed,
    }


def made_from(path: str | Path) -> dict[str, Any] | None:
    """The provenance in a table, or in a folder that a stage wrote; None if it has none, {} if it is damaged."""
    path = Path(path)
    try:
        if path.is_dir():
            return json.loads((path / PROVENANCE_FILE).read_text(encoding="utf-8"))
        if path.suffix == ".parquet":
            return tables.metadata(path)
    except (OSError, ValueError, TableError):
        return {}
    return None


def made_by_stage(path: str | Path, stage: str) -> bool:
    """Whether `path` is a table that the stage `stage` wrote, by the provenance in it."""
    try:
        return tables.metadata(path).get("stage") == stage
    except TableError:
        return False
