"""Learned credit models.

1. What a model says of a rollout depends on nothing else: not on padding, not on the other rollouts in the batch.
2. A causal value of turn t depends on turns up to t alone.
3. With FiLM at its zero start a model equals the one without, exactly.
4. Projected credits sum to the return.
5. Training is the same for the same seed, and the same whether or not it passed through the disk.
6. turn_value finds a decisive turn that it was never told about; with shuffled outcomes it finds nothing.
7. A bidirectional TurnRD infers the outcome from a rollout's length or its last turn; the options that remove these
   shortcuts do remove them.
"""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from tests.credit.models.synthetic import HIDDEN_SIZE, as_rollouts, as_tables, noise_rollouts, trained_on
from turncredit.config import from_mapping
from turncredit.credit.models import critic, networks, replay, train, turnrd, value_head
from turncredit.credit.models.critic import CriticSettings
from turncredit.credit.models.settings import kinds, model_settings, replay_rounds
from turncredit.credit.models.turn_value import TurnValueSettings, widen
from turncredit.credit.models.turnrd import TurnRDSettings
from turncredit.credit.models.value_head import returns_to_go
from turncredit.credit.turnrd import v_projection
from turncredit.data import tables
from turncredit.data.seeding import generator
from turncredit.errors import UserError

CPU = torch.device("cpu")
EVERY = {
    **{name: (name, kind.settings) for name, kind in kinds().items()},
    "turnrd_causal": ("turnrd", TurnRDSettings(causal=True)),
    "turnrd_masked": ("turnrd", TurnRDSettings(mask_last_turn=True, equal_length=True)),
    "turn_value_linear": ("turn_value", TurnValueSettings(head="linear", film=True)),
    "turn_value_transformer": ("turn_value", TurnValueSettings(head="causal_transformer", ensemble=2)),
    "critic_linear": ("critic", CriticSettings(head="linear")),
}
CAUSAL = [name for name in EVERY if name not in {"turnrd", "turnrd_film", "turnrd_masked"}]


def stirred(name: str) -> train.CreditModel:
    """A model whose every parameter has been moved away from its start, so that nothing is zero by chance."""
    kind, settings = EVERY[name]
    model = train.fresh(kind, settings, HIDDEN_SIZE, seed=0)
    maker = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.network.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=maker))
    return model


def applied(model: train.CreditModel, rollouts: replay.Rollouts) -> np.ndarray:
    """V (R, T), NaN where there is no turn."""
    value_N, _ = train.apply(model, rollouts)
    out = np.full(rollouts.present.shape, np.nan)
    out[rollouts.present.numpy()] = value_N
    return out


# ---------------------------------------------------------------- independence


@pytest.mark.parametrize("name", EVERY)
def test_what_stands_after_a_rollouts_end_changes_nothing(name):
    model, clean = stirred(name), noise_rollouts(lengths=[3, 6, 1, 5])
    dirty = clean.hidden.clone()
    dirty[~clean.present] = 1000.0
    wider = replay._widened(clean.hidden, 9)
    present = replay._widened(clean.present, 9)
    value = applied(model, clean)
    assert np.array_equal(value, applied(model, replace(clean, hidden=dirty)), equal_nan=True)
    parts = {"reward": replay._widened(clean.reward, 9), "gain": None}
    shown = applied(model, replace(clean, hidden=wider, present=present, **parts))
    assert np.array_equal(value, shown[:, :6], equal_nan=True)


@pytest.mark.parametrize("name", EVERY)
def test_a_rollouts_values_do_not_depend_on_the_others(name):
    model, rollouts = stirred(name), noise_rollouts(lengths=[3, 6, 1, 5])
    together = applied(model, rollouts)
    for number, length in enumerate([3, 6, 1, 5]):
        alone = applied(model, rollouts.take([number], CPU))
        assert alone[0, :length] == pytest.approx(together[number, :length], abs=2e-5)


@pytest.mark.parametrize("name", CAUSAL)
def test_a_causal_value_does_not_know_how_its_rollout_goes_on(name):
    model, rollouts = stirred(name), noise_rollouts(lengths=[6, 6])
    changed = rollouts.hidden.clone()
    changed[:, 3:] = 7.0
    before, after = applied(model, rollouts), applied(model, replace(rollouts, hidden=changed))
    assert before[:, :3] == pytest.approx(after[:, :3], abs=1e-5)
    assert not np.allclose(before[:, 3:], after[:, 3:])


