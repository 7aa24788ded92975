from __future__ import annotations

import re
import uuid
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.credit.tables import side, table
from turncredit.credit import credit
from turncredit.data import tables
from turncredit.data.columns import as_table, only_value
from turncredit.data.turns import SideTable, Turns, cell_stats, check_logprobs, rollout_name, thirds
from turncredit.errors import UserError

SMALL = table({"a": [[0, 1], [0, 0, 0]], "b": [[2]]}, observation=["x", "y", "x", "x", "z", "x"])


def rows(made: dict[str, list], order: list[int]) -> dict[str, list]:
    return {name: [values[place] for place in order] for name, values in made.items()}


def changed(made: dict[str, list], column: str, place: int, value: object) -> dict[str, list]:
    return {**made, column: [value if i == place else old for i, old in enumerate(made[column])]}


def test_turns_are_sorted_by_group_rollout_and_turn_and_come_back_in_the_inputs_order() -> None:
    shuffled = [4, 0, 5, 2, 1, 3]
    turns = Turns(rows(SMALL, shuffled))
    assert turns.turn_N.tolist() == [0, 1, 0, 1, 2, 0]
    assert turns.group_N.tolist() == [0, 0, 0, 0, 0, 1]
    assert turns.rollout_N.tolist() == [0, 0, 1, 1, 1, 2]
    assert turns.length_R.tolist() == [2, 3, 1]
    assert turns.size_G.tolist() == [2, 1]
    assert turns.return_R.tolist() == [1, 0, 2]
    assert turns.restore(np.arange(6)).tolist() == shuffled


@pytest.mark.parametrize("kind", ["mapping", "arrow", "pandas", "chunked"])
def test_a_table_may_be_a_mapping_an_arrow_table_or_a_frame(kind: str) -> None:
    whole = pa.table(SMALL)
    given_as = {
        "mapping": SMALL,
        "arrow": whole,
        "pandas": pd.DataFrame(SMALL),
        "chunked": pa.concat_tables([whole.slice(0, 2), whole.slice(2)]),
    }[kind]
    turns = Turns(given_as)
    assert turns.reward_N.tolist() == [0, 1, 0, 0, 0, 2]
    assert turns.codes("observation", "test").tolist() == [0, 1, 0, 0, 2, 0]


def test_the_lengths_of_lists_are_in_sorted_order_and_a_null_has_none() -> None:
    tokens = pa.array([[1, 2], None, [], [3], [4, 5, 6], [7]], pa.large_list(pa.int64()))
    shuffled = pa.table({**SMALL, "response_ids": tokens}).take([4, 0, 5, 2, 1, 3])
    assert Turns(shuffled).list_lengths("response_ids").tolist() == [2, 0, 0, 1, 3, 1]


@pytest.mark.parametrize("method", ["turn_credit", "scpo"])
def test_a_column_of_tokens_that_holds_text_is_refused(method: str) -> None:
    texts = {name: ["4 2"] * 6 for name in ("response_ids", "prompt_ids")}
    made = {**SMALL, "progress": [0.0] * 6, "success": [True] * 6, "action": ["a"] * 6, "next_observation": ["b"] * 6}
    with pytest.raises(UserError, match="must hold a list for each turn, not string"):
        credit({**made, **texts}, method)


class Lazy:
    """A lazy frame, as polars has them."""

    def collect(self) -> pa.Table:
        return pa.table(SMALL)


IDS = [str(uuid.UUID(int=number)) for number in range(2)]


def test_a_lazy_frame_is_collected() -> None:
    assert Turns(Lazy()).reward_N.tolist() == [0, 1, 0, 0, 0, 2]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", "b"]).dictionary_encode(),
        pa.array(["a", "b"], pa.string_view()),
        pa.array(["a", "b"], pa.json_()),
        pa.array(pd.Categorical(["a", "b"])),
    ],
    ids=["a dictionary", "a view", "JSON", "a category"],
)
def test_columns_of_other_programs_types_are_text_in_frames_and_in_files(column: pa.Array, tmp_path: Path) -> None:
    found = as_table(pa.table({"name": column}), "test")
    assert found["name"].type in (pa.string(), pa.large_string())
    assert found["name"].to_pylist() == ["a", "b"]
    pq.write_table(pa.table({"name": column}), tmp_path / "a.parquet")
    assert tables.read(tmp_path / "a.parquet")["name"].type in (pa.string(), pa.large_string())


