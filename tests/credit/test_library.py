"""`from turncredit import credit`: a method on a table in memory, of whichever kind."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.credit import synthetic
from tests.credit.tables import table as turns_of
from turncredit import credit
from turncredit.cli.main import main
from turncredit.credit import METHODS
from turncredit.data import tables
from turncredit.errors import UserError


@pytest.fixture(scope="module")
def made() -> tuple[pa.Table, dict[str, pa.Table]]:
    return synthetic.tables(synthetic.rows(3, 3, 6, seed=2)[::-1])


class WithStringViews:
    """A frame that hands itself over as polars does: by Arrow's stream, with string views."""

    def __init__(self, table: pa.Table) -> None:
        text = [f.with_type(pa.string_view()) if f.type == pa.string() else f for f in table.schema]
        self.table = table.cast(pa.schema(text))

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)


def as_polars(table: pa.Table) -> Any:
    return pytest.importorskip("polars", reason="polars is not a dependency").from_arrow(table)


KINDS = {
    "pandas": lambda table: table.to_pandas(),
    "polars": as_polars,
    "string views": WithStringViews,
    "duckdb": duckdb.from_arrow,
    "dict of lists": lambda table: table.to_pydict(),
}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_of_table_gets_the_same_credit_as_arrow(kind: str, made: Any) -> None:
    columns = ["group_id", "rollout_id", "turn", "reward", "observation", "action", "next_observation", "success"]
    table = made[0].select(columns)
    expected = credit(table, method="scpo", order="chronological")
    assert len(np.unique(expected["advantage"])) > 3
    made_of = credit(KINDS[kind](table), method="scpo", order="chronological")
    assert made_of.to_pydict() == expected.to_pydict()


def test_a_row_of_the_result_is_about_the_same_row_of_the_input(made: Any) -> None:
    frame = made[0].to_pandas().sample(frac=1, random_state=3)
    straight = credit(made[0], "gigpo").to_pandas().set_index(list(tables.KEYS))["advantage"]
    mixed = credit(frame, "gigpo")["advantage"].to_numpy()
    assert mixed == pytest.approx(straight.loc[[tuple(row) for row in frame[list(tables.KEYS)].to_numpy()]].to_numpy())


@pytest.mark.parametrize("name", ["flat_grpo", "hgpo", "random_credit", "scpo", "triage", "turn_value"])
def test_it_is_what_the_command_writes(name: str, made: Any, tmp_path: Any, monkeypatch: Any) -> None:
    turns, side = made
    pq.write_table(turns, tmp_path / "turns.parquet")
    needed = {need: side[need] for need in METHODS[name].needs}
    arguments = ["credit", "--method", name, "--turns", "turns.parquet", "--out", "out.parquet", "--preset", "trl"]
    for need, table in needed.items():
        pq.write_table(table, tmp_path / f"{need}.parquet")
        arguments += [f"--{need}", f"{need}.parquet"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["turncredit", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    written = tables.read(tmp_path / "out.parquet")
    ours = credit(turns, name, preset="trl", **needed)
    assert sorted(ours.column_names) == sorted(written.column_names)
    assert ours["advantage"].equals(written["advantage"])


def test_parameters_and_presets_are_set_by_name(made: Any) -> None:
    plain, set_, preset = (
        credit(made[0], "gigpo", **more)["advantage"] for more in ({}, {"omega": 0.1}, {"preset": "trl"})
    )
    assert not plain.equals(set_)
    assert not plain.equals(preset)
    composed = credit(made[0], "flat_grpo", estimator="gigpo")["advantage"]
    assert composed.equals(plain)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "gigp"}, r"unknown method 'gigp' \(did you mean 'gigpo'\?\)"),
        ({"method": "triage"}, "triage needs labels; give a table with credit"),
        ({"omgea": 1}, r"no parameter 'omgea' \(did you mean 'omega'\?\)"),
        ({"preset": "tlr"}, r"unknown preset 'tlr' \(did you mean 'trl'\?\)"),
    ],
)
def test_a_mistake_is_one_line(arguments: dict[str, Any], message: str, made: Any) -> None:
    with pytest.raises(UserError, match=message) as raised:
        credit(made[0], **{"method": "gigpo", **arguments})
    assert "\n" not in str(raised.value)


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(UserError, match="turns: cannot be read as a table of columns"):
        credit(7, "gigpo")


