"""Turns, input tokens and subgoals in the report: against a table worked out by hand, and against rebuilt contexts."""

from __future__ import annotations

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import planning
from tests.helpers import nonempty
from tests.results import synthetic
from tests.rows import MADE_BY, turn_row
from turncredit.config.layout import Layout
from turncredit.credit import METHODS, compute
from turncredit.data import tables
from turncredit.data.turns import Turns
from turncredit.training.sequences import cut
from turncredit.views.collect import collect
from turncredit.views.report import report as module
from turncredit.views.report.contexts import context_curves, context_grids, read_contexts, turns_sql
from turncredit.views.report.grid import Grid
from turncredit.views.sql import answer

pytestmark = pytest.mark.slow


def turn(rollout: str, number: int, *, reset: bool, prompt: int, response: int, **columns) -> dict:
    row = turn_row("g", rollout, number, length=3, success=False)
    tokens = {"prompt_ids": [1] * prompt, "response_ids": [2] * response, "response_logprobs": [-0.5] * response}
    return row | tokens | {"context_reset": reset, "failed": False, "error_reply": False} | columns


def planned(rollout: str, number: int, subgoal: str, index: int, **columns) -> dict:
    own = {"subgoal": subgoal, "subgoal_index": index, "completed": False, "reflection": "", "fault": ""}
    own |= {"folded_tokens": 0, "prompt_tokens": 0, "truncated_tokens": 0, "agent": "hipif"}
    return turn(rollout, number, **(own | columns))


#: contexts of 10, 17 and 12 tokens, then of 10: prompts of 25 and 10. Subgoals of 2, 1 and 1 turns.
BY_HAND = [
    planned("g#0", 0, "find a mug", 0, reset=True, prompt=10, response=4),
    planned("g#0", 1, "find a mug", 0, reset=False, prompt=3, response=5, fault="no action", well_formed=False),
    planned("g#0", 2, "clean the mug", 1, reset=True, prompt=12, response=2, folded_tokens=7, truncated_tokens=5),
    planned("g#1", 0, "find a shelf", 0, reset=True, prompt=10, response=6),
]
#: contexts of 8 and 8 + 1 + 4 tokens
APPENDED = [turn("g#0", 0, reset=True, prompt=8, response=1), turn("g#0", 1, reset=False, prompt=4, response=1)]


def folder_of(root, rows: dict[str, list[dict]], seeds=(0,)):
    """A finished experiment whose runs learned from these rows, in its single round."""
    define = {name: {"base": "hipif", "rollout": {"temperature": 0.5}} for name in rows if name != "flat_grpo"}
    config = synthetic.experiment(methods=list(rows), seeds=seeds, rounds=1, games=6, define=define)
    folder = synthetic.make(root, config, turns=False)
    layout = Layout(folder)
    for method, seed in config.runs():
        keys = synthetic.sampled(config, method, seed, 1)
        with_subgoals = "subgoal" in rows[method][0]
        schema = tables.schema("turns")
        table = planning.table(rows[method]) if with_subgoals else pa.Table.from_pylist(rows[method], schema=schema)
        tables.write(table, layout.path("turns", keys), "turns", MADE_BY)
        credit = compute(Turns(table), METHODS["hipif" if with_subgoals else "flat_grpo"], seed=0)
        tables.write(credit, layout.path("credits", keys, method=method), "credits", MADE_BY)
    return folder, config


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory):
    return folder_of(tmp_path_factory.mktemp("hand"), {"flat_grpo": APPENDED, "hipif": BY_HAND})


def grids_of(folder) -> dict[str, Grid]:
    results = collect(folder)
    return {grid.name: grid for grid in context_grids(results, results.methods, read_contexts(results.layout))}


def values(grid: Grid, row: str) -> dict:
    return {key: getattr(cell, "value", cell) for key, cell in grid.rows[row].items()}


