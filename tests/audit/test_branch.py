"""Ground truth by branching: known values are found, states are restored, one table (estimates: test_estimates.py)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tests import tiny
from tests.rollouts.walk import Walk, Words, branched, value, walk, walked
from turncredit.audit import branch as branching
from turncredit.audit.branch import advantages, choose, stratum, true_values
from turncredit.config import BranchConfig
from turncredit.data import tables
from turncredit.data.seeding import derive_seed
from turncredit.data.turns import Turns
from turncredit.errors import UserError
from turncredit.pipeline.stages import branch as stage
from turncredit.policy.engines import sampler
from turncredit.policy.open import OpenPolicy
from turncredit.policy.sampling import Request
from turncredit.rollouts.play import Player, Start
from turncredit.rollouts.restore import restore, restored
from turncredit.rollouts.tasks import Games

WINDOW = {"agent": {"name": "window", "max_response_tokens": 6}}
SMALL = {"turns": 10, "min_continuations": 4, "max_continuations": 8, "reference_continuations": 4}


LONG = ["forward", "back", "forward", "forward", "forward"]


def test_values_and_advantages_of_a_known_walk_are_found_within_their_errors():
    rollout = branched(LONG)
    settings = BranchConfig(min_continuations=400, max_continuations=4000, target_se=0.02)
    values = true_values([rollout], walk, settings, seed=3, low=0.0, high=1.0)
    found = advantages([rollout], values)
    at = [0, 1, 0, 1, 2]
    v = np.array([value(place, turn) for turn, place in enumerate(at)])
    q = np.array([*v[1:], 1.0])
    assert np.abs((found["v_true"] - v) / found["v_se"]).max() < 3.5
    assert np.abs((found["q_true"] - q)[:-1] / found["q_se"][:-1]).max() < 3.5
    assert np.abs((found["advantage_true"] - (q - v)) / found["advantage_true_se"]).max() < 3.5
    assert found["advantage_true_se"].max() < 0.023
    assert np.sign(found["advantage_true"]).tolist() == [1, -1, 1, 1, 1]


def test_the_last_turn_leads_to_its_recorded_reward_exactly():
    won, lost = branched(LONG), branched(["back"] * 6)
    settings = BranchConfig(min_continuations=4, max_continuations=4)
    found = advantages([won, lost], true_values([won, lost], walk, settings, seed=0, low=0.0, high=1.0))
    assert found["q_true"][[4, 10]].tolist() == [1.0, 0.0]
    assert found["q_se"][[4, 10]].tolist() == [0.0, 0.0]
    assert found["advantage_true_se"][4] == pytest.approx(found["v_se"][4])
    assert found["v_se"].min() > 0


def test_a_state_serves_the_turn_before_it_and_the_turn_after_it():
    rollout = branched(LONG)
    settings = BranchConfig(min_continuations=8, max_continuations=8)
    found = advantages([rollout], true_values([rollout], walk, settings, seed=0, low=0.0, high=1.0))
    np.testing.assert_array_equal(found["q_true"][:-1], found["v_true"][1:])
    np.testing.assert_array_equal(found["q_se"][:-1], found["v_se"][1:])
    assert found["advantage_true"].sum() == pytest.approx(1.0 - found["v_true"][0])


def test_the_copies_of_a_rollouts_states_share_their_random_numbers_and_no_two_copies_of_a_state_do():
    starts: list[Start] = []

    def play(given):
        starts.extend(given)
        return walk(given)

    one, two = branched(LONG), replace(branched(LONG), turns=[{**row, "rollout_id": "other"} for row in walked(LONG)])
    settings = BranchConfig(min_continuations=6, max_continuations=6)
    true_values([one, two], play, settings, seed=0, low=0.0, high=1.0)
    seeds: dict[tuple, list[int]] = {}
    for start in starts:
        seeds.setdefault((start.rollout_id, start.checkpoint.turn), []).append(start.seed)
    assert len(seeds) == 10
    assert {len(set(part)) for part in seeds.values()} == {6}
    assert len({tuple(sorted(part)) for part in seeds.values()}) == 2, "one set of numbers for each rollout"


def test_a_reference_has_the_values_of_its_states_and_after_the_end_the_reward_without_an_error(monkeypatch):
    value_T, error_T = np.array([0.5, 0.6, 0.4, 0.7, 0.9]), np.array([0.3, 0.4, 0.1, 0.2, 0.05])
    monkeypatch.setattr(branching, "has_reference", lambda _: True)
    monkeypatch.setattr(branching, "reference_values", lambda *_, **__: (value_T, error_T))
    found = branching._reference(None, [branched(LONG)], BranchConfig(), 0, 0.0, 1.0)
    np.testing.assert_allclose(found["q_reference"], [0.6, 0.4, 0.7, 0.9, 1.0])
    np.testing.assert_allclose(found["advantage_reference"], [0.1, -0.2, 0.3, 0.2, 0.1])
    np.testing.assert_allclose(found["advantage_reference_se"] ** 2, [0.25, 0.17, 0.05, 0.0425, 0.0025])


@pytest.mark.parametrize(("returns", "expected"), [((-0.5, 2.0), (-0.5, 2.0)), ((0.1, 0.3), (0.0, 1.0))])
def test_returns_range_from_nothing_to_a_success_and_as_far_as_any_that_was_recorded(returns, expected):
    view = Turns({"group_id": ["g"] * 2, "rollout_id": ["a", "b"], "turn": [0, 0], "reward": list(returns)})
    assert branching._range(view, 1.0) == expected


def test_the_signal_is_the_share_of_the_estimates_variance_that_is_not_their_errors():
    columns = {"advantage_true": np.array([1.0, -1, 1, -1]), "advantage_true_se": np.array([0.1, 0.2, 0.3, 0.4])}
    columns |= {"continuations": np.full(4, 8), "turns_played": np.full(4, 9)}
    told = branching._summary([], columns, BranchConfig(target_se=0.2), 0)
    assert told["advantage_se"] ** 2 == pytest.approx(0.3 / 4)
    assert (told["signal"], told["within_target"]) == pytest.approx((1 - 0.3 / 4, 0.5))
    assert branching._summary([], {**columns, "advantage_true": np.zeros(4)}, BranchConfig(), 0)["signal"] == 0


# ---------------------------------------------------------------- restored states


def test_a_tampered_observation_prompt_action_or_reward_is_noticed():
    def replayed(turn: int, column: str, to) -> list[bool]:
        rows = walked(LONG)
        rows[turn][column] = to
        return restore(Walk, Words(), rows, goal=Walk.goal).replayed

    assert restore(Walk, Words(), walked(LONG), goal=Walk.goal).replayed == [True] * 5
    assert replayed(2, "observation", "at 1") == [True, True, False, False, False]
    assert replayed(2, "prompt_ids", [5]) == [True, True, False, False, False]
    assert replayed(2, "next_observation", "at 2") == [False] * 5, "seen from before it when the rest is played"
    assert replayed(4, "next_observation", "at 2") == [False] * 5
    assert replayed(1, "reward", 0.5) == [False] * 5
    assert replayed(3, "response_text", "jump") == [True, True, True, True, False]


def test_an_environment_that_restores_wrongly_is_noticed():
    class Forgetful(Walk):
        def restore(self, state):
            self.at, self.turn = 0, state[1]  # right before turns 0 and 2; before turn 1 a wall hides it

    assert restore(Forgetful, Words(), walked(LONG), goal=Walk.goal).replayed == [True, True, True, False, False]


def test_a_rollout_that_ends_elsewhere_when_replayed_is_one_clear_line():
    with pytest.raises(UserError, match=r"^mine: replayed, the rollout goes on after turn 3 of 4; .* env settings"):
        restore(Walk, Words(), walked(LONG)[:4], "mine", goal=Walk.goal)
    short = walked(LONG)
    short[1]["action"] = "forward"
    with pytest.raises(UserError, match="the rollout ends after turn 2 of 5"):
        restore(Walk, Words(), short, goal=Walk.goal)


def sampled(world, folder, changes):
    """Turns of the SFT policy, sampled with these changes of the configuration."""
    return world.run("rollout", world.turns, folder, changes).output["turns"]


@pytest.mark.parametrize(
    "changes",
    [{}, WINDOW, {"policy": {"engine": "transformers"}}],
    ids=["transcript", "window", "transformers"],
)
def test_a_continuation_with_the_rollouts_own_random_numbers_is_the_rest_of_the_rollout(world, tmp_path, changes):
    """So environment, agent, context and engine are where they were, token for token."""
    experiment = tiny.experiment(**changes)
    view = Turns(tables.read(sampled(world, tmp_path, changes), "turns"))
    games = Games(experiment.env.chosen(), tables.read(world.path("tasks", split="train"), "tasks"))
    policy = OpenPolicy(world.path("sft_policy"), dtype="float32", engine=experiment.policy.engine)
    player = Player(policy, experiment.agent.chosen(), games, 5)
    starts, recorded = [], []
    for number in (0, 5):
        (one,) = restored(view, [number], player)
        assert one.replayed == [True] * len(one.turns)
        _, copy = one.rollout_id.split("#")
        seed = derive_seed(0, "rollout", 1, one.turns[0]["task_id"], int(copy))
        starts += [Start("", "", one.task, seed, checkpoint) for checkpoint in one.checkpoints]
        recorded += [one.turns[checkpoint.turn :] for checkpoint in one.checkpoints]
    for played, turns in zip(player.play(starts, temperature=1.0), recorded, strict=True):
        assert [turn.response.ids for turn in played.turns] == [turn["response_ids"] for turn in turns]
        assert [turn.next_observation for turn in played.turns] == [turn["next_observation"] for turn in turns]


def test_many_continuations_of_one_context_read_it_once_and_are_what_they_would_be_alone(world):
    """Also beside rows that go on, and beside a longer context."""

    def engine():
        return sampler("lockstep", str(world.path("sft_policy")), slots=6, dtype="float32", eos_id=0)

    def request(slot, ids, reset=True):
        return Request(slot, ids, reset, np.random.default_rng(slot).random(8))

    one, two = list(range(20, 60)), list(range(30, 190))
    shared, alone = engine(), engine()
    for made in (shared, alone):
        made.sample([request(5, [3, 4, 5])], 1.0, 8)
    together = shared.sample(
        [request(slot, ids) for slot, ids in enumerate([one, two, one, one])] + [request(5, [7], False)], 1.0, 8
    )
    apart = alone.sample(
        [request(slot, list(ids)) for slot, ids in enumerate([one, two, one, one])] + [request(5, [7], False)], 1.0, 8
    )
    again = [made.sample([request(slot, [9, 9], False) for slot in (3, 0, 1, 5)], 1.0, 8) for made in (shared, alone)]
    for a, b in [*zip(together, apart, strict=True), *zip(*again, strict=True)]:
        assert a.ids == b.ids
        np.testing.assert_allclose(a.logprobs, b.logprobs, atol=1e-5)


# ---------------------------------------------------------------- which turns


def made_turns(lengths: list[int], won: list[bool], families: list[str], group_size: int) -> Turns:
    rows = [
        {
            "group_id": f"g{number // group_size:02d}", "rollout_id": f"r{number:03d}", "turn": turn, "reward": 0.0,
            "task_id": "t", "family": family, "success": success,
        }
        for number, (length, success, family) in enumerate(zip(lengths, won, families, strict=True))
        for turn in range(length)
    ]  # fmt: skip
    return Turns(pa.Table.from_pylist(rows))


def test_whole_rollouts_are_taken_from_all_strata_and_from_as_many_groups_as_there_are():
    rng = np.random.default_rng(0)
    won = [number % 8 == 0 for number in range(160)]
    families = [["pick", "clean", "heat", "look"][number // 4 % 4] for number in range(160)]
    view = made_turns(list(rng.integers(3, 12, 160)), won, families, 4)
    chosen = choose(view, 150, np.random.default_rng(1))
    lengths = view.length_R[chosen]
    assert lengths[:-1].sum() < 150 <= lengths.sum()
    assert len(set(chosen)) == len(chosen)
    assert len(set(view.group_R[chosen])) == len(chosen), "a group of its own for each, while there are some"
    half = sum(won[number] for number in chosen)
    assert abs(2 * half - len(chosen)) <= 1, "as many successes as failures, though they are one in eight"
    assert {families[number] for number in chosen} == set(families)
    assert choose(view, 150, np.random.default_rng(1)).tolist() == chosen.tolist()
    assert choose(view, 150, np.random.default_rng(2)).tolist() != chosen.tolist()


def test_choosing_more_turns_than_there_are_takes_them_all():
    view = made_turns([2, 3], [True, False], ["pick", "clean"], 1)
    assert sorted(choose(view, 100, np.random.default_rng(0))) == [0, 1]


def test_a_stratum_names_outcome_family_and_third():
    names = [stratum({"turn": t, "success": False, "family": "pick"}, 7) for t in range(7)]
    assert [name.split(":")[2] for name in names] == ["early"] * 2 + ["middle"] * 3 + ["late"] * 2
    assert names[0] == "failure:pick:early"


@pytest.mark.parametrize(
    ("before", "after", "decrease"), [(3, 1, 2.0), (1, 3, -2.0), (-1, 3, None), (3, -1, None), (None, 3, None)]
)
def test_the_change_of_a_distance_is_its_decrease_and_unknown_where_the_goal_is_out_of_reach(before, after, decrease):
    assert branching._distance_change({"distance_before": before, "distance": after}) == decrease


# ---------------------------------------------------------------- the stage


def branches(world, folder, *, turns=None, measures=None, seed=0, changes=None, **settings):
    """What the stage branch writes, and what it measured."""
    changes = {"audit": {"branch": {**SMALL, **settings}}, **(changes or {})}
    at = replace(world.turns, seed=seed)
    read = {"turns": turns or world.path("turns"), "measures": measures or world.path("measures")}
    ran = world.run("branch", at, folder, changes, **read)
    return tables.read(ran.output["branches"], "branches"), ran.metrics


def test_in_a_round_of_failures_a_success_can_still_earn_its_whole_reward(world, tmp_path):
    """Nobody wins: were 1 the best return, the errors would be the same at a reward of 10."""
    tasks = tables.read(world.path("tasks", split="train"), "tasks")
    errors = []
    for reward in (1.0, 10.0):
        changes = {"env": {"household": {"horizon": 2, "success_reward": reward}}}
        assert Games(tiny.experiment(**changes).env.chosen(), tasks).success_reward == reward
        turns = sampled(world, tmp_path / f"{reward:g}", changes)
        assert not any(tables.read(turns, "turns").column("success").to_pylist())
        table, _ = branches(world, tmp_path / f"branched{reward:g}", turns=turns, changes=changes, max_continuations=4)
        errors.append(table.column("v_se").to_numpy())
    np.testing.assert_allclose(errors[1], 10 * errors[0])


def test_the_stage_writes_ground_truth_for_whole_rollouts(world, tmp_path):
    table, metrics = branches(world, tmp_path)
    frame = table.to_pandas()
    turns = tables.read(world.path("turns"), "turns").to_pandas()
    turns = turns.merge(tables.read(world.path("measures"), "measures").to_pandas())
    both = frame.merge(turns, on=["group_id", "rollout_id", "turn"], how="left", validate="one_to_one")
    assert 10 <= len(frame) == metrics["turns"]
    assert (
        both.groupby("rollout_id")
        .turn.count()
        .equals(turns[turns.rollout_id.isin(frame.rollout_id)].groupby("rollout_id").turn.count())
    )
    assert frame.replayed.all()
    assert metrics["not_replayed"] == 0
    assert set(frame.policy_id) == {"sft"}
    assert frame.continuations.between(4, 8).all()
    assert (frame.turns_played >= frame.continuations).all()
    np.testing.assert_allclose(frame.q_true - frame.v_true, frame.advantage_true)
    assert (frame.advantage_true_se > 0).all()
    halves = (frame.advantage_first_half + frame.advantage_second_half) / 2
    np.testing.assert_allclose(halves, frame.advantage_true, atol=1e-12)
    last = both[both.done]
    np.testing.assert_array_equal(last.q_true, last.reward)
    np.testing.assert_array_equal(last.q_reference, last.reward)
    known = both[(both.distance >= 0) & (both.distance_before >= 0)]
    np.testing.assert_array_equal(known.distance_change, known.distance_before - known.distance)
    assert frame.v_reference.between(0, 1).all()
    assert (frame.advantage_reference_se > 0).all()


def test_a_budget_that_is_exceeded_or_binds_is_told_with_its_numbers_and_one_that_is_wide_is_not(world, tmp_path):
    _, wide = branches(world, tmp_path / "wide")
    assert wide["budget_turns"] == tiny.experiment().audit.branch.budget_turns
    assert stage.warning(wide) is None
    table, tight = branches(world, tmp_path / "tight", target_se=0.01, budget_turns=5)
    states = table.num_rows
    assert (tight["continuations"], tight["continuations_wanted"]) == (4 * states, 8 * states)
    played = f"{int(tight['turns_played']):,} turns"
    assert stage.warning(tight).startswith(
        f"{4 * states} of the {8 * states} continuations that target_se asks for, in {played} of "
        "audit.branch.budget_turns 5: min_continuations from each state are played whatever they cost"
    )


def test_the_same_seed_gives_the_same_ground_truth_whatever_the_slots(world, tmp_path):
    wide, _ = branches(world, tmp_path / "wide")
    again, _ = branches(world, tmp_path / "again")
    narrow, _ = branches(world, tmp_path / "narrow", changes={"rollout": {"slots": 3}})
    other, _ = branches(world, tmp_path / "other", seed=1)
    assert wide.equals(again)
    assert wide.equals(narrow)
    assert not wide.equals(other)


def test_the_window_agent_is_branched_too_and_an_expert_need_not_be_asked(world, tmp_path):
    turns = sampled(world, tmp_path, WINDOW)
    measures = world.run("measures", world.turns, tmp_path, WINDOW, turns=turns).output["measures"]
    table, _ = branches(world, tmp_path, turns=turns, measures=measures, changes=WINDOW, reference_continuations=0)
    assert all(table.column("replayed").to_pylist())
    assert table.column("advantage_reference").null_count == table.num_rows


def test_a_tampered_table_is_marked_and_foreign_turns_are_one_clear_line(world, tmp_path):
    turns = tables.read(world.path("turns"), "turns")

    def changed(**columns):
        table = turns
        for name, values in columns.items():
            at = table.schema.get_field_index(name)
            table = table.set_column(at, table.schema.field(at), pa.array(values, table.schema.field(at).type))
        tables.write(table, tmp_path / "turns.parquet", "turns", {})
        return branches(world, tmp_path, turns=tmp_path / "turns.parquet")

    table, metrics = changed(observation=["Nothing is as it was."] * turns.num_rows)
    assert not any(table.column("replayed").to_pylist())
    assert metrics["not_replayed"] == table.num_rows
    with pytest.raises(
        UserError, match=r"turns\.parquet.* is of the game 'elsewhere', which is not in the tasks table"
    ):
        changed(task_id=["elsewhere"] * turns.num_rows)
    with pytest.raises(UserError, match=r"turns\.parquet: .* the column 'policy_id' has 2 values"):
        changed(policy_id=["a"] + ["b"] * (turns.num_rows - 1))


def test_a_reference_without_noise_reaches_the_goal_as_often_as_the_expert_does(world, tmp_path):
    table, _ = branches(world, tmp_path, reference_noise=0.0)
    frame = table.to_pandas()
    assert set(frame.v_reference) <= {0.0, 1.0}, "the expert decides at random only where it is lost"
    assert frame.groupby("rollout_id").advantage_reference.sum().isin([0.0, 1.0, -1.0]).all()
