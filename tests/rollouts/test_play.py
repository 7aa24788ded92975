"""Rollouts and evaluations as tables."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests import tiny
from turncredit.agents import Prompt
from turncredit.config import ContinuationsConfig, EvalMode
from turncredit.config.sections import EnvSlice
from turncredit.data import tables
from turncredit.data.seeding import derive_seed
from turncredit.data.turns import Turns
from turncredit.envs import webshop
from turncredit.errors import UserError
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.stages.rollout import warning
from turncredit.policy.open import OpenPolicy
from turncredit.policy.sampling import Response
from turncredit.rollouts.continuations import state_returns
from turncredit.rollouts.evaluate import evaluate
from turncredit.rollouts.forks import forks
from turncredit.rollouts.measures import measure
from turncredit.rollouts.play import Played, Player, Start, Turn
from turncredit.rollouts.restore import restored
from turncredit.rollouts.rollout import rollout, round_tasks, summary, turn_table
from turncredit.rollouts.tasks import Games


def roll(world, folder, *, seed=0, round=1, changes=None):
    """The turns that the stage rollout writes."""
    experiment = tiny.experiment(**(changes or {}))
    at = Plan(experiment).turns_at("flat_grpo", seed, round)
    return world.run("rollout", at, folder, changes).output["turns"]


def read(path):
    return tables.read(path, "turns")


def player(world, games, slots):
    return Player(OpenPolicy(world.path("sft_policy"), dtype="float32"), tiny.experiment().agent.chosen(), games, slots)


def games_of(world, split):
    return Games(tiny.experiment().env.chosen(), tables.read(world.path("tasks", split=split), "tasks"))


def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(world, tmp_path):
    first, again, other = (roll(world, tmp_path / name, seed=seed) for name, seed in (("a", 0), ("b", 0), ("c", 1)))
    assert first.read_bytes() == again.read_bytes()
    assert first.read_bytes() != other.read_bytes()


@pytest.mark.parametrize("slots", [1, 3, 64])
def test_rollouts_do_not_depend_on_how_many_play_side_by_side(world, tmp_path, slots):
    """Few slots mean refilled ones; each rollout still draws from its own random numbers."""
    wide = roll(world, tmp_path / "wide")
    narrow = roll(world, tmp_path / "narrow", changes={"rollout": {"slots": slots}})
    same_turns(read(narrow), read(wide))


@pytest.mark.parametrize("processes", [2, 3])
def test_rollouts_do_not_depend_on_how_many_processes_play_them(world, tmp_path, processes):
    one = roll(world, tmp_path / "one")
    many = roll(world, tmp_path / "many", changes={"rollout": {"processes": processes}})
    same_turns(read(many), read(one))


def test_no_two_rounds_or_seeds_sample_with_the_same_random_numbers(world, monkeypatch):
    """Neither rollouts nor continuations nor forks; of a round's rollouts each has its own."""
    games = games_of(world, "train")
    made = player(world, games, 16)
    common = {"env": "household", "policy_id": "p", "agent": "transcript", "seed": 0, "temperature": 1.0}
    played = rollout(made, world.experiment.rollout, seed=0, round=1)
    turns, drawn = turn_table(played, common), []

    def noted(_self, starts, *, temperature):  # noqa: ARG001
        drawn.append([start.seed for start in starts])
        yield from ((number, Played(start, played[0].turns)) for number, start in enumerate(starts))

    monkeypatch.setattr(Player, "stream", noted)
    for seed, round in ((0, 1), (0, 2), (1, 1)):
        rollout(made, world.experiment.rollout, seed=seed, round=round)
        state_returns(made, turns, ContinuationsConfig(per_state=2), seed=seed, round=round)
        forks(made, turns, 1, seed=seed, round=round, common=common)
    assert [len(set(seeds)) for seeds in drawn] == [16, 16 * 2, 4] * 3, "continuations: by rollout and copy"
    assert len({seed for seeds in drawn for seed in seeds}) == (16 + 16 * 2 + 4) * 3


