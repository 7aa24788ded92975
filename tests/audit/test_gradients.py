"""Signal and noise of policy gradients.

1. The gradients are those of the update's own loss.
2. The measures are free of bias where the truth is known, and their intervals hold.
3. A projection of many parameters changes inner products by about a percent.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import torch
from scipy.stats import t as student

from tests import tiny
from tests.rows import branch_row
from turncredit.audit import gradients as module
from turncredit.audit.gradients import GroupSums, coefficients, measures, rollout_gradients
from turncredit.data import provenance, tables
from turncredit.errors import UserError
from turncredit.pipeline.plan import Plan
from turncredit.policy import models
from turncredit.policy.open import OpenPolicy
from turncredit.training.losses import clipped, token_weights
from turncredit.training.sequences import rollout_numbers, sequences_of, stack, token_logprobs
from turncredit.training.update import training_set

SETTINGS = {"skip_dead_groups": False, "minibatch": 4}


def settings(**changes):
    """`update` as the configuration has it."""
    return tiny.experiment(update={**SETTINGS, **changes}).update


@pytest.fixture(scope="module")
def credits(world):
    """Credits of three methods: one constant in each rollout, one that differs by turn, and the first one again."""
    turns = tables.read(world.path("turns"), "turns")
    rng = np.random.default_rng(0)
    number = np.array(rollout_numbers(turns))
    advantage = {
        "flat_grpo": rng.normal(size=number.max() + 1)[number],
        "oracle_progress": rng.normal(size=len(number)),
    }
    advantage["again"] = advantage["flat_grpo"] * 3
    tables_of = {}
    for method, advantage_N in advantage.items():
        columns = {key: turns.column(key) for key in tables.KEYS}
        tables_of[method] = pa.table({**columns, "method": [method] * len(number), "advantage": advantage_N})
    return tables_of


def all_gradients(world, credits, update, monkeypatch, dimensions=10**9):
    """Each method's coefficients, and its gradients by rollout (M, R, D)."""
    monkeypatch.setattr(module, "DIMENSIONS", dimensions)
    turns = tables.read(world.path("turns"), "turns")
    rollout_N = np.array(rollout_numbers(turns))
    made = {name: coefficients(turns, credit, rollout_N, update, name) for name, credit in credits.items()}
    model = models.load_model(world.path("sft_policy"), dtype="float32", trainable=True).eval()
    matrix_NM = np.stack([method.turn_N for method in made.values()], axis=1)
    sequences = sequences_of(turns)
    found = dict(rollout_gradients(model, sequences, rollout_N, matrix_NM, 1.0, update.tokens_per_pass))
    return made, np.stack([found[rollout] for rollout in sorted(found)], axis=1)


def gradient_of_the_updates_loss(world, credit, update):
    """By the update's own functions, all live rollouts as one minibatch."""
    turns = tables.read(world.path("turns"), "turns")
    sequences, advantage_N, temperature = training_set(turns, credit, update)
    model = models.load_model(world.path("sft_policy"), dtype="float32", trainable=True).eval()
    ids, turn, sampled = stack(sequences, torch.device("cpu"))
    logprobs = token_logprobs(model, ids, turn >= 0, temperature)
    at = (turn >= 0)[:, 1:]
    rows = torch.repeat_interleave(torch.arange(len(sequences)), at.sum(1))
    advantage = torch.from_numpy(advantage_N).float()[turn[:, 1:][at]]
    loss_N, _ = clipped(logprobs, sampled[:, 1:][at], advantage, low=0.2, high=0.28)
    (loss_N * token_weights(rows, update.loss_aggregation)).sum().backward()
    return np.concatenate([p.grad.numpy().ravel() for p in models.trained_parameters(model).values()])


@pytest.mark.parametrize("aggregation", ["token-mean", "seq-mean-token-mean", "token-sum"])
def test_the_mean_of_the_rollouts_gradients_is_the_gradient_of_the_updates_loss(
    world, credits, aggregation, monkeypatch
):
    update = settings(loss_aggregation=aggregation)
    _, gradient_MRD = all_gradients(world, credits, update, monkeypatch)
    for number, credit in enumerate(credits.values()):
        loss = gradient_of_the_updates_loss(world, credit, update)
        # A sum over tokens grows with the minibatch; the others are means.
        scale = 4 / gradient_MRD.shape[1] if aggregation == "token-sum" else 1
        mean = gradient_MRD[number].mean(0)
        assert np.linalg.norm(mean + scale * loss) < 1e-3 * np.linalg.norm(mean)