def test_a_bidirectional_turnrd_does_know():
    model, rollouts = stirred("turnrd"), noise_rollouts(lengths=[6, 6])
    changed = rollouts.hidden.clone()
    changed[:, 5] = 7.0
    assert not np.allclose(applied(model, rollouts)[:, 0], applied(model, replace(rollouts, hidden=changed))[:, 0])


# ---------------------------------------------------------------- FiLM, projection, losses by hand


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("turnrd", TurnRDSettings()),
        ("turn_value", TurnValueSettings()),
        ("turn_value", TurnValueSettings(head="linear")),
    ],
)
def test_film_starts_as_the_unconditioned_model_exactly(kind, settings):
    rollouts = noise_rollouts(lengths=[3, 6, 1, 5])
    plain = train.fresh(kind, settings, HIDDEN_SIZE, seed=3)
    film = train.fresh(kind, settings.model_copy(update={"film": True}), HIDDEN_SIZE, seed=3)
    for one, two in zip(train.apply(plain, rollouts), train.apply(film, rollouts), strict=True):
        assert np.array_equal(one, two, equal_nan=True)


def test_the_size_of_a_goals_vector_does_not_matter_to_film():
    film, goal = stirred("turnrd_film").network.film, torch.randn(2, HIDDEN_SIZE)
    for one, ten in zip(film.modulation(goal), film.modulation(10 * goal), strict=True):
        assert torch.allclose(one, ten, atol=1e-3)


def test_film_uses_the_goal_once_it_has_been_trained():
    model, rollouts = stirred("turnrd_film"), noise_rollouts(lengths=[4, 4])
    swapped = replace(rollouts, goal=rollouts.goal.flip(0))
    assert not np.allclose(applied(model, rollouts), applied(model, swapped))
    found = turnrd.probes(model.network.eval(), rollouts.take([0, 1], CPU), generator(0, "probe"))
    assert found["film_value_change"] > 0.01
    assert found["film_gamma"] > 0.01
    assert found["film_beta"] > 0.01


def test_projected_credits_sum_to_the_return_within_1e_5():
    lengths = list(np.random.default_rng(0).integers(1, 31, size=64))
    view, rollouts = replay.load(*as_tables(noise_rollouts(lengths=lengths, returns=np.arange(64) % 2)))
    for name in ("turnrd", "turnrd_film", "turnrd_causal"):
        value_N, weight_N = train.apply(stirred(name), rollouts)
        credit_N = v_projection(view, value_N, clip=2.0)
        assert np.abs(view.sum_R(credit_N) - view.return_R).max() < 1e-5
        assert view.sum_R(weight_N) == pytest.approx(1.0, abs=1e-5)


def test_turnrds_losses_by_hand():
    """Two rollouts, logits 0, values fixed: R^ is the mean of V."""

    class Fixed:
        def __call__(self, batch):
            logits = torch.zeros(2, 2).masked_fill(~batch.present, networks.MASKED)
            return logits, torch.tensor([[0.2, 0.4], [0.32, 99.0]])

    batch = as_rollouts(np.zeros((2, 2, 3)), lengths=[2, 1], returns=[1, 0])
    batch = replace(batch, gain=torch.tensor([[0.0, -0.5], [0.0, 0.0]]))
    settings = TurnRDSettings(lambda_rank=0.1, rank_margin=0.1, lambda_value=2.0, lambda_progress=0.01)
    parts = turnrd.KIND.losses(Fixed(), batch, settings)
    assert float(parts["return"]) == pytest.approx((0.7**2 + 0.32**2) / 2)
    assert float(parts["rank"]) == pytest.approx(0.1 * (0.1 - (0.3 - 0.32)))
    assert float(parts["value"]) == pytest.approx(2.0 * (0.2**2 + 0.9**2 + 0.32**2) / 3)
    assert float(parts["progress"]) == pytest.approx(0.01 * np.log(2))
    causal = turnrd.KIND.losses(Fixed(), batch, settings.model_copy(update={"causal": True}))
    assert float(causal["return"]) == pytest.approx(((0.8**2 + 0.7**2) / 2 + 0.32**2) / 2)