def test_rollouts_do_not_depend_on_the_order_of_the_starts(world):
    games = games_of(world, "train")
    starts = [
        Start(row["task_id"], f"{row['task_id']}#{copy}", row, derive_seed(row["task_id"], copy))
        for row in games.rows[:5]
        for copy in range(3)
    ]
    shuffled = [starts[number] for number in np.random.default_rng(0).permutation(len(starts))]
    found = [
        {
            played.start.rollout_id: [turn.response.ids for turn in played.turns]
            for played in player(world, games, 4).play(order, temperature=1.0)
        }
        for order in (starts, shuffled)
    ]
    assert found[0] == found[1]


def same_turns(found, expected):
    """Equal but for the rounding of log-probabilities."""
    np.testing.assert_allclose(
        found.column("response_logprobs").combine_chunks().values.to_numpy(),
        expected.column("response_logprobs").combine_chunks().values.to_numpy(),
        atol=1e-5,
    )
    assert found.drop_columns("response_logprobs").equals(expected.drop_columns("response_logprobs"))


def test_every_rollout_is_whole_and_every_group_has_its_size(world):
    table = read(world.path("turns")).to_pandas()
    assert table.groupby("group_id").rollout_id.nunique().tolist() == [4] * 4
    for _, turns in table.groupby("rollout_id"):
        assert turns.turn.tolist() == list(range(len(turns)))
        assert turns.done.tolist() == [False] * (len(turns) - 1) + [True]
        assert turns.context_reset.tolist() == [True] + [False] * (len(turns) - 1)
        assert turns.next_observation.tolist()[:-1] == turns.observation.tolist()[1:]
        assert turns.success.nunique() == 1
        assert len(turns) == world.plan.env.settings["horizon"] or turns.success.all()


def test_recorded_actions_replay_to_the_recorded_observations(world):
    games = games_of(world, "train")
    rows = {row["task_id"]: row for row in games.rows}
    table = read(world.path("turns")).to_pandas()
    for _, turns in table.groupby("rollout_id"):
        env = games.open(rows[turns.task_id.iloc[0]])
        assert env.reset() == turns.observation.iloc[0]
        for turn in turns.itertuples():
            step = env.step(turn.action)
            assert (step.observation, step.reward) == (turn.next_observation, turn.reward)


def test_a_refused_command_counts_as_failed(world):
    table = read(world.path("turns"))
    refused = [text == "Nothing happens." for text in table.column("next_observation").to_pylist()]
    assert table.column("failed").to_pylist() == refused
    assert any(refused)


@given(st.integers(1, 50), st.integers(1, 50), st.integers(0, 3))
def test_no_game_is_played_twice_before_all_have_had_their_turn(games, count, seed):
    assume(count <= games)
    rounds = games // count
    played = [round_tasks(games, count, seed, round) for round in range(1, rounds + 1)]
    flat = [number for chosen in played for number in chosen]
    assert len(flat) == len(set(flat)) == rounds * count
    assert set(flat) <= set(range(games))


def ended(start, turns, *, success=False):
    """A rollout with (tokens, whether the action was valid, reward) of each turn."""
    return Played(
        start,
        [
            Turn(
                "", None, Prompt([], True), Response([7] * tokens, [0.0] * tokens), "", "", valid, "", reward, False,
                success,
            )
            for tokens, valid, reward in turns
        ],
    )  # fmt: skip


def test_the_summary_of_a_round_counts_turns_invalid_actions_tokens_and_dead_groups():
    starts = [Start(group, f"{group}#{copy}", {}, 0) for group in "ab" for copy in range(2)]
    turns = [
        [(3, True, 0.0), (1, False, 1.0)],
        [(2, False, 0.0)],
        [(4, True, 0.0)],
        [(1, True, 0.0), (1, True, 0.0), (2, True, 0.0)],
    ]
    played = [
        ended(start, own, success=not number) for number, (start, own) in enumerate(zip(starts, turns, strict=True))
    ]
    assert summary(played) == {
        "rollouts": 4, "turns": 7, "success": 0.25, "invalid": pytest.approx(2 / 7), "turns_per_rollout": 1.75,
        "tokens": 14, "dead_groups": 0.5,
    }  # fmt: skip