def test_uuids_are_text_and_views_of_lists_are_lists() -> None:
    rows = {"id": pa.array([uuid.UUID(one).bytes for one in IDS], pa.uuid())}
    rows["ids"] = pa.array([["a"], []], pa.list_view(pa.string_view()))
    found = as_table(pa.table(rows), "test")
    assert found.to_pydict() == {"id": IDS, "ids": [["a"], []]}
    assert found["ids"].type == pa.list_(pa.string())


def test_a_column_name_twice_is_one_line(tmp_path: Path) -> None:
    twice = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])
    frame = pd.DataFrame([[1, 2]], columns=["a", "a"])
    pq.write_table(twice, tmp_path / "a.parquet")
    for given_as in (
        lambda: as_table(twice, "t"),
        lambda: as_table(frame, "t"),
        lambda: tables.read(tmp_path / "a.parquet"),
    ):
        with pytest.raises(UserError, match="two columns are called 'a'; give each a name of its own"):
            given_as()


def test_ids_may_be_whole_numbers_and_then_sort_as_numbers() -> None:
    made = {"group_id": [1, 1, 1], "rollout_id": [10, 9, 9], "turn": [0, 1, 0], "reward": [5, 1, 2]}
    assert Turns(made).return_R.tolist() == [3, 5]


def test_a_discounted_sum_takes_a_decay_for_each_turn() -> None:
    turns = Turns(
        {"group_id": ["g"] * 4, "rollout_id": ["a", "a", "a", "b"], "turn": [0, 1, 2, 0], "reward": [0.0] * 4}
    )
    got = turns.discounted_sum_N(np.array([1.0, 10.0, 100.0, 7.0]), np.array([0.5, 0.0, 9.0, 9.0]))
    assert got.tolist() == [6, 10, 100, 7]


def test_step_returns_are_discounted_sums_to_the_end_of_the_rollout() -> None:
    turns = Turns(table({"g": [[1, 2, 4], [8], [0, 1]]}))
    assert turns.step_return_N(0.5).tolist() == [3, 4, 4, 8, 0.5, 1]
    assert turns.step_return_N(1.0).tolist() == [7, 6, 4, 8, 1, 1]
    assert turns.step_return_N(0.0).tolist() == turns.reward_N.tolist()


def test_neighbours_stop_at_the_ends_of_a_rollout() -> None:
    turns = Turns(SMALL)
    x_N = np.arange(6.0)
    assert turns.next_N(x_N, -1.0).tolist() == [1, -1, 3, 4, -1, -1]
    assert turns.next_N(x_N, np.array([7.0, 8.0, 9.0])).tolist() == [1, 7, 3, 4, 8, 9]
    assert turns.previous_N(x_N, -1.0).tolist() == [-1, 0, -1, 2, 3, -1]


def test_a_group_is_dead_where_returns_are_equal_but_for_rounding() -> None:
    made = table({"a": [[0.1, 0.2], [0.3]], "b": [[0.3], [0.31]], "c": [[0, 0], [0]], "d": [[1]], "e": [[0], [1e-12]]})
    assert Turns(made).dead_G.tolist() == [True, False, True, True, False]
    assert Turns(table({"taken back": [[0.1, 0.2, -0.3], [0]]})).dead_G.tolist() == [True]


def test_a_return_is_above_a_level_by_more_than_rounding() -> None:
    turns = Turns(table({"g": [[0.1, 0.2], [0.3], [0.31], [1e-12], [0.1, 0.2, -0.3], [0]]}))
    assert turns.above_R(0.3).tolist() == [False, False, True, False, False, False]
    assert turns.above_R(0).tolist() == [True, True, True, True, False, False]