def test_turnrd_ranks_no_rollouts_whose_returns_differ_by_rounding_alone():
    """.3 + .3 + .3 is above .9 in float32, and .3 + .4 - .7 above 0."""

    def fixed(_):
        return torch.zeros(2, 3), torch.tensor([[0.0, 0.0, 0.0], [0.3, 0.3, 0.3]])

    settings = TurnRDSettings(lambda_rank=0.1, rank_margin=0.1, lambda_value=0, lambda_progress=0)
    batch = as_rollouts(np.zeros((2, 3, 3)), lengths=[3, 3], returns=[0, 0])
    for rewards, hinge in (
        ([[0.3, 0.3, 0.3], [0.0, 0.0, 0.9]], 0.0),
        ([[0.3, 0.4, -0.7], [0.0, 0.0, 0.0]], 0.0),
        ([[0.3, 0.3, 0.31], [0.0, 0.0, 0.9]], 0.1 * 0.4),
    ):
        rewarded = replace(batch, reward=torch.tensor(rewards))
        assert rewarded.returns[0] > rewarded.returns[1]
        assert float(turnrd.KIND.losses(fixed, rewarded, settings)["rank"]) == pytest.approx(hinge)


def test_the_critics_loss_is_the_larger_of_clipped_and_unclipped():
    batch = as_rollouts(np.zeros((1, 3, 2)), lengths=[2], returns=[0])
    batch = replace(batch, old=torch.zeros(1, 3), target=torch.tensor([[1.0, 1.0, 0.0]]))
    parts = critic.KIND.losses(lambda _: torch.tensor([[1.0, 0.3, 55.0]]), batch, CriticSettings(value_clip=0.5))
    # V 1 is right but 0.5 away from where clipping lets it go; V 0.3 is inside the clip.
    assert float(parts["value"]) == pytest.approx(0.5 * (0.5**2 + 0.7**2) / 2)


def test_returns_to_go_are_discounted_from_the_last_turn():
    reward = torch.tensor([[0.0, 0.0, 1.0], [0.5, 0.0, 0.0]])
    wanted = torch.tensor([[0.81, 0.9, 1.0], [0.5, 0.0, 0.0]])
    assert torch.allclose(returns_to_go(reward, 0.9), wanted)


def test_the_value_heads_copy_follows_by_its_share():
    head = networks.ValueHead(2)
    with torch.no_grad():
        head.head.weight.fill_(1.0)
    head.follow(0.25)
    head.follow(0.25)
    assert head.copy.weight.tolist() == [[pytest.approx(1 - 0.75**2)] * 2]
    states = noise_rollouts(lengths=[1]).take([0], CPU)
    states = replace(states, hidden=torch.ones(1, 1, 2))
    assert head(states).tolist() == [[pytest.approx(2 * (1 - 0.75**2))]]  # the copy's value, and not the head's


def test_the_value_heads_loss_is_over_turns_against_discounted_returns():
    rollouts = noise_rollouts(lengths=[2, 1]).take([0, 1], CPU)
    rollouts = replace(rollouts, reward=torch.tensor([[0.0, 1.0], [0.5, 0.0]]))
    head = networks.ValueHead(HIDDEN_SIZE)  # 0 everywhere
    loss = value_head.KIND.losses(head, rollouts, value_head.ValueHeadSettings(gamma=0.9))["value"]
    assert float(loss.detach()) == pytest.approx((0.9**2 + 1 + 0.5**2) / 3)


def test_an_ensemble_is_the_mean_of_its_members():
    rollouts = noise_rollouts(lengths=[4, 4]).take([0, 1], CPU)
    model = networks.TurnValue(HIDDEN_SIZE, ensemble=3, head="mlp", hidden=64, max_turns=50)
    wanted = torch.stack([torch.sigmoid(member(rollouts)) for member in model.members]).mean(0)
    assert torch.allclose(model(rollouts), wanted)
    assert not torch.allclose(model.members[0](rollouts), model.members[1](rollouts))


# ---------------------------------------------------------------- replay


def test_a_rollout_counts_half_after_four_rounds():
    assert replay.recency([1, 2, 1, 1, 1], half_life=4.0) == pytest.approx(
        [0.5, 0.5**0.75, 0.5**0.75, 0.5**0.5, 0.5**0.25, 1.0]
    )


def test_an_epoch_visits_the_newest_rollouts_once_and_older_ones_by_their_weight():
    weight_R = np.array([0.25] * 400 + [1.0] * 100)
    rng = np.random.default_rng(0)
    seen = np.concatenate(list(replay.epochs(weight_R, 1, 64, rng)))
    assert sorted(seen[seen >= 400]) == list(range(400, 500))
    assert len(seen) == len(set(seen))
    assert 70 <= (seen < 400).sum() <= 130
    again = np.concatenate(list(replay.epochs(weight_R, 1, 64, rng)))
    assert set(again[again < 400]) != set(seen[seen < 400])


