"""Continuations from every state: known values, shared random numbers, budgets, determinism, what can't be replayed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests import tiny
from tests.rollouts.walk import branched, value, walk
from turncredit.config import ContinuationsConfig
from turncredit.data import provenance, tables
from turncredit.errors import UserError
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.stages.continuations import warning
from turncredit.rollouts.continuations import play_equally

LONG = ["forward", "back", "forward", "forward", "forward"]


def settings(per_state: int, budget: int | None = None) -> ContinuationsConfig:
    return ContinuationsConfig(per_state=per_state, budget_turns=budget)


def test_the_mean_return_of_many_continuations_is_the_known_value():
    totals = play_equally([branched(LONG)], walk, settings(2000), seed=0)
    mean, known = totals["return_sum"] / 2000, np.array([value(at, turn) for turn, at in enumerate([0, 1, 0, 1, 2])])
    assert np.abs(mean - known).max() < 4 * 0.5 / np.sqrt(2000)
    np.testing.assert_array_equal(totals["return_sum"], totals["return_square_sum"])  # returns of 0 and 1
    assert totals["continuations"].tolist() == [2000] * 5


def test_a_budget_gives_every_state_the_same_smaller_number_and_at_least_one():
    rollouts = [branched(LONG), branched(["back"] * 6)]
    one = int(play_equally(rollouts, walk, settings(1), seed=3)["turns_played"].sum())
    for budget, expected in ((1, 1), (one, 1), (4 * one, 4), (4 * one - 1, 3), (100 * one, 9)):
        totals = play_equally(rollouts, walk, settings(9, budget), seed=3)
        assert totals["continuations"].tolist() == [expected] * 11
    # The number played for the budget is what a smaller number would have been.
    for name, part in play_equally(rollouts, walk, settings(9, 4 * one), seed=3).items():
        np.testing.assert_array_equal(part, play_equally(rollouts, walk, settings(4), seed=3)[name])


def test_copy_k_of_a_state_and_of_the_next_draw_the_same_numbers_and_rollouts_their_own():
    seeds: dict[tuple[str, int], list[int]] = {}

    def play(starts):
        for start in starts:
            seeds.setdefault((start.rollout_id, start.checkpoint.turn), []).append(start.seed)
        return walk(starts)

    first = branched(LONG)
    second = replace(first, turns=[{**row, "rollout_id": "other"} for row in first.turns])
    play_equally([first, second], play, settings(6), seed=0)
    assert {len(set(part)) for part in seeds.values()} == {6}
    assert len({tuple(part) for part in seeds.values()}) == 2


@pytest.mark.parametrize(
    ("per_state", "budget", "said"),
    [
        (3, None, None),
        (3, 10**6, None),
        (3, 1, "1 of 3 continuations from each state, in {turns:,} turns of budget_turns 1: one from each"),
        (1, 1, "1 of 1 continuations from each state, in {turns:,} turns of budget_turns 1: one from each"),
    ],
)
def test_a_budget_that_is_exceeded_or_binds_is_told_with_its_numbers(world, tmp_path, per_state, budget, said):
    few = {"define": {"few": {"base": "vineppo", "continuations": {"per_state": per_state, "budget_turns": budget}}}}
    metrics = world.run("continuations", keys(world, "few", **few), tmp_path, few).metrics
    told = warning(metrics)
    assert metrics.get("budget_turns") == budget
    assert (told is None) == (said is None)
    assert (told or "").startswith((said or "").format(turns=int(metrics["turns"])))


def keys(world, method: str = "vineppo", **changes) -> JobKeys:
    plan = Plan(tiny.experiment(methods=[method], **changes), world.plan.results)
    return plan.keys_of("continuations", world.turns, method)


FEW = {"define": {"few": {"base": "vineppo", "continuations": {"per_state": 2}}}}


def test_the_stage_writes_a_row_for_every_turn_in_their_order_and_the_same_bytes_again(world, tmp_path):
    at = keys(world, "few", **FEW)
    assert at.continuations == "k2"
    ran, again = (world.run("continuations", at, tmp_path / name, FEW) for name in "ab")
    table, turns = (tables.read(path) for path in (ran.output["continuations"], world.path("turns")))
    assert all(table.column(key).equals(turns.column(key)) for key in tables.KEYS)
    assert set(table.column("continuations").to_pylist()) == {2}
    assert ran.metrics["turns"] == sum(table.column("turns_played").to_pylist())
    assert ran.metrics["continuations"] == 2 * turns.num_rows
    returns = table.column("return_sum").to_pylist()
    assert ran.metrics["value"] == pytest.approx(sum(returns) / (2 * turns.num_rows))
    assert ran.metrics["tokens"] == sum(table.column("tokens").to_pylist())
    assert ran.output["continuations"].read_bytes() == again.output["continuations"].read_bytes()


def test_the_number_of_processes_changes_nothing(world, tmp_path):
    at = keys(world, "few", **FEW)
    alone = world.run("continuations", at, tmp_path / "alone", FEW)
    shared = world.run("continuations", at, tmp_path / "shared", {**FEW, "rollout": {"processes": 2}})
    one, two = (tables.read(ran.output["continuations"]) for ran in (alone, shared))
    assert one.equals(two)


def test_turns_that_do_not_come_out_again_are_refused_in_one_line(world, tmp_path):
    turns = tables.read(world.path("turns"), "turns")
    seen = turns.column("observation").to_pylist()
    place = turns.column_names.index("observation")
    tampered = turns.set_column(place, turns.schema.field(place), [["elsewhere", *seen[1:]]])
    path = tmp_path / "turns.parquet"
    tables.write(tampered, path, "turns", provenance.record("test"))
    with pytest.raises(UserError, match=r"turn 0: what was recorded is not reproduced .* deterministic"):
        world.run("continuations", keys(world, "few", **FEW), tmp_path, FEW, turns=path)