def test_every_game_of_an_evaluation_has_random_numbers_of_its_own_in_each_mode_whatever_the_policy():
    rows = [{"task_id": f"g{number}", "split": "eval", "family": "pick"} for number in range(3)]
    drawn: dict[str, list[list[int]]] = {}

    def play(policy):
        def played(starts, *, temperature, on_done):  # noqa: ARG001
            drawn.setdefault(policy, []).append([start.seed for start in starts])
            return [ended(start, [(2, True, 0.0), (3, False, 0.5), (1, True, 0.0)]) for start in starts]

        return SimpleNamespace(games=SimpleNamespace(rows=rows), agent=SimpleNamespace(trials=None), play=played)

    modes = (EvalMode(name="sampled", temperature=1.0), EvalMode(name="cool", temperature=0.5))
    for policy, seed in (("one", 0), ("other", 1)):
        common = {"policy_id": policy, "method": policy, "seed": seed, "round": 1}
        found = evaluate(play(policy), modes, range(3), common).to_pandas()
        assert found["mode"].tolist() == ["sampled"] * 3 + ["cool"] * 3
        for name, number in {"turns": 3, "invalid": 1, "tokens": 6, "score": 0.5, "success": False}.items():
            assert set(found[name]) == {number}, name
    assert drawn["one"] == drawn["other"]
    assert len({seed for seeds in drawn["one"] for seed in seeds}) == 2 * 3


def evals(world, folder, method, seed, round, changes=None):
    """The evaluation that the stage eval writes of the SFT policy, as that of another run or as its own."""
    at = JobKeys(method=method, seed=seed, round=round)
    path = world.run("eval", at, folder, changes, policy=world.path("sft_policy")).output["evals"]
    return tables.read(path, "evals")


def test_an_evaluation_counts_each_rollout_once_and_is_paired_by_game(world, tmp_path):
    changes = {"eval": {"modes": [{"name": "sampled", "temperature": 1.0}, {"name": "greedy", "temperature": 0}]}}
    frames = [evals(world, tmp_path, "flat_grpo", 3, round, changes).to_pandas() for round in (1, 2)]
    assert [len(frame) for frame in frames] == [8, 8]
    assert frames[0].groupby("mode").task_id.nunique().tolist() == [4, 4]
    assert set(frames[0].task_id).isdisjoint(frames[1].task_id), "fresh games every round"
    assert set(frames[0].policy_id) == {"flat_grpo/seed3/round01"}


def test_the_same_policy_evaluated_as_two_methods_gives_the_same_outcomes(world, tmp_path):
    frames = [evals(world, tmp_path, method, seed, 2).to_pandas() for method, seed in (("sft", 0), ("flat_grpo", 5))]
    for column in ("task_id", "success", "turns", "invalid", "tokens"):
        np.testing.assert_array_equal(frames[0][column], frames[1][column])


def test_without_fresh_games_every_round_is_played_on_the_same_ones():
    fresh, same = (
        Plan(tiny.experiment(rounds=9, tasks={"eval": 36}, eval={"fresh": fresh})) for fresh in (True, False)
    )

    def part(plan, round):
        return plan.slice("eval", JobKeys(method="flat_grpo", seed=0, round=round)).part

    assert [part(fresh, round) for round in (1, 9)] == [0, 8]
    assert [part(same, round) for round in (1, 9)] == [0, 0]


@pytest.mark.parametrize("engine", ["lockstep", "transformers"])
def test_the_window_agent_plays_with_fresh_prompts(world, tmp_path, engine):
    changes = {"agent": {"name": "window", "max_response_tokens": 6}, "policy": {"engine": engine}}
    table = read(roll(world, tmp_path / engine, changes=changes))
    assert all(table.column("context_reset").to_pylist())
    assert all(table.column("admissible").to_pylist())


