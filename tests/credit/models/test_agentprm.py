"""AgentPRM, both kinds: which turns are one pair, targets against their definitions, what is learned from them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch

from tests.credit.models.synthetic import HIDDEN_SIZE, as_rollouts, as_tables, noise_rollouts, trained_on
from turncredit.credit.models import agentprm, agentprm_td, replay, train
from turncredit.credit.models.agentprm import AgentPRMSettings
from turncredit.credit.models.agentprm_td import AgentPRMTDSettings
from turncredit.credit.models.turn_value import TurnValueSettings, still_to_come
from turncredit.data.turns import Turns
from turncredit.errors import UserError

LENGTHS = [3, 6, 1, 5, 4, 2, 6, 3]


def spoken(lengths: list[int], seed: int, **columns: list) -> tuple[pa.Table, pa.Table]:
    """Tables of rollouts whose texts are drawn from few words, so that many begin alike; rewards at any turn."""
    rng = np.random.default_rng(seed)
    rollouts = noise_rollouts(lengths=lengths, seed=seed)
    turns, hiddens = as_tables(replace(rollouts, reward=torch.from_numpy(rng.random(rollouts.present.shape))))
    first = [name.as_py() for name in turns.column("rollout_id")]
    texts = {
        "goal": [f"goal {int(name[1:]) % 2}" for name in first],
        "observation": [f"you see {rng.integers(2)}" for _ in first],
        "action": [f"go {rng.integers(2)}" for _ in first],
        **columns,
    }
    for name, values in texts.items():
        turns = turns.append_column(name, pa.array(values))
    return turns, hiddens


def pairs_by_hand(turns: pa.Table) -> list[tuple]:
    """The goal, all observations and actions so far, for each row."""
    rows = turns.to_pylist()
    found = []
    for row in rows:
        before = [other for other in rows if other["rollout_id"] == row["rollout_id"] and other["turn"] <= row["turn"]]
        history = sorted((other["turn"], other["observation"], other["action"]) for other in before)
        found.append((row["goal"], *history))
    return found


def test_a_pair_is_the_goal_the_history_and_the_action():
    turns, _ = spoken(LENGTHS, seed=0)
    number, by_hand = replay.pairs_N(Turns(turns)).tolist(), pairs_by_hand(turns)
    assert 1 < len(set(by_hand)) < len(by_hand)  # some recur
    assert len(set(zip(number, by_hand, strict=True))) == len(set(number)) == len(set(by_hand))


def test_a_pair_is_the_same_in_any_order_of_rows_and_in_any_table():
    turns, _ = spoken(LENGTHS, seed=0)
    wanted = replay.pairs_N(Turns(turns))
    mixed = turns.take(np.random.default_rng(0).permutation(turns.num_rows))
    assert replay.pairs_N(Turns(mixed)).tolist() == wanted.tolist()
    alone = turns.slice(0, LENGTHS[0])
    assert replay.pairs_N(Turns(alone)).tolist() == wanted[: LENGTHS[0]].tolist()


def test_words_that_move_from_the_observation_to_the_action_make_another_pair():
    turns, _ = spoken([1, 1], 0, goal=["g"] * 2, observation=["a b", "a"], action=["c", "b c"])
    one, two = replay.pairs_N(Turns(turns))
    assert one != two


@pytest.mark.parametrize("gamma", [0.0, 0.95, 1.0])
def test_the_target_is_the_mean_discounted_return_of_all_turns_with_the_same_pair(gamma):
    rounds = [spoken(LENGTHS, seed=seed) for seed in (0, 1)]
    joined = replay.join([replay.load(*tables, pairs=True)[1] for tables in rounds])
    got = agentprm.mean_outcomes(joined, gamma)[joined.present].numpy()
    outcomes: dict[tuple, list[float]] = {}
    keys = []
    for turns, _ in rounds:
        rows = turns.to_pylist()
        for row, key in zip(rows, pairs_by_hand(turns), strict=True):
            # Rewards are kept in single precision.
            ahead = [
                gamma ** (other["turn"] - row["turn"]) * float(np.float32(other["reward"]))
                for other in rows
                if other["rollout_id"] == row["rollout_id"] and other["turn"] >= row["turn"]
            ]
            outcomes.setdefault(key, []).append(sum(ahead))
            keys.append(key)
    assert max(len(found) for found in outcomes.values()) > 2
    np.testing.assert_allclose(got, [np.mean(outcomes[key]) for key in keys], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("lam", [0.0, 0.7, 0.95, 1.0])
def test_td_targets_are_the_papers_sums(lam):
    rng = np.random.default_rng(0)
    value, returns = rng.random((len(LENGTHS), max(LENGTHS))), rng.random(len(LENGTHS))
    tensors = (torch.from_numpy(value), torch.from_numpy(returns), torch.tensor(LENGTHS))
    promise, progress = agentprm_td.td_targets(*tensors, lam)
    for rollout, length in enumerate(LENGTHS):
        q, last = value[rollout], length - 1
        step = {t: (returns[rollout] if t == last else q[t]) - q[t - 1] for t in range(1, length)}
        advantages = [sum(lam ** (k - t) * step[k] for k in range(t, length)) for t in range(1, length)]
        assert progress[rollout, 1:length].tolist() == pytest.approx(advantages, abs=1e-9)
        for t in range(length):
            # The first turn's own Q_{t-1} cancels: A^_0 + Q_{-1} = Q_0 + the discounted steps after it.
            after = sum(lam ** (k - t) * step[k] for k in range(t + 1, length))
            wanted = returns[rollout] if t == last else q[t] + after
            assert float(promise[rollout, t]) == pytest.approx(wanted, abs=1e-9)


def test_td_losses_by_hand():
    """Two rollouts, of two turns and of one; returns 1 and 0; scale 2, so the shares are .5 and 0."""

    class Fixed(torch.nn.Module):
        scale = torch.tensor(2.0)

        def __init__(self) -> None:
            super().__init__()
            self.members = [lambda _: torch.logit(torch.tensor([[0.2, 0.4], [0.3, 0.9]]))]

        def forward(self, batch: replay.Rollouts) -> torch.Tensor:
            return self.scale * self.members[0](batch).sigmoid()

    batch = as_rollouts(np.zeros((2, 2, 3)), lengths=[2, 1], returns=[1, 0])
    parts = agentprm_td.KIND.losses(Fixed(), batch, AgentPRMTDSettings(lam=0.5, beta=3.0))
    # Q^ is .5 at the last turn, .5 * .2 + .5 * .5 = .35 before it, and 0 in the other rollout; A^ = .5 - .2.
    assert float(parts["promise"]) == pytest.approx((0.15**2 + 0.1**2 + 0.3**2) / 2 / 3)
    assert float(parts["progress"]) == pytest.approx(3.0 * (0.4 - 0.2 - 0.3) ** 2)


def test_targets_carry_no_gradient_and_dropout_stays_on_for_the_step():
    model = train.fresh("agentprm_td", AgentPRMTDSettings(hidden=8), HIDDEN_SIZE, 0)
    network = model.network.train()
    rollouts = noise_rollouts(lengths=[3, 2], returns=[1, 0]).take([0, 1], torch.device("cpu"))
    agentprm_td.KIND.losses(network, rollouts, model.settings)["promise"].backward()
    assert network.training
    assert all(part.training for part in network.modules())


def chances(rollouts: int, seed: int) -> replay.Rollouts:
    """Rollouts of three turns that begin with one of two actions: three of four that take the first one succeed."""
    rng = np.random.default_rng(seed)
    first_R = np.arange(rollouts) % 2 == 0
    won_R = rng.random(rollouts) < np.where(first_R, 0.75, 0.25)
    hidden = 0.1 * rng.normal(size=(rollouts, 3, HIDDEN_SIZE))
    hidden[:, :, 0] += np.where(first_R, 2.0, -2.0)[:, None]
    made = as_rollouts(hidden, lengths=[3] * rollouts, returns=won_R)
    later = 2 + np.arange(rollouts * 2).reshape(rollouts, 2)  # no later pair recurs
    return replace(made, pair=torch.from_numpy(np.column_stack([first_R.astype(np.int64), later])))


@pytest.mark.parametrize(
    ("kind", "settings", "discount"),
    [("agentprm", AgentPRMSettings(gamma=0.9), 0.81), ("agentprm_td", AgentPRMTDSettings(), 1.0)],
)
def test_q_of_the_first_action_is_how_often_it_succeeds(kind, settings, discount):
    learned = chances(512, seed=0)
    assert not train.fresh(kind, settings, HIDDEN_SIZE, seed=0).ready
    model = trained_on(kind, settings, learned)
    train.train(model, [learned], seed=0, round=3)
    value_N, _ = train.apply(model, chances(256, seed=1))
    first_RT = value_N.reshape(256, 3)[:, 0]
    assert first_RT[::2].mean() == pytest.approx(0.75 * discount, abs=0.12)
    assert first_RT[1::2].mean() == pytest.approx(0.25 * discount, abs=0.12)


@pytest.mark.parametrize(
    ("kind", "settings"), [("agentprm", AgentPRMSettings()), ("agentprm_td", AgentPRMTDSettings())]
)
def test_negative_returns_are_refused_by_the_methods_name(kind, settings):
    rollouts = replace(noise_rollouts(lengths=[3, 4], returns=[-1, 0]), pair=torch.arange(8).reshape(2, 4))
    with pytest.raises(UserError, match=f"^{kind} predicts returns from 0 up"):
        trained_on(kind, settings, rollouts)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("turn_value", TurnValueSettings()),
        ("agentprm", AgentPRMSettings()),
        ("agentprm_td", AgentPRMTDSettings()),
    ],
)
def test_reward_that_is_taken_back_is_learned_from_as_nothing_more_to_come(kind, settings):
    """ScienceWorld's score: .17, then .16, and a fatal mistake. In float32 they sum to -3e-8."""
    rollouts = replace(noise_rollouts(lengths=[3, 3], returns=[0, 0]), pair=torch.arange(6).reshape(2, 3))
    rollouts = replace(rollouts, reward=torch.tensor([[0.17, 0.16, -0.33], [0.0, 0.0, 0.0]]))
    assert float(rollouts.returns.min()) < 0
    model = trained_on(kind, settings, rollouts)
    value_N, _ = train.apply(model, rollouts)
    assert (value_N >= 0).all()
    assert still_to_come(rollouts.reward, 1.0)[0].tolist() == [0.0, 0.0, 0.0]


def test_rollouts_without_texts_are_refused():
    with pytest.raises(UserError, match="agentprm needs rollouts with `pair`"):
        agentprm.mean_outcomes(noise_rollouts(lengths=[2]), 1.0)