def test_group_statistics_count_rollouts_once_and_row_statistics_count_turns() -> None:
    turns = Turns(SMALL)
    assert turns.stats_G(turns.return_R).mean_C.tolist() == [0.5, 2]
    assert turns.row_stats_G(turns.return_R[turns.rollout_N]).mean_C.tolist() == pytest.approx([0.4, 2])
    assert turns.sum_G(turns.return_R).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("length", "expected"),
    [(1, [1]), (2, [0, 2]), (3, [0, 1, 2]), (4, [0, 1, 1, 2]), (6, [0, 0, 1, 1, 2, 2]), (7, [0, 0, 1, 1, 1, 2, 2])],
)
def test_a_turn_is_of_the_third_in_which_its_middle_lies(length: int, expected: list[int]) -> None:
    assert thirds(np.arange(length), length).tolist() == expected


def test_a_rollout_is_named_with_its_group_unless_its_own_id_begins_so() -> None:
    found = [rollout_name("a", rollout) for rollout in ("a/1", "a1", "1")]
    assert found == ["a/1", "a/a1", "a/1"]


@pytest.mark.parametrize("lists", [[[-1.0, -1.0], [0.5]], [[], [-1.0], [-1.0, 0.5]], [[0.5, -1.0], [-1.0]]])
def test_a_log_probability_above_0_is_told_with_its_turn_but_for_rounding(lists: list[list[float]]) -> None:
    of = next(turn for turn, own in enumerate(lists) if 0.5 in own)
    keys = {"group_id": ["g"] * len(lists), "rollout_id": ["r"] * len(lists), "turn": range(len(lists))}
    rounded = [[5e-4 if one > 0 else one for one in own] for own in lists]
    check_logprobs(pa.table({**keys, "response_logprobs": pa.array(rounded, pa.list_(pa.float64()))}), "turns")
    with pytest.raises(UserError, match=rf"log-probability is 0.5 at .*, turn {of} \(1 such"):
        check_logprobs(pa.table({**keys, "response_logprobs": pa.array(lists, pa.list_(pa.float64()))}), "turns")


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.floats(-1e3, 1e3)), min_size=1, max_size=30), st.integers(0, 1))
def test_cell_statistics_are_numpys(pairs: list[tuple[int, float]], ddof: int) -> None:
    cell, x = np.array([c for c, _ in pairs]), np.array([v for _, v in pairs])
    stats = cell_stats(x, cell, 4, ddof)
    for c in range(4):
        mine = x[cell == c]
        assert stats.count_C[c] == len(mine)
        assert stats.mean_C[c] == pytest.approx(mine.mean() if len(mine) else 0.0, abs=1e-9)
        assert stats.std_C[c] == pytest.approx(mine.std(ddof=ddof) if len(mine) > ddof else 0.0, abs=1e-9)