def test_an_evaluation_is_the_same_in_two_processes(world, tmp_path):
    one, two = (
        evals(world, tmp_path / str(processes), "sft", 0, 2, {"rollout": {"processes": processes}})
        for processes in (1, 2)
    )
    assert one.equals(two)


@pytest.fixture(scope="module")
def short(world, tmp_path_factory):
    """A player whose model can read about half of what 12 rollouts come to; these rollouts, cut short and whole."""
    games = games_of(world, "train")
    starts = [Start(row["task_id"], row["task_id"], row, derive_seed(row["task_id"])) for row in games.rows[:12]]
    whole = player(world, games, 6).play(starts, temperature=1.0)
    lengths = [sum(len(turn.prompt.ids) + len(turn.response.ids) for turn in one.turns) for one in whole]
    folder = world.policy_that_reads(int(np.median(lengths)), tmp_path_factory.mktemp("short") / "policy")
    cutting = Player(OpenPolicy(folder, dtype="float32"), tiny.experiment().agent.chosen(), games, 6)
    return cutting, cutting.play(starts, temperature=1.0), whole


def test_a_rollout_ends_as_a_failure_where_its_context_is_longer_than_the_model_can_read(world, short):
    short_player, cut, whole = short
    games = short_player.games
    ended = [one.turns[-1].context_full for one in cut]
    assert 0 < sum(ended) < len(cut)
    for one, long, full in zip(cut, whole, ended, strict=True):
        assert [turn.action for turn in one.turns] == [turn.action for turn in long.turns[: len(one.turns)]]
        assert one.turns[-1].done
        assert not any(turn.done or turn.context_full for turn in one.turns[:-1])
        if full:
            assert len(one.turns) < len(long.turns)
            assert not one.success
        else:
            assert len(one.turns) == len(long.turns)
    metrics = summary(cut)
    assert metrics["context_full"] == sum(ended)
    assert f"{sum(ended)} of 12 rollouts ended as failures" in warning(metrics)
    assert "context_full" not in summary(whole)
    assert warning(summary(whole)) is None

    modes = (EvalMode(name="sampled", temperature=1.0), EvalMode(name="greedy", temperature=0.0))
    common = {"policy_id": "sft", "method": "sft", "seed": 0, "round": 1}
    table = evaluate(short_player, modes, range(12), common)
    marked = table.column("context_full").to_pylist()
    assert 0 < sum(marked) < len(marked)
    assert not any(won and full for won, full in zip(table.column("success").to_pylist(), marked, strict=True))
    assert "context_full" not in evaluate(player(world, games, 6), modes, range(12), common).column_names


def test_rollouts_that_ended_because_a_context_was_full_are_measured_restored_and_continued_like_others(short):
    short_player, cut, whole = short
    common = {"env": "household", "policy_id": "p", "agent": "transcript", "seed": 0, "temperature": 1.0}
    turns, longer = turn_table(cut, common), turn_table(whole, common)
    assert "context_full" not in longer.column_names
    ended = [one.turns[-1].context_full for one in cut]
    assert turns.column("context_full").to_pylist() == [
        full and number == len(one.turns) - 1
        for one, full in zip(cut, ended, strict=True)
        for number in range(len(one.turns))
    ]

    frame = measure(short_player.games, turns, slots=5).to_pandas()
    expected = (
        measure(short_player.games, longer, slots=5).to_pandas().merge(frame[list(tables.KEYS)], on=list(tables.KEYS))
    )
    pd.testing.assert_frame_equal(frame, expected)

    view = Turns(turns)
    for one in restored(view, range(view.rollouts), short_player):
        assert all(one.replayed)
    settings = ContinuationsConfig(per_state=2)
    states, _ = state_returns(short_player, turns, settings, seed=0, round=1)
    assert set(states.column("continuations").to_pylist()) == {2}
    grown, _ = forks(short_player, turns, 2, seed=0, round=1, common=common)
    assert grown.num_rows >= 2 * 12

    # Without the mark the environment would have ended other rollouts than these.
    unmarked = turns.drop_columns("context_full")
    with pytest.raises(UserError, match="the end differs when the recorded"):
        measure(short_player.games, unmarked, slots=5)
    with pytest.raises(UserError, match="replayed, the rollout goes on after turn"):
        restored(Turns(unmarked), range(view.rollouts), short_player)