def test_cutting_a_rollout_into_passes_changes_nothing(world, credits, monkeypatch):
    _, whole = all_gradients(world, credits, settings(), monkeypatch)
    _, parts = all_gradients(world, credits, settings(tokens_per_pass=1), monkeypatch)
    np.testing.assert_allclose(whole, parts, atol=1e-5)


def test_a_projection_keeps_inner_products_to_about_its_width(world, credits, monkeypatch):
    _, exact = all_gradients(world, credits, settings(), monkeypatch)
    _, projected = all_gradients(world, credits, settings(), monkeypatch, dimensions=4096)
    assert projected.shape[2] == 4096 < exact.shape[2]
    rows, columns = exact.reshape(-1, exact.shape[2]), projected.reshape(-1, 4096)
    sizes = np.linalg.norm(rows, axis=1)
    error = (columns @ columns.T - rows @ rows.T) / np.outer(sizes, sizes)
    assert np.abs(error).max() < 0.15
    assert np.sqrt(np.mean(error**2)) < 2 * np.sqrt(2 / 4096)


def test_rollouts_that_the_update_leaves_out_do_not_count(world, credits):
    turns = tables.read(world.path("turns"), "turns")
    rollout_N = np.array(rollout_numbers(turns))
    score_GR = np.bincount(rollout_N, turns.column("reward").to_numpy()).reshape(4, 4)
    alive_R = np.repeat(np.ptp(score_GR, axis=1) > 0, 4)
    assert 0 < alive_R.sum() < 16, "some groups of the tiny experiment are dead, some are not"
    kept = coefficients(turns, credits["flat_grpo"], rollout_N, settings(), "flat_grpo")
    dead = coefficients(turns, credits["flat_grpo"], rollout_N, settings(skip_dead_groups=True), "flat_grpo")
    assert kept.live_R.all()
    assert kept.turn_N.all()
    np.testing.assert_array_equal(dead.live_R, alive_R)
    np.testing.assert_array_equal(dead.turn_N != 0, alive_R[rollout_N])


def branches_of(turns, chosen, advantage_N):
    """A `branches` table of the turns of the rollouts `chosen`."""
    keys = turns.select(list(tables.KEYS)).to_pylist()
    number = rollout_numbers(turns)
    rows = [
        branch_row(key, v=0.0, q=float(advantage))
        for key, rollout, advantage in zip(keys, number, advantage_N, strict=True)
        if rollout in chosen
    ]
    return pa.Table.from_pylist(rows, schema=tables.schema("branches"))


def test_true_advantages_are_weighted_by_how_rarely_their_outcome_was_branched(world):
    turns = tables.read(world.path("turns"), "turns")
    number = np.array(rollout_numbers(turns))
    success_N = turns.column("success").to_numpy(zero_copy_only=False)
    won, lost = (np.unique(number[success_N == outcome])[:1] for outcome in (True, False))
    truth_N = np.random.default_rng(0).normal(size=len(number))
    chosen = {int(won[0]), int(lost[0])}
    made_N = module.true_credit(turns, branches_of(turns, chosen, truth_N)).column("advantage").to_numpy()
    for rollout, outcome in ((won[0], True), (lost[0], False)):
        mine_N = number == rollout
        weight = (success_N == outcome).sum() / mine_N.sum()
        np.testing.assert_allclose(made_N[mine_N], weight * truth_N[mine_N])
    assert not made_N[~np.isin(number, list(chosen))].any()
    other = branches_of(turns, {int(won[0])}, truth_N).set_column(
        0, "group_id", pa.array(["elsewhere"] * int((number == won[0]).sum()))
    )
    with pytest.raises(UserError, match="give tables of the same rollouts"):
        module.true_credit(turns, other)


def test_credit_that_is_the_truth_has_its_direction(world):
    """All rollouts branched: the truth's gradient is that of a method whose credit is the truth."""
    turns = tables.read(world.path("turns"), "turns")
    rng = np.random.default_rng(0)
    good_N = rng.normal(size=turns.num_rows)
    columns = {key: turns.column(key) for key in tables.KEYS}
    made = {
        "exact": pa.table({**columns, "advantage": good_N * 2}),
        "opposite": pa.table({**columns, "advantage": -good_N}),
    }
    everyone = set(rollout_numbers(turns))
    policy = OpenPolicy(world.path("sft_policy"), dtype="float32")
    found, _ = module.gradients(
        policy, turns, made, dict.fromkeys(made, settings()), tokens_per_pass=512,
        branches=branches_of(turns, everyone, good_N), truth_loss=settings(),
    )  # fmt: skip
    cosine = {row["method"]: row["value"] for row in found.to_pylist() if row["measure"] == "cosine_truth"}
    assert cosine == pytest.approx({"exact": 1.0, "opposite": -1.0}, abs=1e-4)
    assert module.TRUTH not in {row["method"] for row in found.to_pylist()}