def test_draws_follow_the_weights():
    drawn = np.concatenate(list(replay.draws(np.array([1.0, 3.0]), 50, 100, np.random.default_rng(0))))
    assert len(drawn) == 5000
    assert np.mean(drawn == 1) == pytest.approx(0.75, abs=0.03)


@pytest.mark.parametrize(("kind", "rounds"), [("turnrd", [1, 2, 3]), ("turn_value", [1, 2, 3]), ("critic", [3])])
def test_a_model_learns_from_rounds_before_its_own(kind, rounds):
    assert replay_rounds(kind, 4) == rounds
    assert replay_rounds(kind, 1) == []


def test_rollouts_are_read_in_order_from_tables_in_any_order():
    wanted = noise_rollouts(lengths=[3, 6, 1, 5], returns=[1, 0, 1, 0])
    turns, hiddens = as_tables(wanted, shuffle=True)
    measures = turns.select([*tables.KEYS, "progress_before", "progress"])
    measures = measures.take(np.random.default_rng(2).permutation(len(turns)))
    view, read = replay.load(turns.select(replay.COLUMNS), hiddens, measures=measures)
    assert view.length_R.tolist() == [3, 6, 1, 5]
    for name in ("hidden", "present", "reward", "goal", "gain"):
        assert torch.equal(getattr(read, name), getattr(wanted, name)), name


def test_a_critic_reads_what_it_said_and_what_it_should_have_said_and_progress_is_its_change():
    wanted = noise_rollouts(lengths=[3, 2])
    turns, hiddens = as_tables(wanted)
    before = pa.array(np.full(turns.num_rows, 0.25))
    turns = turns.set_column(turns.column_names.index("progress_before"), "progress_before", before)
    credits = credits_of(turns)
    _, read = replay.load(turns, hiddens, credits)
    for name, column in (("old", "value"), ("target", "value_target")):
        assert getattr(read, name)[read.present].tolist() == pytest.approx(credits[column].to_pylist(), abs=1e-6)
    assert torch.allclose(read.gain[read.present], wanted.gain[wanted.present] - 0.25)


def test_progress_is_no_part_of_rollouts_for_models_that_do_not_learn_from_it():
    turns, hiddens = as_tables(noise_rollouts(lengths=[3, 6]))
    assert replay.load(turns.select(replay.COLUMNS), hiddens)[1].gain is None


def test_rounds_of_different_lengths_are_joined_with_their_padding():
    one, two = noise_rollouts(lengths=[2, 3]), noise_rollouts(lengths=[5], seed=1)
    both = replay.join([one, two])
    assert both.lengths.tolist() == [2, 3, 5]
    assert torch.equal(both.hidden[:2, :3], one.hidden)
    assert torch.equal(both.take([2], CPU).hidden, two.hidden.float())
    assert both.take([0], CPU).hidden.shape[1] == 2


def test_a_cut_keeps_the_return_and_leaves_out_what_is_shorter():
    rollouts = noise_rollouts(lengths=[2, 4, 3], returns=[1, 1, 0])
    shorter = rollouts.cut(3)
    assert shorter.lengths.tolist() == [3, 3]
    assert shorter.returns.tolist() == [1.0, 0.0]
    assert torch.equal(shorter.hidden, rollouts.hidden[1:, :3])


# ---------------------------------------------------------------- stages


def experiment(**model) -> object:
    base = model.pop("base", "turn_value")
    return from_mapping({"define": {"mine": {"base": base, "model": model}}})


def trained(rounds, exp, *, seed=0):
    """The models of rounds 1 to len(rounds)+1, each made from the one before as it was saved."""
    kind, settings = model_settings(exp, "mine")
    models = []
    for number in range(1, len(rounds) + 2):
        learned = [rounds[at - 1] for at in replay_rounds(kind, number)]
        previous = copy.deepcopy(models[-1]) if models else None
        model, _ = train.next_model(
            kind, settings, previous=previous, rounds=learned, width=HIDDEN_SIZE, seed=seed, round=number
        )
        models.append(model)
    return models


def saved(model, folder):
    folder.mkdir(parents=True)
    train.save(model, folder)
    return folder


@pytest.fixture(scope="module")
def tables_of_rounds():
    """Two rounds of turns and hiddens."""
    return [
        as_tables(noise_rollouts(lengths=[4, 5, 6, 3] * 4, returns=[1, 0, 0, 1] * 4, seed=number)) for number in (1, 2)
    ]


@pytest.fixture(scope="module")
def rounds(tables_of_rounds):
    """The rollouts of these rounds."""
    return [replay.load(*tables)[1] for tables in tables_of_rounds]