def test_the_numbers_of_a_small_table_are_those_worked_out_by_hand(by_hand):
    found = grids_of(by_hand[0])
    assert values(found["contexts"], "hipif") == {
        "agent": "hipif",
        "turns": 2.0,
        "context": (10 + 17 + 12 + 10) / 2,
        "context_turn": (10 + 17 + 12 + 10) / 4,
        "prefilled": (10 + 3 + 12 + 10) / 2,
        "well_formed": 0.75,
        "truncated": 1.25,
    }
    assert values(found["contexts"], "flat_grpo") == {
        "agent": "transcript",
        "turns": 2.0,
        "context": 8 + 13,
        "context_turn": (8 + 13) / 2,
        "prefilled": 12.0,
        "well_formed": 1.0,
    }
    # "clean" is a verb and "mug" has been seen; "find a shelf" names the shelf of the first observation.
    charged = {"r_grounding": 0.0, "r_termination": 0.0, "r_execution": 0.0, "r_format": 0.25}
    assert values(found["subgoals"], "hipif") == {
        "subgoals": 1.5, "turns_per_subgoal": 4 / 3, "folded": 1.75, **charged,
    }  # fmt: skip
    assert "flat_grpo" not in found["subgoals"].rows
    assert values(found["faults"], "hipif") == {"no action": 0.25}


def test_every_query_of_contexts_gives_its_number_and_names_its_files(by_hand):
    folder, _ = by_hand
    cells = [cell for grid in grids_of(folder).values() for row in grid.rows.values() for cell in row.values()]
    for cell in nonempty(cell for cell in cells if not isinstance(cell, str)):
        assert answer(cell.sql, folder.parent).column(0)[0].as_py() == pytest.approx(cell.value, abs=1e-12), cell.sql
        for path in cell.path.split():
            assert list(folder.glob(path)), path


def test_context_tokens_turn_by_turn_are_means_over_the_rollouts_that_have_the_turn(by_hand):
    contexts = read_contexts(Layout(by_hand[0]))
    curves = context_curves(contexts, {"hipif": [0], "flat_grpo": [0]})
    by_method = {name: rows["tokens"].tolist() for name, rows in curves.groupby("method")}
    assert by_method == {"hipif": [10.0, 17.0, 12.0], "flat_grpo": [8.0, 13.0]}


def test_a_line_ends_where_fewer_than_one_rollout_in_ten_goes_on():
    rows = {"method": "a", "seed": 0, "turn": [0, 1, 2], "rollouts": [40, 4, 3], "context": [400, 80, 90]}
    assert context_curves(type("C", (), {"turns": pd.DataFrame(rows)}), {"a": [0]})["turn"].tolist() == [0, 1]


def test_with_several_seeds_a_number_is_the_mean_of_the_seeds_and_equal_seeds_have_no_interval(tmp_path):
    folder, config = folder_of(tmp_path, {"flat_grpo": APPENDED, "hipif": BY_HAND}, seeds=(0, 1))
    assert grids_of(folder)["contexts"].rows["hipif"]["turns"].interval == ""
    short = planning.table(BY_HAND[:3])
    keys = synthetic.sampled(config, "hipif", 1, 1)
    tables.write(short, Layout(folder).path("turns", keys), "turns", MADE_BY)
    turns = grids_of(folder)["contexts"].rows["hipif"]["turns"]
    assert turns.value == (2 + 3) / 2
    assert turns.low < 2
    assert turns.high > 3
    assert "seeds only" in turns.note


def test_a_number_rests_on_the_rollouts_of_the_seeds_that_have_it(tmp_path):
    folder, _ = folder_of(tmp_path, {"flat_grpo": APPENDED, "hipif": BY_HAND}, seeds=(0, 1))
    results = collect(folder)
    found = read_contexts(results.layout)
    both = context_grids(results, results.methods, found)[0].rows["hipif"]["turns"]
    found.read.by_seed.loc[found.read.by_seed["seed"] == 1, "turns"] = np.nan
    one = context_grids(results, results.methods, found)[0].rows["hipif"]["turns"]
    assert both.n == 2 * one.n
    assert one.note.startswith(f"n: {one.n} rollouts, 1 seed;")