def gradients_of(world, folder, credits):
    """The rows that the stage writes for these credits, by method and measure, and what it measured."""
    turns = tables.read(world.path("turns"), "turns")
    truth = branches_of(turns, {0, 5, 9, 14}, np.random.default_rng(1).normal(size=turns.num_rows))
    tables.write(truth, folder / "branches.parquet", "branches", provenance.record("test"))
    paths = [folder / f"{method}.parquet" for method in credits]
    for path, credit in zip(paths, credits.values(), strict=True):
        tables.write(credit, path, "credits", provenance.record("test"))
    audit = {"rounds": [1], "methods": list(credits)}
    changes = {"define": {"again": {"base": "flat_grpo"}}, "update": SETTINGS, "audit": audit}
    made = world.run("gradients", world.turns, folder, changes, credits=paths, branches=folder / "branches.parquet")
    rows = tables.read(made.output["gradients"], "gradients").to_pylist()
    return {(row["method"], row["measure"]): row for row in rows}, made.metrics


def test_the_stage_writes_every_method_and_equal_methods_alike(world, credits, tmp_path):
    found, metrics = gradients_of(world, tmp_path, credits)
    assert (metrics["rollouts"], metrics["groups"]) == (16, 4)
    assert {method for method, _ in found} == set(credits)
    for measure in ("signal", "noise", "snr"):
        one, two = found["flat_grpo", measure], found["again", measure]
        assert one["value"] == pytest.approx(two["value"], rel=1e-4, abs=1e-9), "three times the advantages, one RMS"
    assert found["oracle_progress", "noise"]["value"] > 0
    assert {measure for _, measure in found} >= set(module.REFERENCES)
    assert all(row["low"] is None or row["low"] <= row["value"] <= row["high"] for row in found.values())


def test_the_stage_leaves_out_turns_that_the_update_does_not_learn_from(world, credits, tmp_path):
    """Whatever their advantage is: here it is ten times larger under the second method."""
    trained_N = np.arange(credits["flat_grpo"].num_rows) % 2
    advantage_N = credits["flat_grpo"].column("advantage").to_numpy()
    changed = {}
    for method, outside in (("flat_grpo", 1.0), ("again", 10.0)):
        columns = {name: credits[method].column(name) for name in (*tables.KEYS, "method")}
        mine_N = np.where(trained_N, advantage_N, outside * advantage_N)
        changed[method] = pa.table({**columns, "trained": trained_N.astype(float), "advantage": mine_N})
    found, _ = gradients_of(world, tmp_path, changed)
    for measure in ("signal", "noise"):
        one, two = (found[method, measure]["value"] for method in changed)
        assert one == pytest.approx(two, rel=1e-4, abs=1e-9)


def test_the_stage_runs_again_for_what_changes_the_loss_and_for_nothing_else():
    def read(**update):
        audit = {"rounds": [1], "methods": ["flat_grpo"]}
        plan = Plan(tiny.experiment(audit=audit, update=update))
        return plan.slice("gradients", plan.turns_at("flat_grpo", 0, 1))

    assert read() == read(lr=1e-2, clip_low=0.1)
    for change in ({"minibatch": 3}, {"loss_aggregation": "token-sum"}, {"skip_dead_groups": True}):
        assert read() != read(**change), change


# ---------------------------------------------------------------------- measures of known gradients


def drawn(rng, mean_D, groups=40, rollouts=6, minibatch=8, shared=0.0):
    """Group sums of gradients N(mean, I) whose groups share a part of the size `shared`."""
    g_GRD = mean_D + rng.normal(size=(groups, rollouts, len(mean_D)))
    g_GRD = g_GRD + shared * rng.normal(size=(groups, 1, len(mean_D)))
    return GroupSums(g_GRD.sum(1), (g_GRD**2).sum((1, 2)), np.full(groups, rollouts), minibatch), g_GRD


def test_signal_and_noise_are_free_of_bias_and_their_intervals_hold():
    rng = np.random.default_rng(0)
    mean_D = np.full(50, 0.2 / np.sqrt(50))
    held, signals, noises = 0, [], []
    for _ in range(200):
        found = measures({"m": drawn(rng, mean_D, shared=0.3)[0]}, "m")
        signals.append(found["signal"][0])
        noises.append(found["noise"][0])
        held += found["signal"][1] <= 0.04 <= found["signal"][2]
    assert np.mean(signals) == pytest.approx(0.04, abs=4 * np.std(signals) / np.sqrt(200))
    # Each rollout has the variance 1 + 0.3^2 in 50 dimensions; a minibatch is the mean of 8.
    assert np.mean(noises) == pytest.approx(50 * 1.09 / 8, rel=0.02)
    assert held / 200 >= 0.93