@settings(deadline=None)
@given(st.floats(-1e6, 1e6), st.integers(2, 9))
def test_a_cell_of_equal_values_deviates_by_exactly_nothing(value: float, count: int) -> None:
    stats = cell_stats(np.full(count, value), np.zeros(count, dtype=int), 1)
    assert stats.mean_C[0] == value
    assert stats.std_C[0] == 0


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ({k: v for k, v in SMALL.items() if k != "reward"}, "every method needs the column 'reward'"),
        ({("rewrd" if k == "reward" else k): v for k, v in SMALL.items()}, "did you mean 'rewrd'?"),
        ({("re\nwrd" if k == "reward" else k): v for k, v in SMALL.items()}, "did you mean 're wrd'?"),
        ({("\rx\n" if k == "reward" else k): v for k, v in SMALL.items()}, "; it has "),
        ({k: [] for k in SMALL}, "the table has no rows"),
        (rows(SMALL, [0, 1, 1, 2, 3, 4, 5]), "duplicate key: group 'a', rollout 'a0', turn 1"),
        (rows(SMALL, [0, 1, 2, 4, 5]), "group 'a', rollout 'a1' has no turn 1 (its next one is 2)"),
        (rows(SMALL, [1, 2, 3, 4, 5]), "group 'a', rollout 'a0' has no turn 0"),
        (changed(SMALL, "reward", 3, float("nan")), "column 'reward' is nan at group 'a', rollout 'a1', turn 1"),
        (changed(SMALL, "reward", 5, float("inf")), "column 'reward' is inf at group 'b', rollout 'b0', turn 0"),
        (changed(SMALL, "reward", 0, None), "needs the column 'reward', which has 1 null values"),
        (changed(SMALL, "group_id", 0, None), "needs the column 'group_id', which has 1 null values"),
        (changed(SMALL, "rollout_id", 5, "a0"), "rollout 'a0' is in more than one group (a, b)"),
        (changed(SMALL, "turn", 0, -1), "found turn -1"),
        ({**SMALL, "turn": ["0", "one", "0", "1", "2", "0"]}, "the column 'turn' must hold whole numbers"),
        ({**SMALL, "turn": [0.0, 1.5, 0, 1, 2, 0]}, "the column 'turn' must hold whole numbers"),
        ({**SMALL, "reward": ["0", "1", "0", "0", "0", "x"]}, "the column 'reward' must hold numbers"),
    ],
)
def test_a_table_that_is_not_one_of_turns_is_told_in_one_line(made: dict, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)) as caught:
        Turns(made)
    assert not re.search(r"[\r\n]", str(caught.value))


def test_the_distinct_texts_of_a_column_are_strings_and_its_codes_their_places() -> None:
    code_N, texts = Turns(SMALL).texts("observation", "test")
    assert texts == ["x", "y", "z"]
    assert [texts[code] for code in code_N] == SMALL["observation"]
    assert type(texts[0]) is str


def test_a_missing_column_names_the_method_and_the_nearest_column() -> None:
    with pytest.raises(UserError, match=r"gigpo needs the column 'observations'.*did you mean 'observation'"):
        Turns(SMALL).column("observations", "gigpo")


def test_who_reads_a_column_need_not_be_named() -> None:
    turns = Turns(SMALL, {"labels": side(SMALL, role=["x"] * 6, score=range(6))})
    labels = turns.side["labels"]
    assert turns.numbers("reward").tolist() == turns.reward_N.tolist()
    assert labels.numbers("score").tolist() == [0, 1, 2, 3, 4, 5]
    readers = (turns.numbers, turns.truths, turns.column, turns.codes, turns.texts)
    for read in (*readers, labels.numbers, labels.column, labels.texts):
        with pytest.raises(UserError, match="this method needs the column 'gaol'"):
            read("gaol")