@pytest.mark.slow
@pytest.mark.parametrize("model", [{"base": "has_turnrd_film", "batch": 8}, {"first_steps": 4, "steps": 3}])
def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(tmp_path, rounds, model):
    exp = experiment(**model)
    torch.manual_seed(1)
    one = saved(trained(rounds, exp)[-1], tmp_path / "a")
    torch.manual_seed(2)
    two = saved(trained(rounds, exp)[-1], tmp_path / "b")
    other = saved(trained(rounds, exp, seed=1)[-1], tmp_path / "c")
    for name in (train.WEIGHTS, train.MOMENTS, train.RECORD):
        assert (one / name).read_bytes() == (two / name).read_bytes()
    assert (one / train.WEIGHTS).read_bytes() != (other / train.WEIGHTS).read_bytes()


def test_training_through_the_disk_equals_training_in_one_process(tmp_path, rounds):
    kind, settings = model_settings(experiment(base="has_turnrd", batch=8), "mine")
    model = train.fresh(kind, settings, HIDDEN_SIZE, seed=0)
    last = train.load(saved(model, tmp_path / "1"))
    steps = 0.0
    for number in (2, 3):
        steps += train.train(model, rounds[: number - 1], seed=0, round=number)["steps"]
        train.train(last, rounds[: number - 1], seed=0, round=number)
        last = train.load(saved(last, tmp_path / str(number)))
    assert last.steps == model.steps == steps > 0
    state = model.network.state_dict()
    for name, tensor in last.network.state_dict().items():
        assert torch.equal(tensor, state[name]), name
    assert set(last.moments) == set(model.moments)
    for name, tensor in model.moments.items():
        assert torch.equal(tensor, last.moments[name]), name


def test_values_come_in_the_order_of_the_turns():
    rollouts = noise_rollouts(lengths=[4, 5, 6, 3], returns=[1, 0, 0, 1])
    plain, mixed = as_tables(rollouts), as_tables(rollouts, shuffle=True)
    model = trained([replay.load(*plain)[1]], experiment(base="has_turnrd"))[-1]
    found = []
    for turns, hiddens in (plain, mixed):
        table, _ = train.values_table(model, *replay.load(turns, hiddens), seed=0, round=2)
        assert all(table.column(key).equals(turns.column(key)) for key in tables.KEYS)
        rows = zip(*(table.column(name).to_pylist() for name in ("rollout_id", "turn", "value", "weight")), strict=True)
        found.append(sorted(rows))
    assert found[0] == found[1]


def test_a_return_that_was_taken_back_is_not_positive_for_the_measure_of_values():
    turns, hiddens = as_tables(noise_rollouts(lengths=[3, 3]))
    rewards = pa.array([0.1, 0.2, -0.3, 0.0, 0.0, 0.0])
    turns = turns.set_column(turns.column_names.index("reward"), "reward", rewards)
    model = train.fresh("critic", CriticSettings(), HIDDEN_SIZE, seed=0)
    _, metrics = train.values_table(model, *replay.load(turns, hiddens), seed=0, round=1)
    assert "value_auc" not in metrics, "both rollouts ended alike"


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ({"base": "turn_value"}, [False, True]),
        ({"base": "value_baseline"}, [False, False]),  # 5 steps, and it warms up for 10
        ({"base": "value_baseline", "batch": 8}, [False, True]),
        ({"base": "has_turnrd"}, [True, True]),
        ({"base": "ppo"}, [True, True]),
    ],
)
def test_a_model_says_nothing_until_it_has_learned_where_its_method_waits(tables_of_rounds, model, says):
    (turns, hiddens), unseen = tables_of_rounds
    credits = credits_of(turns) if model["base"] == "ppo" else None
    models = trained([replay.load(turns, hiddens, credits)[1]], experiment(**model))
    made = [train.values_table(model, *replay.load(*unseen), seed=0, round=1)[0] for model in models]
    wanted = [0 if told else unseen[0].num_rows for told in says]
    assert [table.column("value").null_count for table in made] == wanted


def test_a_model_is_not_trained_on_other_rounds_than_its_own(rounds):
    kind, settings = model_settings(experiment(), "mine")
    first = train.fresh(kind, settings, HIDDEN_SIZE, seed=0)
    with pytest.raises(UserError, match=r"learns from rounds \[1, 2\], but 1 were given"):
        train.next_model(kind, settings, previous=first, rounds=rounds[:1], width=HIDDEN_SIZE, seed=0, round=3)


