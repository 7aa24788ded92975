"""The small files in which a benchmark's evaluations and fidelity are kept, and the report made from them."""

from __future__ import annotations

import json
import shutil

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from benchmarks import recorded
from tests.results import synthetic
from turncredit.config.layout import Layout
from turncredit.data import tables
from turncredit.errors import UserError
from turncredit.views.collect import collect
from turncredit.views.report.summary import summarise


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """An experiment with an audit, and what is left of it after packing and unpacking."""
    root = tmp_path_factory.mktemp("recorded")
    config = synthetic.experiment(rounds=3, games=16)
    whole = synthetic.make(root, config)
    synthetic.audit(whole, config)
    recorded.pack(whole, root / "kept")
    again = root / "again" / whole.name
    recorded.unpack(root / "kept", again)
    return whole, root / "kept", again


def read(folder, name):
    return {found.path.relative_to(folder): tables.read(found.path, name) for found in Layout(folder).find(name)}


@pytest.mark.parametrize("name", recorded.KEPT)
def test_every_table_comes_back_with_its_rows_its_columns_and_its_place(folders, name):
    whole, _, again = folders
    before, after = read(whole, name), read(again, name)
    before = {place: table for place, table in before.items() if table.num_rows}  # others are not kept
    assert before
    assert set(before) == set(after)
    for place, table_before in before.items():
        assert after[place].equals(table_before), place


def test_the_reports_tables_are_the_same_from_what_was_kept(folders):
    """But for what is counted in rollouts, which are not kept."""
    whole, _, again = folders
    shown = []
    for folder in (whole, again):
        grids = {grid.name: grid.rows for grid in summarise(collect(folder)).grids}
        names = ["final", *(name for name in grids if name.startswith(("fidelity", "gradients", "predict")))]
        gone = {"training": None, "n_rollouts": None}
        shown.append({name: {row: {**cells, **gone} for row, cells in grids[name].items()} for name in names})
    assert len(shown[0]) > 2
    assert len(shown[0]["final"]) == 5
    assert shown[0] == shown[1]


def test_what_is_kept_is_small(folders):
    whole, kept, _ = folders
    before = sum(found.path.stat().st_size for name in recorded.KEPT for found in Layout(whole).find(name))
    assert sum(file.stat().st_size for file in kept.glob("*.parquet")) < before / 3


def test_a_folder_without_an_experiment_is_refused(tmp_path):
    with pytest.raises(UserError, match="not an experiment's folder"):
        recorded.pack(tmp_path, tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


def test_an_experiments_own_tables_are_never_replaced(folders):
    whole, kept, _ = folders
    before = {found.path: found.path.stat().st_mtime_ns for found in Layout(whole).find("evals")}
    with pytest.raises(UserError, match=r"config\.json: exists and was not written by this command"):
        recorded.unpack(kept, whole)
    assert {found.path: found.path.stat().st_mtime_ns for found in Layout(whole).find("evals")} == before


def test_a_withdrawn_method_is_gone_from_every_table_and_the_others_stay_as_they_were(folders, tmp_path):
    _, kept, _ = folders
    folder = shutil.copytree(kept, tmp_path / "kept")
    removed = recorded.withdraw(folder, ["random_credit"])
    assert all(removed[name] > 0 for name in ("evals", "fidelity"))
    for name in recorded.KEPT:
        before, after = (pq.read_table(one / f"{name}.parquet") for one in (kept, folder))
        column = "key_policy" if name == "branches" else "method"
        assert after.equals(before.filter(pc.field(column) != "random_credit"))
        assert after.schema.metadata == before.schema.metadata
    recorded.unpack(folder, tmp_path / "again")
    assert "random_credit" not in collect(tmp_path / "again").experiment.methods
    with pytest.raises(UserError, match="has no method 'random_credit'"):
        recorded.withdraw(folder, ["random_credit"])


def parts(folders, tmp_path):
    """What is kept of the experiment's first seed, and a folder with its other seeds."""
    whole, _, _ = folders
    first, more = shutil.copytree(whole, tmp_path / "first"), shutil.copytree(whole, tmp_path / "more")
    for name in recorded.KEPT:
        for folder in (first, more):
            for found in Layout(folder).find(name):
                if (found.keys["seed"] == 0) is (folder == more):
                    found.path.unlink()
    recorded.pack(first, tmp_path / "kept")
    return tmp_path / "kept", more


def test_two_parts_of_an_experiment_that_are_added_are_the_whole(folders, tmp_path):
    whole, kept, _ = folders
    first, more = parts(folders, tmp_path)
    assert pq.read_table(first / "evals.parquet").num_rows < pq.read_table(kept / "evals.parquet").num_rows
    rows = recorded.add(more, first)
    assert rows["evals"] == pq.read_table(kept / "evals.parquet").num_rows
    recorded.unpack(first, tmp_path / "again")
    for name in recorded.KEPT:
        before = {place: table for place, table in read(whole, name).items() if table.num_rows}
        after = read(tmp_path / "again", name)
        assert before.keys() == after.keys()
        assert all(after[place].equals(table) for place, table in before.items())


def test_a_part_with_an_audit_brings_it_along_and_two_audits_are_one_if_they_are_alike(folders, tmp_path):
    first, more = parts(folders, tmp_path)
    config = json.loads((first / "config.json").read_text())

    def audit_of_both(one, other):
        for file, changes in ((first / "config.json", one), (more / "config.json", other)):
            file.write_text(json.dumps({**config, "audit": config["audit"] | changes}))
        recorded.add(more, first)
        return json.loads((first / "config.json").read_text())["audit"]

    none, first_round = {"rounds": [], "methods": None}, {"rounds": [1], "methods": ["flat_grpo"]}
    assert audit_of_both(none, first_round)["methods"] == ["flat_grpo"]
    assert audit_of_both(first_round, none)["rounds"] == [1]
    assert audit_of_both(first_round, first_round | {"rounds": [3]})["rounds"] == [1, 3]
    with pytest.raises(UserError, match="not parts of one experiment: audit differ"):
        audit_of_both(first_round, {"rounds": [3], "methods": None})


def test_a_run_that_ended_differently_is_not_added(folders, tmp_path):
    first, _ = parts(folders, tmp_path)
    whole, _, _ = folders
    more = shutil.copytree(whole, tmp_path / "other")
    changed = next(found for found in Layout(more).find("evals") if found.keys["method"] == "flat_grpo")
    table = tables.read(changed.path, "evals")
    turned = pc.invert(table["success"])
    table = table.set_column(table.column_names.index("success"), table.schema.field("success"), turned)
    tables.write(table, changed.path, "evals", {})
    before = (first / "evals.parquet").read_bytes()
    with pytest.raises(UserError, match=r"runs/flat_grpo/.*has this table with other rows"):
        recorded.add(more, first)
    assert (first / "evals.parquet").read_bytes() == before


def test_another_experiment_is_not_added(folders, tmp_path):
    first, more = parts(folders, tmp_path)
    config = first / "config.json"
    config.write_text(config.read_text().replace('"group_size": ', '"group_size": 1'))
    with pytest.raises(UserError, match="not parts of one experiment: rollout differ"):
        recorded.add(more, first)
    with pytest.raises(UserError, match="not an experiment's folder"):
        recorded.add(more, tmp_path / "nothing")