def test_it_imports_no_torch_and_the_package_alone_imports_nothing() -> None:
    code = (
        "import sys, turncredit; assert 'pyarrow' not in sys.modules and 'turncredit.credit' not in sys.modules\n"
        "turns = dict(group_id=['a', 'a'], rollout_id=['x', 'y'], turn=[0, 0], reward=[0.0, 1.0])\n"
        "print(turncredit.credit(turns, 'flat_grpo', norm='mean')['advantage'].to_pylist())\n"
        "assert not {'torch', 'transformers', 'mlflow', 'snakemake'} & set(sys.modules), 'heavy'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[-0.5, 0.5]"


def test_its_signature_is_the_functions() -> None:
    assert (
        inspect.signature(type(credit).__call__).parameters.keys() == inspect.signature(credit.credit).parameters.keys()
    )


def test_a_function_in_memory_is_a_method(made: Any) -> None:
    def shorter(turns: Any, *, scale: float = 1.0) -> np.ndarray:
        """Less for later turns."""
        return -scale * turns.turn_N

    table = credit(made[0], shorter, scale=2.0)
    assert table["advantage"].to_pylist() == [-2.0 * turn for turn in made[0]["turn"].to_pylist()]
    assert set(table["method"].to_pylist()) == {"shorter"}

    def broken(turns: Any) -> np.ndarray:
        return turns.nothing

    with pytest.raises(UserError, match=r"test_library\.py:\d+: broken: AttributeError"):
        credit(made[0], broken)


def test_a_path_is_refused_with_how_to_read_it() -> None:
    with pytest.raises(
        UserError, match=r"turns: a path is not a table; read it first, as with .*read_table\('a.parquet"
    ):
        credit("a.parquet", "gigpo")


def test_a_list_of_rows_is_refused_with_how_to_make_columns_of_it() -> None:
    with pytest.raises(UserError, match=r"a list of rows is not a table of columns; give .* pandas.DataFrame\(rows\)"):
        credit([{"group_id": "a", "rollout_id": "x", "turn": 0, "reward": 1.0}], "gigpo")


@pytest.mark.parametrize("method", ["scpo", "mgr_no_critic"])
def test_which_rollouts_succeeded_is_not_guessed_from_graded_returns(method: str, made: Any) -> None:
    table = made[0].drop_columns("success")
    assert credit(table, method).num_rows == table.num_rows, "returns of 0 and 1"
    graded = np.where(table["reward"].to_numpy() > 0, 0.3 + 0.1 * np.arange(table.num_rows), 0.0)
    graded = table.set_column(table.column_names.index("reward"), "reward", pa.array(graded))
    with pytest.raises(UserError, match=r"no column 'success', and the returns are graded .* success_above") as raised:
        credit(graded, method)
    assert "\n" not in str(raised.value)
    assert credit(graded, method, success_above=0.5).num_rows == table.num_rows
    won = made[0]["success"]
    assert credit(graded.append_column("success", won), method).num_rows == table.num_rows


def test_a_return_that_is_above_the_mark_by_rounding_alone_is_no_success() -> None:
    """.1 + .2 - .3 is above 0 in floating point, and .1 + .2 above .3."""
    names = {"action": ["go"] * 6, "next_observation": ["You go."] * 6}
    taken_back = turns_of({"g": [[0.1, 0.2, -0.3], [0, 0, 0]]}, **names)
    assert not credit(taken_back, "mgr_no_critic")["outcome"].to_numpy().any(), "a group without a success"
    one_won = turns_of({"g": [[0.1, 0.2, -0.3], [0, 0, 1]]}, **names)
    assert credit(one_won, "mgr_no_critic")["outcome"].to_pylist() == [-1.0] * 3 + [1.0] * 3
    at_the_mark = turns_of({"g": [[0.1, 0.2, 0], [0, 0, 0.3]]}, **names)
    assert not credit(at_the_mark, "mgr_no_critic", success_above=0.3)["outcome"].to_numpy().any()


def test_returns_that_differ_by_rounding_alone_are_not_graded_and_any_turn_of_a_rollout_tells_its_success() -> None:
    names = {"action": ["go"] * 6, "next_observation": ["You go."] * 6}
    turns = turns_of({"g": [[0.1, 0.2], [0, 0.3], [0, 0]]}, **names)
    two_of_three = pytest.approx([0.5] * 4 + [-1] * 2)  # 3/2 of success less its mean
    assert credit(turns, "mgr_no_critic")["outcome"].to_pylist() == two_of_three
    won = {**turns, "success": [True, False, False, True, False, False]}
    assert credit(won, "mgr_no_critic")["outcome"].to_pylist() == two_of_three