def credits_of(turns, seed=0):
    """A credits table with random values and targets."""
    rng = np.random.default_rng(seed)
    table = turns.select(tables.KEYS)
    for name in ("advantage", "value", "value_target"):
        table = table.append_column(name, [rng.normal(size=turns.num_rows)])
    return table


def test_a_critic_starts_at_zero_and_moves_towards_its_targets():
    rollouts = noise_rollouts(lengths=[4, 5, 6, 3] * 16, seed=5)
    turns, hiddens = as_tables(rollouts)
    settings = CriticSettings(epochs=40, batch=16)
    model = train.fresh("critic", settings, HIDDEN_SIZE, seed=0)
    assert not applied(model, rollouts)[rollouts.present.numpy()].any()
    _, loaded = replay.load(turns, hiddens, credits_of(turns))
    target = loaded.hidden[..., 0].float()
    metrics = train.train(model, [replace(loaded, target=target, old=target)], seed=0, round=2)
    assert metrics["loss"] < 0.25  # from .5, half the targets' variance


# ---------------------------------------------------------------- what the models find


def decisive(rollouts: int, seed: int) -> tuple[replay.Rollouts, np.ndarray]:
    """Rollouts of 10 turns; in half of them a fact becomes visible at a random turn, and 9 in 10 of these succeed.

    Of the others 1 in 10 does. Returns the rollouts and, for each turn, whether the fact appeared right after it.
    """
    rng = np.random.default_rng(seed)
    turns = 10
    at_R = np.where(rng.random(rollouts) < 0.5, rng.integers(1, turns, size=rollouts), turns)
    hidden = rng.normal(size=(rollouts, turns, HIDDEN_SIZE))
    seen_RT = np.arange(turns) >= at_R[:, None]
    hidden[..., 0] = 2.0 * seen_RT + 0.3 * hidden[..., 0]
    won_R = rng.random(rollouts) < np.where(at_R < turns, 0.9, 0.1)
    found_RT = (np.arange(turns) == at_R[:, None] - 1) & (at_R < turns)[:, None]
    return as_rollouts(hidden, lengths=[turns] * rollouts, returns=won_R), found_RT


def mean_rank_correlation(value_RT: np.ndarray, found_RT: np.ndarray) -> float:
    """Within a rollout, of the value's increments with where the fact was found; over rollouts where it was."""
    rows = np.flatnonzero(found_RT.any(1))
    increments = np.diff(value_RT, axis=1)
    return float(np.mean([spearmanr(increments[row], found_RT[row, :-1]).statistic for row in rows]))


@pytest.mark.parametrize("head", ["linear", "mlp", "causal_transformer"])
def test_turn_value_finds_the_decisive_turn_from_outcomes_alone(head):
    learned, _ = decisive(256, seed=0)
    unseen, found_RT = decisive(128, seed=1)
    settings = TurnValueSettings(head=head, hidden=32)
    model = trained_on("turn_value", settings, learned)
    # A single 1 among nine places: a perfect ranking has the rank correlation .55.
    assert mean_rank_correlation(applied(model, unseen), found_RT) > 0.35


def test_turn_value_finds_nothing_in_shuffled_outcomes():
    learned, _ = decisive(256, seed=0)
    shuffled = replace(learned, reward=learned.reward[torch.randperm(256, generator=torch.Generator().manual_seed(0))])
    unseen, _ = decisive(128, seed=1)
    model = trained_on("turn_value", TurnValueSettings(hidden=32), shuffled)
    honest = trained_on("turn_value", TurnValueSettings(hidden=32), learned)
    spread = [np.nanstd(applied(which, unseen)) for which in (model, honest)]
    assert spread[0] < 0.35 * spread[1]


def return_error(learned: replay.Rollouts, unseen: replay.Rollouts, **settings) -> float:
    """Mean squared error of R^ against R on unseen rollouts; .25 is the variance of R."""
    chosen = TurnRDSettings(hidden=32, layers=1, epochs=30, lr=3e-3, lambda_value=0, lambda_progress=0, **settings)
    model = trained_on("turnrd", chosen, learned)
    with torch.no_grad():
        predicted = networks.predicted_return(*model.network.eval()(unseen.take(np.arange(len(unseen)), CPU)))
    return float((predicted - unseen.returns).square().mean())