def test_pure_noise_has_no_signal_although_groups_share_a_baseline():
    rng = np.random.default_rng(1)
    found = [measures({"m": drawn(rng, np.zeros(50), shared=1.0)[0]}, "m")["snr"] for _ in range(100)]
    assert np.mean([value for value, _, _ in found]) == pytest.approx(0, abs=0.01)
    assert np.mean([low <= 0 <= high for _, low, high in found]) >= 0.93


def test_the_signal_is_the_mean_product_of_halves_over_all_ways_to_split_the_groups():
    sums, g_GRD = drawn(np.random.default_rng(2), np.full(5, 0.3), groups=4, rollouts=2)
    mean_GD = g_GRD.mean(1)
    products = []
    for half in ([0, 1], [0, 2], [0, 3]):
        rest = [group for group in range(4) if group not in half]
        products.append(mean_GD[half].mean(0) @ mean_GD[rest].mean(0))
    assert measures({"m": sums}, "m")["signal"][0] == pytest.approx(np.mean(products))


def test_the_jackknifes_interval_of_a_mean_is_students():
    value_G = np.array([1.0, 2, 4, 7])
    without_G = (value_G.sum() - value_G) / 3
    found = module._jackknife(np.array([value_G.mean(), *without_G]))
    half = student.ppf(0.975, 3) * value_G.std(ddof=1) / 2
    assert found == pytest.approx((3.5, 3.5 - half, 3.5 + half))


def test_noise_is_what_the_squared_lengths_have_beyond_the_signal():
    # Gradients 2 and 4: the pair's product is 8, the mean square 10, and their variance 2.
    sums = GroupSums(np.array([[2.0], [4.0]]), np.array([4.0, 16]), np.array([1, 1]), 1)
    found = {name: numbers[0] for name, numbers in measures({"m": sums}, "m").items()}
    assert (found["signal"], found["noise"], found["snr"]) == pytest.approx((8, 2, 4))


def test_pairs_of_rollouts_are_counted_by_both_methods_live_ones():
    one = GroupSums(np.array([[2.0], [4.0]]), np.zeros(2), np.array([1, 2]), 8)
    two = GroupSums(np.array([[3.0], [5.0]]), np.zeros(2), np.array([3, 1]), 8)
    assert module._signal(one, two)[0] == pytest.approx((2 * 5 + 4 * 3) / (1 * 1 + 2 * 3))


def test_cosines_are_those_of_the_mean_gradients_not_of_their_noise():
    rng = np.random.default_rng(3)
    flat_D, oracle_D = np.zeros(200), np.zeros(200)
    flat_D[0], oracle_D[:2] = 1.0, [0.6, 0.8]
    cosines, same = [], []
    for _ in range(60):
        flat, g_GRD = drawn(rng, flat_D)
        # The same noise in both: their gradients come from the same rollouts.
        g_GRD = g_GRD - flat_D + oracle_D
        oracle = GroupSums(g_GRD.sum(1), (g_GRD**2).sum((1, 2)), flat.count_G, 8)
        found = measures({"flat_grpo": flat, "oracle_progress": oracle}, "oracle_progress")
        cosines.append(found["cosine_flat"][0])
        same.append(found["cosine_oracle"])
    assert np.mean(cosines) == pytest.approx(0.6, abs=0.06)
    np.testing.assert_allclose(same, 1.0)


def test_noise_takes_cosines_beyond_1_where_they_stay_so_that_methods_are_not_tied():
    rng = np.random.default_rng(4)
    weak_D = np.zeros(200)
    weak_D[0] = 0.6
    cosines = []
    for _ in range(60):
        sums = {name: drawn(rng, weak_D)[0] for name in ("flat_grpo", "m")}
        cosines.append(measures(sums, "m")["cosine_flat"][0])
    known = [value for value in cosines if not np.isnan(value)]
    assert max(known) > 1
    assert len(set(known)) == len(known)


def test_a_cosine_with_a_gradient_that_has_no_signal_is_not_told():
    rng = np.random.default_rng(4)
    flat = next(s for _ in range(50) if measures({"m": (s := drawn(rng, np.zeros(50))[0])}, "m")["signal"][0] < 0)
    found = measures({"m": drawn(rng, np.full(50, 0.2))[0], "flat_grpo": flat}, "m")
    assert np.isnan(found["cosine_flat"]).all()
    assert "cosine_oracle" not in found