def test_an_experiment_with_one_agent_without_subgoals_has_none_of_it(finished, tmp_path):
    assert read_contexts(Layout(finished)) is None
    folder, config = folder_of(tmp_path, {"flat_grpo": APPENDED})
    module.report(experiment=config, results=folder, out=tmp_path / "out")
    assert 'id="reads"' not in (tmp_path / "out/index.html").read_text()


def test_the_page_shows_the_figures_and_tables_of_several_agents(by_hand, tmp_path):
    folder, config = by_hand
    module.report(experiment=config, results=folder, out=tmp_path)
    html = (tmp_path / "index.html").read_text()
    for part in ('id="reads"', 'id="contexts"', 'id="subgoals"', 'aria-label="Context tokens turn by turn, by method"'):
        assert html.count(part) == 1
    assert "Training rollouts of rounds 1 to 1" in html


def test_a_first_subgoal_counts_where_it_comes_late(tmp_path):
    late = [planned("g#0", 0, "", 0, reset=True, prompt=1, response=1)]
    late += [planned("g#0", turn, "find a mug", 0, reset=True, prompt=1, response=1) for turn in (1, 2)]
    folder, _ = folder_of(tmp_path, {"flat_grpo": APPENDED, "hipif": late})
    found = values(grids_of(folder)["subgoals"], "hipif")
    assert (found["subgoals"], found["turns_per_subgoal"]) == (1.0, 2.0)


# Against contexts that training rebuilds -----------------------------------------------------------------------------

TURN = st.tuples(st.booleans(), st.integers(0, 6), st.integers(1, 5))


@given(st.lists(st.lists(TURN, min_size=1, max_size=8), min_size=1, max_size=4))
def test_context_tokens_are_the_lengths_of_the_contexts_that_training_rebuilds(rollouts):
    rows, rollout_N = [], []
    for name, turns in enumerate(rollouts):
        for number, (reset, prompt, response) in enumerate(turns):
            row = turn(f"g#{name}", number, reset=reset or number == 0, prompt=prompt, response=response)
            rows.append({"experiment": "x", "policy": "p", "seed": 0, "round": 1} | row)
            rollout_N.append(name)
    sequences = cut(
        rollout_N,
        [row["context_reset"] for row in rows],
        [np.array(row["prompt_ids"]) for row in rows],
        [np.array(row["response_ids"]) for row in rows],
        [np.array(row["response_logprobs"]) for row in rows],
    )
    read_N = {int(row): int(np.argmax(s.turn == row)) for s in sequences for row in np.unique(s.turn[s.turn >= 0])}
    connection = duckdb.connect()
    connection.register("turns", pa.Table.from_pylist(rows))
    found = connection.execute(f"SELECT context, prefilled FROM ({turns_sql('x', [])}) ORDER BY rollout_id, turn")
    context_N, prefilled_N = zip(*found.fetchall(), strict=True)
    assert list(context_N) == [read_N[row] for row in range(len(rows))]
    # Nothing is read twice within a context, so new tokens and responses make up what training reads.
    written = sum(len(row["response_ids"]) for row in rows)
    assert sum(prefilled_N) + written == sum(len(sequence.ids) for sequence in sequences)


def test_the_synthetic_turns_count_their_context_as_the_report_does():
    rows = planning.rollout("g", "g#0", [("find a mug", 3), ("clean it", 1), ("put it away", 4)], success=True)
    connection = duckdb.connect()
    where = {"experiment": "x", "policy": "p", "seed": 0, "round": 1}
    connection.register("turns", pa.Table.from_pylist([where | row for row in rows]))
    found = connection.execute(f"SELECT context FROM ({turns_sql('x', [])}) ORDER BY turn").fetchall()
    assert [context for (context,) in found] == [row["prompt_tokens"] for row in rows]