@pytest.mark.slow
def test_a_bidirectional_turnrd_reads_the_outcome_off_the_length_and_honest_variants_cannot():
    """Nothing but noise in the states; a rollout ends after 6 turns if it succeeds and after 10 if it fails."""
    won = np.arange(128) % 2 == 0
    learned, unseen = (noise_rollouts(lengths=np.where(won, 6, 10), returns=won, seed=seed) for seed in (0, 1))
    assert return_error(learned, unseen) < 0.05
    assert return_error(learned, unseen, mask_last_turn=True) < 0.05  # the length is still there
    # After six turns nothing is known, after ten that it has failed: half of the variance remains at best.
    assert return_error(learned, unseen, causal=True) > 0.1
    assert return_error(learned, unseen, equal_length=True) > 0.1


@pytest.mark.slow
def test_a_bidirectional_turnrd_reads_the_outcome_off_the_last_turn_unless_it_is_masked():
    won = np.arange(128) % 2 == 0
    both = []
    for seed in (0, 1):
        rollouts = noise_rollouts(lengths=[8] * 128, returns=won, seed=seed)
        hidden = rollouts.hidden.clone()
        hidden[:, 7, 0] = torch.from_numpy(np.where(won, 5.0, -5.0)).to(hidden.dtype)
        both.append(replace(rollouts, hidden=hidden))
    assert return_error(*both) < 0.05
    assert return_error(*both, mask_last_turn=True) > 0.2


def test_a_minibatch_is_cut_to_any_length_up_to_that_of_a_rollout():
    rng, batch = np.random.default_rng(0), noise_rollouts(lengths=[3, 3])
    assert {turnrd.equal_length(batch, rng).present.shape[1] for _ in range(50)} == {1, 2, 3}


def test_how_much_worse_a_model_gets_with_another_goal_by_hand():
    """V is the first number of the goal, 1 and 2; each return is .1 above its own, each change of progress .5."""

    class Fixed:
        position = torch.zeros(1)

        def __init__(self):
            self.film = SimpleNamespace(modulation=lambda goal: (torch.zeros_like(goal), torch.zeros_like(goal)))

        def __call__(self, rollouts):
            return torch.zeros(2, 1), rollouts.goal[:, :1] if self.film else torch.zeros(2, 1)

    batch = as_rollouts(np.zeros((2, 1, 3)), lengths=[1, 1], returns=[1.1, 2.1])
    goal = torch.tensor([[1.0, 0, 0], [2.0, 0, 0]])
    found = turnrd.probes(Fixed(), replace(batch, goal=goal, gain=goal[:, :1] + 0.5), np.random.default_rng(0))
    assert found["film_shuffled_return"] == pytest.approx((0.9**2 + 1.1**2) / 2 / 0.1**2 - 1, rel=1e-4)
    assert found["film_shuffled_worse"] == 1
    assert found["film_shuffled_value"] == pytest.approx((0.5**2 + 1.5**2) / 2 / 0.5**2 - 1)
    assert found["film_value_change"] == 1


@given(st.lists(st.integers(0, 3), min_size=2, max_size=40), st.integers(0, 5))
def test_a_shuffled_goal_is_another_goal(goal_R, seed):
    goals_RH = np.array(goal_R)[:, None] * np.ones(3)
    other_R = turnrd.other_goal_R(goals_RH, np.random.default_rng(seed))
    assert (other_R is None) == (len(set(goal_R)) == 1)
    moved_RH = goals_RH + 1 if other_R is None else goals_RH[other_R]
    assert (moved_RH != goals_RH).all()


def test_every_rollout_with_another_goal_can_be_drawn():
    goals_RH, rng = np.array([[0.0], [1.0], [0.0], [2.0]]), np.random.default_rng(0)
    drawn = np.array([turnrd.other_goal_R(goals_RH, rng) for _ in range(200)])
    assert [sorted(set(column.tolist())) for column in drawn.T] == [[1, 3], [0, 2, 3], [1, 3], [0, 1, 2]]


# ---------------------------------------------------------------- mistakes


def test_a_misspelt_setting_is_named_with_its_neighbour():
    with pytest.raises(UserError, match=r"unknown key 'define.mine.model.ensembel' .did you mean 'ensemble'"):
        model_settings(experiment(ensembel=2), "mine")


def test_settings_for_a_method_without_a_model_are_refused():
    exp = from_mapping({"define": {"mine": {"base": "flat_grpo", "model": {"film": True}}}})
    with pytest.raises(UserError, match="no learned credit model"):
        model_settings(exp, "mine")


def test_heads_divide_the_size_of_a_transformer_and_nothing_else():
    assert model_settings(experiment(hidden=10), "mine")[1].hidden == 10
    with pytest.raises(UserError, match=r"hidden \(10\) must be a multiple of heads \(4\)"):
        model_settings(experiment(hidden=10, head="causal_transformer"), "mine")