@pytest.mark.parametrize(
    ("last_rewards", "dead"),
    [
        ([0.3, 0.7, 0.1, 0.9, 0.0, 1.0], 0),  # of failures, too: rewards that are graded
        ([0.3, 0.3, 0.1, 0.1 + 1e-16, 0.0, 1.0], 2 / 3),
    ],
)
def test_a_dead_group_is_one_whose_rollouts_have_the_same_return(world, last_rewards, dead):
    games = games_of(world, "train")
    starts = [
        Start(row["task_id"], f"{row['task_id']}#{copy}", row, derive_seed(row["task_id"], copy))
        for row in games.rows[:3]
        for copy in range(2)
    ]
    played = player(world, games, 6).play(starts, temperature=1.0)
    for one, reward in zip(played, last_rewards, strict=True):
        one.turns[-1].reward, one.turns[-1].success = reward, False
    assert summary(played)["dead_groups"] == pytest.approx(dead)
    common = {"env": "household", "policy_id": "p", "agent": "transcript", "seed": 0, "temperature": 1.0}
    assert Turns(turn_table(played, common)).dead_G.mean() == pytest.approx(dead)


def test_a_first_prompt_that_is_longer_than_the_model_can_read_is_an_error_that_names_the_task(world, tmp_path):
    games = games_of(world, "train")
    row, agent = games.rows[0], tiny.experiment().agent.chosen()
    (whole,) = player(world, games, 1).play([Start("g", "r", row, 0)], temperature=1.0)
    room = len(whole.turns[0].prompt.ids) + agent.max_response_tokens
    enough, short = (
        Player(
            OpenPolicy(world.policy_that_reads(positions, tmp_path / str(positions)), dtype="float32"), agent, games, 1
        )
        for positions in (room, room - 1)
    )
    (first,) = enough.play([Start("g", "r", row, 0)], temperature=1.0)
    assert first.turns[0].action == whole.turns[0].action
    with pytest.raises(UserError, match=f"task '{row['task_id']}': the first prompt has \\d+ tokens"):
        short.play([Start("g", "r", row, 0)], temperature=1.0)


def test_the_score_of_a_shop_is_kept_beside_success_whatever_the_rewards(world):
    settings = {"reward": "success", "success_reward": 10.0}
    env = EnvSlice(name="webshop", settings=settings)
    rows = webshop.make_tasks("eval", 2, 0, webshop.Settings(**settings))
    games = Games(env, pa.Table.from_pylist(rows))
    shopper = Player(OpenPolicy(world.path("sft_policy"), dtype="float32"), tiny.experiment().agent.chosen(), games, 2)
    common = {"policy_id": "p", "method": "flat_grpo", "seed": 0, "round": 1}
    found = evaluate(shopper, [EvalMode(name="sampled", temperature=1.0)], [0, 1], common)
    assert found.column("task_score").to_pylist() == [0.0, 0.0]  # nothing was bought
    running = games.open(rows[0])
    running.reset()
    for action in running.oracle():
        step = running.step(action)
    assert (step.reward, games.score(running)) == (10.0, 1.0)
    running.reset()
    for action in (f"search[{running.shop.by_asin[running.goal.asin].title}]", f"click[{running.goal.asin}]"):
        running.step(action)
    assert running.task_score() == 0.0  # until it is bought
    step = running.step("click[Buy Now]")
    assert step.reward == 0.0 or step.success
    assert games.score(running) == running.score().total > 0
