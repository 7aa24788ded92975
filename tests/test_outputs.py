"""Commands never write over what they read, nor in place of what is not a regular file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.helpers import turncredit
from turncredit.data import output_paths
from turncredit.errors import UserError

TURNS, CREDITS, BRANCHES, LABELS = "turns.parquet", "credits.parquet", "branches.parquet", "labels.parquet"
#: command line without the output, the option of the output, and the ending of what it writes
COMMANDS = {
    "credit": (["credit", "--method", "rloo", "--turns", TURNS, "--labels", LABELS], "--out", ".parquet"),
    "fidelity": (["fidelity", "--turns", TURNS, "--credits", CREDITS, "--branches", BRANCHES], "--json", ".json"),
    "page": (["page", "--turns", TURNS, "--credits", CREDITS, "--rollout", "r0"], "--out", ".html"),
    "judge label": (["judge", "label", "--turns", TURNS], "--out", ".parquet"),
    "judge agreement": (["judge", "agreement", "--labels", LABELS, "--gold", TURNS], "--disagreements", ".parquet"),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files that the commands would read; what is in them does not matter where nothing may be written."""
    for name in (TURNS, CREDITS, BRANCHES, LABELS):
        (tmp_path / name).write_bytes(name.encode())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refusal(*arguments: str) -> str:
    done = turncredit(*arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    return done.stderr


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("way", ["itself", "a hard link", "a link", "a path with dots"])
def test_an_input_is_not_overwritten(command, way, folder):
    arguments, option, suffix = COMMANDS[command]
    read = arguments[arguments.index("--turns" if "--turns" in arguments else "--labels") + 1]
    source = folder / f"input{suffix}"
    source.write_bytes(b"the user's own")
    arguments = [source.name if argument == read else argument for argument in arguments]
    out = {
        "itself": source.name,
        "a hard link": f"other{suffix}",
        "a link": f"other{suffix}",
        "a path with dots": f"../{folder.name}/{source.name}",
    }[way]
    if way == "a hard link":
        os.link(source, out)
    if way == "a link":
        os.symlink(source, out)
    before = contents(folder)
    line = refusal(*arguments, option, out)
    assert line.startswith(f"turncredit: {out}: is ")
    assert contents(folder) == before


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("a folder", "is a folder"),
        ("/dev/null", "is not a regular file"),
        ("pipe", "is not a regular file"),
        ("out.xlsx", "this command writes"),
        ("out", "this command writes"),
        (f"{TURNS}/out", "this command writes"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is_read(command, out, said, folder):
    (folder / "a folder").mkdir()
    os.mkfifo(folder / "pipe")
    arguments, option, _ = COMMANDS[command]
    before = sorted(path.name for path in folder.iterdir())
    line = refusal(*arguments, option, out)
    assert line.startswith(f"turncredit: {out}: {said}")
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.usefixtures("folder")
def test_credit_does_not_write_a_csv_that_is_parquet():
    line = refusal(*COMMANDS["credit"][0], "--out", "out.csv")
    assert "this command writes Parquet (.parquet)" in line


@pytest.mark.usefixtures("folder")
def test_a_path_below_a_file_is_refused():
    with pytest.raises(UserError, match="is a file, not a folder"):
        output_paths.output_file(f"{TURNS}/deeper/out.parquet", (".parquet",))


@pytest.mark.usefixtures("folder")
def test_a_new_file_and_one_that_is_not_read_may_be_written():
    for name in ("new/out.parquet", "OUT.PARQUET", CREDITS):
        assert output_paths.output_file(name, (".parquet",), reads=[TURNS, None, "not there"]) == Path(name)


def test_an_answer_does_not_replace_a_table_of_the_results(finished):
    table = next(finished.rglob("turns.parquet"))
    before = table.read_bytes()
    line = refusal("sql", "select 1", "--results", str(finished), "--out", str(table))
    assert "is one of the files in" in line
    page = finished / "report" / "index.html"
    page.parent.mkdir(exist_ok=True)
    page.write_text("a report")
    refusal("judge", "roles", "--results", str(finished), "--out", str(page))
    assert (table.read_bytes(), page.read_text()) == (before, "a report")
    page.unlink()


def test_a_report_does_not_replace_a_page_that_it_did_not_write(finished, tmp_path):
    (tmp_path / "index.html").write_text("my page")
    line = refusal("report", str(finished), "--out", str(tmp_path))
    assert "index.html: exists and was not written by this command" in line
    assert (tmp_path / "index.html").read_text() == "my page"
    line = refusal("report", str(finished), "--out", str(tmp_path / "index.html"))
    assert "is not a folder" in line


@pytest.mark.usefixtures("folder")
def test_nobody_is_told_to_delete_a_file_of_their_own():
    line = refusal(*COMMANDS["credit"][0], "--out", "out.parquet")
    assert ".parquet: not a readable Parquet file" in line
    assert "give another file or, if a stage wrote it, delete it" in line
