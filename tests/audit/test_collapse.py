"""Collapse is said: provoked in a real update, and found in the metrics of runs."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import tiny
from turncredit.audit import collapse
from turncredit.config.layout import sampled_by
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.stages import update

EXPERIMENT = tiny.experiment(methods=["flat_grpo", "has_judge"], seeds=[0, 1])
FINE = {"entropy": 0.5, "entropy_limit": 6.0, "largest_log_ratio": 0.1}
PLAYED = {"success": 0.4, "invalid": 0.3, "tokens": 500.0, "turns": 100.0}


def frame(rollouts: dict[tuple[str, int, int], dict], updates: dict[tuple[str, int, int], dict]) -> pd.DataFrame:
    """The view `metrics` of these rollouts by (policy, seed, round) and updates by (method, seed, round)."""
    rows = []
    for stage, key, of_stage in (("rollout", "policy", rollouts), ("update", "method", updates)):
        for (name, seed, round_), numbers in of_stage.items():
            at = {"stage": stage, "policy": None, "method": None, key: name, "seed": seed, "round": round_}
            rows += [{**at, "name": metric, "value": value} for metric, value in numbers.items()]
    return pd.DataFrame(rows)


def found(after: dict | None = None, trained: dict | None = None) -> list[collapse.Collapse]:
    """The collapses of four runs of which one, flat GRPO's with seed 1, went as given in its first update."""
    rollouts, updates = {}, {}
    for method, seed in EXPERIMENT.runs():
        odd = (method, seed) == ("flat_grpo", 1)
        rollouts[sampled_by(EXPERIMENT, method, 1), seed, 1] = PLAYED
        rollouts[method, seed, 2] = PLAYED | ((after or {}) if odd else {})
        updates |= {(method, seed, 1): FINE | ((trained or {}) if odd else {}), (method, seed, 2): FINE}
    return collapse.collapses(EXPERIMENT, frame(rollouts, updates))


RUN = JobKeys(method="random_credit", seed=0, round=1)


def updated(world, folder, **settings) -> dict[str, float]:
    """The metrics of a round's update; with random credit every rollout has something to learn."""
    at = replace(world.turns, method="random_credit")
    credits = world.run("credit", at, folder / "credit").output["credits"]
    return world.run("update", RUN, folder / "update", {"update": settings}, credits=credits).metrics


def test_a_learning_rate_of_a_million_is_said_with_its_cause(world, tmp_path):
    line = update.warning(updated(world, tmp_path, lr=1e6, warmup_steps=0, minibatch=4))
    assert "the policy has collapsed: log-probabilities moved by " in line
    assert line.endswith("likely cause: steps that are too large; lower update.lr, or warm it up for longer")


def test_an_update_that_learns_is_no_collapse(world, tmp_path):
    metrics = updated(world, tmp_path)
    assert update.warning(metrics) is None
    assert 0 < metrics["entropy"] < metrics["entropy_limit"]


@pytest.mark.parametrize(
    ("after", "trained", "sign", "cause"),
    [
        ({}, {"largest_log_ratio": 5.9}, "moved by 5.9 a token", "lower update.lr"),
        ({}, {"entropy": 5.9}, "entropy is 5.9 of at most 6.0", "lower update.lr"),
        ({"success": 0.2}, {}, "success 20%, 40% at first", "something else than success"),
        ({"success": 0.1, "tokens": 150.0}, {}, "1.5 tokens a response, 5.0 at first", "another length"),
        ({"success": 0.0, "invalid": 0.9}, {}, "90% of actions refused", "something else than success"),
    ],
)
def test_a_collapsed_run_is_named_with_its_signs_and_cause(after, trained, sign, cause):
    [one] = found(after, trained)
    assert (one.method, one.seed, one.round) == ("flat_grpo", 1, 1)
    assert sign in str(one)
    assert cause in one.cause


def test_a_policy_that_repeats_itself_is_known_by_the_entropy_of_a_later_round():
    rollouts = {(sampled_by(EXPERIMENT, "flat_grpo", 1), 0, 1): PLAYED, ("flat_grpo", 0, 2): PLAYED}
    rollouts["flat_grpo", 0, 3] = PLAYED | {"success": 0.0}
    updates = {("flat_grpo", 0, 1): FINE, ("flat_grpo", 0, 2): FINE | {"entropy": 0.01}}
    [one] = collapse.collapses(EXPERIMENT, frame(rollouts, updates))
    assert (one.round, one.cause) == (
        2,
        "likely cause: credit that confirms whatever the policy does; it repeats itself",
    )


@given(st.floats(0.21, 1), st.floats(0, 0.54), st.floats(260, 990))
def test_runs_that_learn_are_never_called_collapsed(success, invalid, tokens):
    assert found({"success": success, "invalid": invalid, "tokens": tokens}) == []


def test_other_signs_alone_do_not_make_a_collapse():
    assert found({"invalid": 0.9, "tokens": 100.0}) == []
    assert found() == []


def test_success_is_not_compared_with_a_first_policy_that_hardly_has_any():
    rollouts = {(sampled_by(EXPERIMENT, "flat_grpo", 1), 0, 1): PLAYED | {"success": 0.02}}
    rollouts["flat_grpo", 0, 2] = PLAYED | {"success": 0.0}
    assert collapse.collapses(EXPERIMENT, frame(rollouts, {("flat_grpo", 0, 1): FINE})) == []


@pytest.mark.parametrize(
    ("now", "first", "signs"),
    [
        (0.0, 0.0, []),
        (500.0, 0.0, ["5.0 tokens a response, 0.0 at first"]),
        (200.0, 100.0, ["2.0 tokens a response, 1.0 at first"]),
    ],
)
def test_a_first_policy_that_wrote_nothing_is_compared_all_the_same(now, first, signs):
    """Its tokens are 0 where responses have no ids."""
    assert collapse.of_rollouts(FINE, FINE, PLAYED | {"tokens": now}, PLAYED | {"tokens": first}) == signs
