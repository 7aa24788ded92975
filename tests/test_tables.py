"""Tables: whole or not at all, and never of another shape than their schema says."""

from __future__ import annotations

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from turncredit import __version__
from turncredit.data import provenance, tables
from turncredit.data.credits import credit_names


def credits(**changes):
    columns = {
        "group_id": pa.array(["g"]),
        "rollout_id": pa.array(["r"]),
        "turn": pa.array([0], pa.int32()),
        "method": pa.array(["m"]),
        "advantage": pa.array([1.5]),
    }
    columns.update(changes)
    return pa.table({name: column for name, column in columns.items() if column is not None})


def test_a_table_comes_back_as_written_with_its_making(tmp_path):
    path = tmp_path / "a" / "credits.parquet"
    made_by = provenance.record("credit", config={"b": 1, "a": 2}, inputs={"x": __file__}, seed=7)
    tables.write(credits(component=pa.array([0.25])), path, "credits", made_by)
    back = tables.read(path, "credits")
    assert back.column("component").to_pylist() == [0.25]
    meta = tables.metadata(path)
    assert (meta["schema"], meta["schema_version"], meta["stage"], meta["seed"]) == ("credits", 1, "credit", 7)
    assert meta["inputs"]["x"] == provenance.file_hash(__file__)
    assert meta["code"].startswith(__version__)


def test_the_same_content_gives_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        tables.write(credits(), tmp_path / name, "credits", provenance.record("credit", config={"a": 1}))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"advantage": None}, "needs the column 'advantage', which is missing"),
        ({"advantage": None, "advantages": pa.array([1.0])}, r"missing \(did you mean 'advantages'\?\)"),
        ({"advantage": pa.array(["much"])}, "column 'advantage' is not double"),
        ({"advantage": pa.array([None], pa.float64())}, "column 'advantage' has 1 null values"),
    ],
)
def test_a_table_that_breaks_its_schema_is_refused_and_leaves_nothing(tmp_path, changes, message):
    with pytest.raises(tables.TableError, match=message):
        tables.write(credits(**changes), tmp_path / "credits.parquet", "credits", provenance.record("credit"))
    assert list(tmp_path.iterdir()) == []


def test_a_failing_write_leaves_the_old_table(tmp_path, monkeypatch):
    path = tmp_path / "credits.parquet"
    tables.write(credits(), path, "credits", provenance.record("credit"))
    before = path.read_bytes()

    def torn(_, where, **__):
        where.write_bytes(b"PAR1 half")
        raise OSError("no space left on device")

    monkeypatch.setattr(pq, "write_table", torn)
    with pytest.raises(OSError, match="no space"):
        tables.write(credits(), path, "credits", provenance.record("credit"))
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["credits.parquet"]


def test_json_given_as_a_table_is_told_to_be_imported(tmp_path):
    path = tmp_path / "logs.jsonl"
    path.write_text('{"messages": []}\n')
    with pytest.raises(tables.TableError, match=r"JSON, not Parquet; `turncredit import .*logs\.jsonl --out turns"):
        tables.read(path, "turns")


def test_missing_truncated_and_foreign_files_are_named_with_what_to_do(tmp_path):
    path = tmp_path / "turns.parquet"
    with pytest.raises(tables.TableError, match=r"turns\.parquet: no such file; check the path, or ask Snakemake"):
        tables.read(path, "turns")
    tables.write(credits(), path, "credits", provenance.record("credit"))
    with pytest.raises(tables.TableError, match="this is a 'credits' table, not a 'turns' table"):
        tables.read(path, "turns")
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(tables.TableError, match=r"not a readable Parquet file .* if a stage wrote it, delete it"):
        tables.read(path, "credits")
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(tables.TableError, match="needs the column 'group_id'"):
        tables.read(path, "credits")


def test_a_table_of_another_schema_version_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "credits.parquet"
    tables.write(credits(), path, "credits", provenance.record("credit"))
    version, schema, extra = tables.SCHEMAS["credits"]
    monkeypatch.setitem(tables.SCHEMAS, "credits", (version + 1, schema, extra))
    with pytest.raises(tables.TableError, match="schema version 1 of 'credits', but this version"):
        tables.read(path, "credits")


def test_asking_for_a_column_that_is_not_there_names_the_nearest(tmp_path):
    path = tmp_path / "credits.parquet"
    tables.write(credits(), path, "credits", provenance.record("credit"))
    with pytest.raises(tables.TableError, match=r"'advantege' is missing \(did you mean 'advantage'\?\)"):
        tables.read(path, columns=["advantege"])


def test_a_folders_hash_sees_names_and_contents(tmp_path):
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    for folder, name, text in ((one, "a", "x"), (two, "a", "x"), (three, "b", "x")):
        folder.mkdir()
        (folder / name).write_text(text)
    assert provenance.file_hash(one) == provenance.file_hash(two)
    assert provenance.file_hash(one) != provenance.file_hash(three)


def test_a_folders_hash_sees_in_which_folder_of_it_a_file_lies(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    for folder, inner in ((one, "x"), (two, "y")):
        (folder / inner).mkdir(parents=True)
        (folder / inner / "a").write_text("same")
    assert provenance.file_hash(one) != provenance.file_hash(two)


def test_a_configurations_hash_does_not_depend_on_the_order_of_its_keys():
    first, second = {"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}
    assert provenance.config_hash(first) == provenance.config_hash(second)
    assert provenance.config_hash(first) != provenance.config_hash({**first, "a": 2})


def test_tables_of_credits_of_one_method_are_called_by_their_files(tmp_path):
    """Those of a method that no other has are called by it."""
    for name, method in (("one", "gigpo"), ("two", "gigpo"), ("three", "rloo")):
        pq.write_table(credits(method=pa.array([method])), tmp_path / f"{name}.parquet")
    paths = [tmp_path / f"{name}.parquet" for name in ("one", "two", "three")]
    assert credit_names(paths) == dict(zip(("one", "two", "rloo"), paths, strict=True))


def test_a_footer_that_hides_rows_is_not_believed(tmp_path):
    path = tmp_path / "credits.parquet"
    tables.write(credits(), path, "credits", provenance.record("credit", config={}))
    whole = pq.read_table(path)
    pq.write_table(whole.slice(0, 0), path)  # with the metadata of the whole table
    with pytest.raises(tables.TableError, match="0 of its 1 rows are found"):
        tables.read(path, "credits")
