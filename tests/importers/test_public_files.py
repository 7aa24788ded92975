"""Every rollout file that public projects ship and that we have: imported, or refused with the right reason.

The list is `benchmarks/import/public_files.csv`; `python -m tests.importers.test_public_files` writes it anew. The
files are no part of this repository: where they are not beside it (`../shared/data/rollouts`), these tests are skipped.
"""

from __future__ import annotations

import csv
import tarfile
import tempfile
from pathlib import Path

import pyarrow.compute as pc
import pytest

from turncredit.bridges import importers
from turncredit.bridges.importers.base import NO_REWARD
from turncredit.data import tables
from turncredit.errors import UserError

ROOT = Path(__file__).parents[2]
LIST = ROOT / "benchmarks/import/public_files.csv"
ARCHIVE = ROOT.parent / "shared/data/rollouts/public_rollouts.tar.xz"
COLUMNS = (
    "file",
    "outcome",
    "format",
    "rollouts",
    "turns",
    "turns_with_calls",
    "turns_with_tokens",
    "reward",
    "reason",
)
Row = dict[str, str]

missing = pytest.mark.skipif(not ARCHIVE.exists(), reason=f"{ARCHIVE.name} is not beside the repository")


def outcome(path: Path, name: str, out: Path) -> Row:
    """What becomes of a file: a row of the list."""
    row = dict.fromkeys(COLUMNS, "") | {"file": name}
    try:
        report = importers.run([path], out)
    except UserError as error:
        reason = str(error).partition(": no rollouts in it: ")[2].partition(" (")[0]
        return row | {"outcome": "refused", "reason": reason}
    found = tables.read(out)
    calls = pc.sum(pc.match_substring_regex(found["action"], r"^[\w.-]+ \{")).as_py() or 0
    tokens = found.num_rows - found["response_ids"].null_count if "response_ids" in found.column_names else 0
    without = report.notes.get(NO_REWARD, 0)
    reward = "none" if without == report.rollouts else "yes" if not without else "some"
    counts = {
        "rollouts": report.rollouts,
        "turns": report.turns,
        "turns_with_calls": calls,
        "turns_with_tokens": tokens,
    }
    skipped = "; ".join(f"{number} skipped: {why}" for why, (number, _) in report.skipped.items())
    text = {name: str(value) for name, value in counts.items()}
    return row | text | {"outcome": "imported", "format": " ".join(report.formats), "reward": reward, "reason": skipped}


def outcomes() -> list[Row]:
    """The rows of all files, by name."""
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(folder, filter="data")
        out = Path(folder) / "out.parquet"
        paths = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        return [outcome(path, str(path.relative_to(folder)), out) for path in paths]


def listed() -> list[Row]:
    with LIST.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@missing
@pytest.mark.slow
def test_every_public_file_is_imported_or_refused_as_the_list_says() -> None:
    found = outcomes()
    assert found == listed()


def test_of_147_public_files_at_least_140_are_imported_or_refused_for_a_reason() -> None:
    rows = listed()
    assert len(rows) == 147
    done = [row for row in rows if row["outcome"] == "imported" and int(row["rollouts"]) > 0 and not row["reason"]]
    refused = [row for row in rows if row["outcome"] == "refused" and row["reason"]]
    assert len(done) + len(refused) >= 140


def write() -> None:
    """Write the list anew."""
    LIST.parent.mkdir(exist_ok=True)
    with LIST.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(outcomes())


if __name__ == "__main__":
    write()
