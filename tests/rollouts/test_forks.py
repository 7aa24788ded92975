"""Forks: which state is next, by the rule written out again; a fork's rows; determinism; one update of a tree."""

from __future__ import annotations

import numpy as np
import pytest

from tests import tiny
from tests.helpers import nonempty
from turncredit.config import UpdateConfig
from turncredit.data import provenance, tables
from turncredit.data.turns import with_forks
from turncredit.errors import UserError
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.plan import Plan
from turncredit.training.update import training_set

PER_TASK = 5
CHANGES = {"methods": ["tree"], "define": {"tree": {"base": "carl", "forks": {"per_task": PER_TASK}}}}


@pytest.fixture(scope="module")
def forked(world, tmp_path_factory):
    """The stage on the tiny world's rollouts: its table's path and what it measured."""
    at = Plan(tiny.experiment(**CHANGES), world.plan.results).keys_of("forks", world.turns, "tree")
    assert at is not None
    return at, world.run("forks", at, tmp_path_factory.mktemp("forks"), CHANGES)


def read(world, forked) -> tuple[list[dict], list[dict]]:
    return (
        tables.read(world.path("turns"), "turns").to_pylist(),
        tables.read(forked[1].output["forks"], "forks").to_pylist(),
    )


def by_rollout(rows: list[dict]) -> dict[str, list[dict]]:
    found: dict[str, list[dict]] = {}
    for row in rows:
        found.setdefault(row["rollout_id"], []).append(row)
    return found


def test_every_fork_leaves_the_state_with_the_largest_h_over_n(world, forked):
    turns, forks = read(world, forked)
    for task in dict.fromkeys(row["task_id"] for row in turns):
        states: dict[tuple, list[float]] = {}  # -log pi of the actions sampled at each state, in the order of the tree
        start = None
        for rollout, rows in by_rollout([row for row in turns if row["task_id"] == task]).items():
            start = start or (rollout, 0)
            for row in rows:
                state = start if row["turn"] == 0 else (rollout, row["turn"])
                states.setdefault(state, []).append(-np.mean(row["response_logprobs"]))
        own = by_rollout([row for row in forks if row["task_id"] == task])
        assert list(own) == [f"{task}#fork{number}" for number in range(PER_TASK)]
        for rollout, rows in own.items():
            priority = {state: np.mean(seen) / len(seen) for state, seen in states.items()}
            chosen = max(priority, key=priority.__getitem__)
            assert {(row["parent_rollout_id"], row["parent_turn"]) for row in rows} == {chosen}
            states[chosen].append(-np.mean(rows[0]["response_logprobs"]))
            for row in rows[1:]:
                states[rollout, row["turn"]] = [-np.mean(row["response_logprobs"])]


def test_a_fork_begins_with_what_was_seen_at_its_state_and_the_whole_context_there(world, forked):
    turns, forks = read(world, forked)
    at = {(row["rollout_id"], row["turn"]): row for row in turns + forks}
    context: dict[tuple, list[int]] = {}
    for rollout, rows in by_rollout(turns + forks).items():
        tokens: list[int] = []
        for row in rows:
            tokens = [*([] if row["context_reset"] else tokens), *row["prompt_ids"]]
            context[rollout, row["turn"]] = tokens
            tokens = [*tokens, *row["response_ids"]]
    for first in nonempty(row for row in forks if row["turn"] == 0):
        state = (first["parent_rollout_id"], first["parent_turn"])
        assert first["context_reset"]
        assert first["prompt_ids"] == context[state]
        assert first["observation"] == at[state]["observation"]
        assert (first["policy_id"], first["temperature"]) == (at[state]["policy_id"], at[state]["temperature"])