def test_a_rollout_longer_than_the_model_reads_is_refused():
    with pytest.raises(UserError, match="6 turns, but the credit model's max_turns is 4"):
        applied(train.fresh("turnrd", TurnRDSettings(max_turns=4), HIDDEN_SIZE, 0), noise_rollouts(lengths=[6]))


def test_progress_losses_without_progress_are_refused():
    rollouts = replace(noise_rollouts(lengths=[3, 4]), gain=None)
    with pytest.raises(UserError, match="lambda_value and lambda_progress need turns with progress"):
        trained_on("turnrd", TurnRDSettings(lambda_value=1.0), rollouts)


def test_turn_value_refuses_negative_returns():
    with pytest.raises(UserError, match="a rollout's return is -1;"):
        trained_on("turn_value", TurnValueSettings(), noise_rollouts(lengths=[3, 4], returns=[-1, 0]))


def test_turn_value_predicts_what_is_still_to_come():
    rollouts = noise_rollouts(lengths=[3, 2], returns=[0.5, 0]).take(np.arange(2), torch.device("cpu"))
    rollouts = replace(rollouts, reward=rollouts.reward + torch.tensor([[0.25, 0.0, 0.0], [1.0, 0.0, 0.0]]))
    network = train.fresh("turn_value", TurnValueSettings(dropout=0.0), HIDDEN_SIZE, 0).network
    logit = network.members[0](rollouts)[rollouts.present]
    to_go = torch.tensor([0.75, 0.5, 0.5, 1.0, 0.0])
    want = torch.nn.functional.binary_cross_entropy_with_logits(logit, to_go)
    kind = kinds()["turn_value"]
    loss = kind.losses(network, rollouts, TurnValueSettings())["outcome"]
    assert float(loss.detach()) == pytest.approx(float(want.detach()))
    late = replace(rollouts, reward=torch.tensor([[-1.0, 0.0, 2.0], [0.0, 0.0, 0.0]]))  # a return of 1, and 2 to come
    kind.before_training(network, late, TurnValueSettings())
    assert float(network.scale) == 2
    want = torch.nn.functional.binary_cross_entropy_with_logits(logit, to_go / 2)
    loss = kind.losses(network, rollouts, TurnValueSettings())["outcome"]
    assert float(loss.detach()) == pytest.approx(float(want.detach()))


def test_the_range_of_turn_value_never_shrinks():
    network = train.fresh("turn_value", TurnValueSettings(), HIDDEN_SIZE, 0).network
    for largest, known in ((0.5, 1.0), (10.0, 10.0), (2.0, 10.0)):
        widen(network, torch.tensor([0.0, largest]))
        assert float(network.scale) == known


def test_turn_values_of_a_ten_point_reward_are_on_its_scale():
    rollouts, _ = decisive(128, seed=0)
    rollouts = replace(rollouts, reward=10 * rollouts.reward)
    model = trained_on("turn_value", TurnValueSettings(hidden=32), rollouts)
    assert 7 < applied(model, rollouts).max() <= 10


def test_a_damaged_or_foreign_model_is_one_clear_line(tmp_path, rounds):
    folder = saved(trained(rounds[:1], experiment())[0], tmp_path / "model")
    with pytest.raises(UserError, match=r"not a credit model \(model\.json is missing\)"):
        train.load(tmp_path / "nowhere")
    _, others = model_settings(experiment(ensemble=2), "mine")
    with pytest.raises(UserError, match=r"written with other settings \(ensemble\)"):
        train.check_settings(train.load(folder), others, folder)
    wide = replace(rounds[0], hidden=torch.zeros(16, 6, HIDDEN_SIZE + 1))
    with pytest.raises(UserError, match="9 numbers per turn, but the credit model reads 8"):
        train.check_width(train.load(folder), wide, "hiddens")
    weights = (folder / train.WEIGHTS).read_bytes()
    (folder / train.WEIGHTS).write_bytes(weights[:100])
    with pytest.raises(UserError, match="not a readable credit model"):
        train.load(folder)
    (folder / train.WEIGHTS).write_bytes(weights)
    record = json.loads((folder / train.RECORD).read_text())
    for damage in ({"width": 7}, {"kind": "nothing"}, {"settings": {"read": "nobody"}}):
        (folder / train.RECORD).write_text(json.dumps({**record, **damage}))
        with pytest.raises(UserError, match="not a readable credit model") as caught:
            train.load(folder)
        assert "\n" not in str(caught.value)
