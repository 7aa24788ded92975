"""What comes and goes while the viewer runs: experiments, tables, folders."""

from __future__ import annotations

import os
import shutil
import tempfile
from html import unescape
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.results import synthetic
from tests.viewer import world
from tests.viewer.serving import served
from tests.viewer.test_view_pages import without_privileges
from turncredit.errors import UserError
from turncredit.views.viewer import given, rollouts
from turncredit.views.viewer.books import Shelf
from turncredit.views.viewer.given import Given
from turncredit.views.viewer.sources import Absent
from turncredit.views.viewer.viewer import Viewer


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Folders are looked at again for every page."""
    monkeypatch.setattr(given, "AGAIN", -1.0)


def experiment(results: Path, name: str = "synthetic") -> Path:
    config = synthetic.experiment(("flat_grpo",), seeds=(0,), rounds=1, games=4, experiment=name)
    return synthetic.make(results, config)


def test_an_experiment_that_begins_later_appears_without_a_restart(tmp_path):
    results = tmp_path / "results"
    results.mkdir()
    viewer = Viewer(Given([results]))
    line = f"{results}: nothing here yet; an experiment or a table of turns appears once it begins"
    assert line in viewer.first()
    experiment(results)
    assert "<h1>synthetic</h1>" in viewer.first()
    shutil.copytree(results / "synthetic", results / "second")
    assert "/experiment/second" in viewer.first()
    assert viewer.round("second", "sft-t4k4T1.0/seed0/round01", {})


def test_an_experiment_that_is_gone_is_a_line_and_comes_back(tmp_path):
    results = tmp_path / "results"
    folder = experiment(results)
    other = shutil.copytree(folder, results / "second")
    viewer = Viewer(Given([results]))
    with served(viewer) as server:
        assert server.get("/experiment/second").status == 200
        os.rename(other, tmp_path / "away")
        line = f"second: {other} is gone; its pages are back when it is"
        for path in ("/experiment/second", "/round/second/sft-t4k4T1.0/seed0/round01", "/trail/second"):
            answer = server.get(path)
            assert answer.status == 404
            assert line in answer.text
        assert line in server.get("/").text
        assert server.get("/experiment/synthetic").status == 200
        os.rename(tmp_path / "away", other)
        assert server.get("/experiment/second").status == 200
        assert "is gone" not in server.get("/").text


def test_tables_in_a_folder_appear_as_they_are_written_with_the_files_about_them(made, tmp_path):
    viewer = Viewer(Given([tmp_path]))
    assert "nothing here yet" in viewer.first()
    whole = made.tables.turns.read_bytes()
    (tmp_path / "mine.parquet").write_bytes(whole[:1000])
    assert "mine.parquet: not a readable Parquet file" in viewer.first()
    (tmp_path / "mine.parquet").write_bytes(whole)
    assert "<h1>mine</h1>" in viewer.first()
    shutil.copy(made.tables.credits["gigpo"], tmp_path / "gigpo.parquet")
    assert viewer.found["mine"].about.credits == [tmp_path / "gigpo.parquet"]
    pq.write_table(pa.table({"x": [1]}), tmp_path / "unrelated.parquet")
    assert viewer.given.problems() == []
    shutil.copy(made.tables.turns, tmp_path / "mine-2.parquet")
    shutil.move(tmp_path / "gigpo.parquet", tmp_path / "mine-2.gigpo.parquet")
    assert viewer.found["mine"].about.credits == []
    assert viewer.found["mine-2"].about.credits == [tmp_path / "mine-2.gigpo.parquet"]
    shutil.copy(made.tables.branches, tmp_path / "truth.parquet")
    assert viewer.given.problems() == [
        f"{tmp_path}/truth.parquet: a table of branches; begin its name with that of its table of turns"
    ]


def test_a_table_that_is_written_anew_stays_listed_and_says_what_is_wrong(made, tmp_path):
    path = tmp_path / "mine.parquet"
    shutil.copy(made.tables.turns, path)
    viewer = Viewer(Given([path]))
    whole = path.read_bytes()
    path.write_bytes(whole[:1000])
    with pytest.raises(UserError, match=r"mine.parquet: not a readable Parquet file"):
        viewer.first()
    path.unlink()
    assert f"mine: {path} is gone" in viewer.first()
    with pytest.raises(Absent, match="is gone; its pages are back when it is"):
        viewer.round("mine", "table", {})
    path.write_bytes(whole)
    assert "<h1>mine</h1>" in viewer.first()


def test_a_table_that_cannot_be_read_does_not_keep_the_others_from_being_shown(made, tmp_path):
    half = tmp_path / "half.parquet"
    half.write_bytes(made.tables.turns.read_bytes()[:1000])
    viewer = Viewer(Given([made.results, half]))
    assert "half.parquet: not a readable Parquet file" in viewer.first()
    assert viewer.round("synthetic", world.ROUND, {})
    with pytest.raises(UserError, match=r"half.parquet: not a readable Parquet file"):
        Given([half, made.tables.branches])


def test_a_second_experiment_of_the_same_name_is_a_line_and_the_first_stays(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    experiment(one)
    two.mkdir()
    viewer = Viewer(Given([one, two]))
    experiment(two)
    assert f"{two}/synthetic: 'synthetic' was given twice" in unescape(viewer.first())
    assert viewer.found["synthetic"].folder == one / "synthetic"
    with pytest.raises(UserError, match="'synthetic' was given twice"):
        Given([one, two])


def test_a_folder_without_permission_is_a_line():
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        closed = Path(folder) / "closed"
        experiment(closed)
        closed.chmod(0)
        with without_privileges():
            text = Viewer(Given([closed])).first()
        closed.chmod(0o755)
    assert f"{closed}: permission denied" in text


def test_what_an_export_needs_must_be_there(tmp_path):
    from turncredit.views.viewer.export import export

    with pytest.raises(Absent, match="there is nothing to export yet"):
        export(Viewer(Given([tmp_path])), tmp_path / "out", rounds=[], count=1, megabytes=1)


def test_a_table_of_credits_is_called_by_its_method_and_by_its_file_where_two_have_the_same(made, tmp_path):
    turns, one, other = (tmp_path / f"{name}.parquet" for name in ("turns", "credits", "again"))
    shutil.copy(made.tables.turns, turns)
    table = pq.read_table(made.tables.credits["gigpo"])
    table = table.drop_columns([name for name in ("method",) if name in table.column_names])
    for path in (one, other):
        pq.write_table(table.append_column("method", pa.array(["gigpo"] * len(table))), path)

    def names(*credits):
        files = Given([turns, *credits]).source("turns").files("table")
        book = Shelf().open(files, "").book
        return [*book.credits], rollouts.credited(files)

    assert names(one) == (["gigpo"], ["gigpo"])
    assert names(one, other) == (["credits", "again"], ["credits", "again"])
    pq.write_table(table, one)
    assert names(one) == (["credits"], ["credits"])


def test_names_of_files_and_folders_are_text(made, tmp_path):
    table, folder = tmp_path / "<img src=x onerror=alert(1)>.parquet", tmp_path / "results" / '<b>&"x'
    shutil.copy(made.tables.turns, table)
    experiment(tmp_path / "results").rename(folder)
    viewer = Viewer(Given([tmp_path / "results", table]))
    turns = next(viewer.given.experiment(folder.name).layout.find("turns")).keys
    round_ = f"{turns['policy']}/seed{turns['seed']}/round01"
    pages = [
        viewer.home(),
        viewer.experiment(folder.name),
        viewer.round(folder.name, round_, {}),
        viewer.round(table.stem, "table", {}),
        viewer.rollout(table.stem, "table", {"group": "game-1", "rollout": "game-1#0"}),
    ]
    table.unlink()
    pages.append(viewer.home())
    for text in pages:
        assert "<img" not in text
        assert "<b>&" not in text
    with served(viewer) as server:
        assert server.get(f"/experiment/{quote(folder.name)}").status == 200