def test_forks_are_the_same_bytes_again_and_a_smaller_number_is_their_beginning(world, forked, tmp_path):
    at, ran = forked
    again = world.run("forks", at, tmp_path / "again", CHANGES)
    assert again.output["forks"].read_bytes() == ran.output["forks"].read_bytes()
    fewer = {**CHANGES, "define": {"tree": {"base": "carl", "forks": {"per_task": 2}}}}
    small = world.run("forks", JobKeys(**{**at.keys, "forks": "n2"}), tmp_path / "small", fewer)
    few, many = tables.read(small.output["forks"]).to_pylist(), tables.read(ran.output["forks"]).to_pylist()
    names = {row["rollout_id"] for row in few}
    assert few == [row for row in many if row["rollout_id"] in names]
    assert ran.metrics["forks"] == PER_TASK * 4
    assert ran.metrics["turns"] == len(many)
    before: dict[str, int] = {}  # turns from the task's start to where a fork begins, which are played again
    for row in many:
        parent = row["parent_rollout_id"]
        before[row["rollout_id"]] = before.get(parent, 0) + row["parent_turn"]
    assert ran.metrics["replayed_turns"] == sum(before.values()) > 0


def test_an_update_learns_from_turns_of_states_with_several_actions_once_and_from_no_others(world, forked, tmp_path):
    keys = JobKeys(**{**world.turns.keys, "method": "tree"})
    forks = forked[1].output["forks"]
    credits = world.run("credit", keys, tmp_path, CHANGES, forks=forks).output["credits"]
    both = with_forks(tables.read(world.path("turns"), "turns"), tables.read(forks, "forks"))
    credit = tables.read(credits, "credits")
    trained = credit.column("trained").to_numpy() > 0
    assert 0 < trained.sum() < len(trained)
    for scale in ("rms", "none"):
        data = training_set(both, credit, UpdateConfig(advantage_scale=scale))
        learned = np.concatenate([sequence.turn[sequence.turn >= 0] for sequence in data.sequences])
        tokens = [len(ids) for ids in both.column("response_ids").to_pylist()]
        counts = np.bincount(learned, minlength=both.num_rows)
        np.testing.assert_array_equal(counts, np.where(trained, tokens, 0))
        assert len(data.sequences) == 16 + 4 * PER_TASK, "all stay in their minibatches"
    advantage = credit.column("advantage").to_numpy()
    assert advantage.any()
    scaled = training_set(both, credit, UpdateConfig(advantage_scale="rms")).advantage_N
    assert np.mean(scaled[trained] ** 2) == pytest.approx(1.0)


@pytest.mark.parametrize("update", [{}, {"kl": "k3", "kl_coefficient": 0.1}], ids=["plain", "kl"])
def test_a_tree_updates_the_policy_and_the_first_step_sees_the_policy_that_sampled(world, forked, tmp_path, update):
    changes = {**CHANGES, "update": update}
    forks = forked[1].output["forks"]
    credits = world.run(
        "credit", JobKeys(**{**world.turns.keys, "method": "tree"}), tmp_path, changes, forks=forks
    ).output["credits"]
    run = JobKeys(method="tree", seed=0, round=1)
    turns = world.path("turns")
    ran = world.run("update", run, tmp_path, changes, forks=forks, credits=credits, turns=turns)
    assert ran.metrics["steps"] == (16 + 4 * PER_TASK) / 4
    log = tables.read(ran.output["updates"], "updates")
    ratios = [ratio for ratio in log.column("ratio_max").to_pylist() if ratio is not None]
    assert nonempty(ratios)[0] == pytest.approx(1.0, abs=1e-3)


def test_forks_of_turns_that_do_not_come_out_again_are_refused_in_one_line(world, forked, tmp_path):
    turns = tables.read(world.path("turns"), "turns")
    place = turns.column_names.index("observation")
    tampered = turns.set_column(place, turns.schema.field(place), [["elsewhere"] * turns.num_rows])
    path = tmp_path / "turns.parquet"
    tables.write(tampered, path, "turns", provenance.record("test"))
    with pytest.raises(UserError, match=r"what was recorded is not reproduced .* deterministic"):
        world.run("forks", forked[0], tmp_path, CHANGES, turns=path)