def test_a_side_table_is_matched_by_key_whatever_its_order_and_its_id_types() -> None:
    made = {"group_id": [1, 1, 2], "rollout_id": [3, 3, 4], "turn": [0, 1, 0], "reward": [0, 0, 1]}
    labels = {
        "group_id": ["2", "1", "9", "1"],
        "rollout_id": ["4", "3", "9", "3"],
        "turn": [0, 1, 0, 0],
        "score": [20.0, 11.0, 99.0, 10.0],
    }
    turns = Turns(made, {"labels": labels})
    assert turns.side["labels"].numbers("score", "test").tolist() == [10, 11, 20]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (rows(side(SMALL, score=range(6)), [0, 1, 2, 3, 5]), "labels: no row for group 'a', rollout 'a1', turn 2"),
        (rows(side(SMALL, score=range(6)), [0, 1, 1, 2, 3, 4, 5]), "labels: duplicate key: group_id 'a'"),
        (side(SMALL, scor=range(6)), "needs the column 'score'"),
        ({"turn": [0]}, "needs the column 'group_id'"),
        (side(SMALL, score=[0, 1, None, 3, 4, 5]), "has 1 null values"),
    ],
)
def test_a_side_table_that_does_not_fit_is_told_in_one_line(labels: dict, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        Turns(SMALL, {"labels": labels}).side["labels"].numbers("score", "test")


def test_a_column_that_must_be_one_value_names_those_that_are_there():
    rows = pa.table({"temperature": [1.0, 1.0, 0.4]})
    assert only_value(rows.slice(0, 2), "temperature", "turns.parquet", "branching") == 1.0
    with pytest.raises(UserError, match=r"branching needs .* one temperature; .* has 2 values \(1.0, 0.4\)"):
        only_value(rows, "temperature", "turns.parquet", "branching")
    with pytest.raises(UserError, match="the table has no rows"):
        only_value(rows.slice(0, 0), "temperature", "turns.parquet", "branching")


def test_a_row_of_no_turn_is_never_another_rollouts_turn() -> None:
    two = table({"a": [[0, 1], [0, 0]]})
    labels = {**changed(side(two, score=range(4)), "turn", 1, -1), "rollout_id": ["a0", "a1", "a1", "a1"]}
    with pytest.raises(UserError, match=r"labels: turn numbers must run .* found turn -1"):
        Turns(two, {"labels": labels}).side["labels"].numbers("score", "test")


def test_a_partial_side_table_says_which_turns_have_a_row() -> None:
    labels = rows(side(SMALL, score=range(6), role=["x", None, "y", "x", "y", "x"]), [4, 1, 0])
    partial = SideTable(Turns(SMALL), labels, "labels", partial=True)
    whole = SideTable(Turns(SMALL), side(SMALL, score=range(6)), "labels").numbers("score").tolist()
    has = [score in (0, 1, 4) for score in whole]
    assert partial.has_N.tolist() == has
    np.testing.assert_array_equal(partial.numbers("score"), np.where(has, whole, np.nan))
    codes, names = partial.texts("role")
    assert [names[code] if there else code for code, there in zip(codes, has, strict=True)] == [
        {0: "x", 1: None, 4: "y"}.get(score, -1) for score in whole
    ]
    with pytest.raises(UserError, match="duplicate key"):
        _ = SideTable(Turns(SMALL), rows(labels, [0, 0]), "labels", partial=True).row_N


# ---------------------------------------------------------------- measures beside the turns

MEASURED = {"progress_before": [0.0, 0.5, 0.0], "progress": [0.5, 1.0, 0.0]}


@given(st.permutations(range(3)), st.permutations(range(3)))
def test_a_column_of_the_measures_beside_the_turns_is_the_tables_own(rows: list[int], others: list[int]) -> None:
    keys = {"group_id": ["a", "a", "b"], "rollout_id": ["x", "x", "y"], "turn": [0, 1, 0]}
    whole = pa.table({**keys, "reward": [0.0, 1.0, 0.0], **MEASURED})
    turns, measures = whole.select([*keys, "reward"]).take(rows), whole.select([*keys, *MEASURED]).take(others)
    view, expected = Turns(turns, {"measures": measures}), Turns(whole.take(rows))
    assert view.table.equals(expected.table)
    for name in MEASURED:
        assert view.has(name)
        assert view.numbers(name, "a test").tolist() == expected.numbers(name, "a test").tolist()


def test_a_column_that_the_turns_have_themselves_is_not_replaced_by_the_measures() -> None:
    keys = {"group_id": ["a"], "rollout_id": ["x"], "turn": [0]}
    view = Turns(
        {**keys, "reward": [1.0], "progress": [0.25]}, {"measures": {**keys, "progress": [1.0], "distance": [3]}}
    )
    assert view.numbers("progress", "a test").tolist() == [0.25]
    assert view.numbers("distance", "a test").tolist() == [3.0]
    assert not Turns({**keys, "reward": [1.0]}, {"labels": {**keys, "progress": [1.0]}}).has("progress")


def test_measures_that_lack_a_turn_are_told_in_one_line() -> None:
    keys = {"group_id": ["a", "a"], "rollout_id": ["x", "x"], "turn": [0, 1]}
    short = {name: values[:1] for name, values in {**keys, "progress": [0.5, 1.0]}.items()}
    with pytest.raises(UserError, match=r"^measures: no row for group 'a', rollout 'x', turn 1 \(1 turn without one\)"):
        Turns({**keys, "reward": [0.0, 1.0]}, {"measures": short})
