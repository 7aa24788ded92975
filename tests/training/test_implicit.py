"""The implicit reward model: which rollouts it compares, and that it learns what DPO says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.nn import functional

from tests import tiny
from turncredit.credit import compute
from turncredit.data import tables
from turncredit.errors import UserError
from turncredit.pipeline import checks
from turncredit.pipeline import rounds as fused
from turncredit.pipeline.job import JobKeys, Store
from turncredit.pipeline.plan import Plan, load
from turncredit.pipeline.stages import implicit_model
from turncredit.policy import models
from turncredit.policy.masters import Masters
from turncredit.training import implicit

SECOND = JobKeys(policy="istar", method="istar", seed=0, round=2)


@pytest.fixture(scope="module")
def turns(world):
    table = tables.read(world.path("turns"), "turns")
    won = table.column("success").to_pylist()
    assert any(won)
    assert not all(won)
    return table


def trained(world, turns, **more):
    model = models.load_model(world.path("sft_policy"), dtype="float32")
    settings = {"beta": 0.05, "lr": 1e-3, "steps": 1, "tokens_per_pass": 4096, "moments": {}, **more}
    return model, implicit.train(Masters(model, "float32"), turns, **settings)


def test_every_success_is_paired_with_every_failure_of_its_group_and_of_no_other():
    group_R = np.array([0, 0, 0, 1, 1, 2, 2])
    won_R = np.array([True, False, False, True, True, False, True])
    better, worse = implicit.pairs(group_R, won_R)
    assert list(zip(better, worse, strict=True)) == [(0, 1), (0, 2), (6, 5)]


def test_the_slope_at_a_score_is_the_derivative_of_the_loss():
    score_R = torch.tensor([0.3, -1.2, 0.8, 2.0, -0.5], dtype=torch.float64, requires_grad=True)
    better, worse = np.array([0, 0, 3]), np.array([1, 2, 4])
    loss = -functional.logsigmoid(score_R[better] - score_R[worse]).mean()
    loss.backward()
    found = implicit.preference(score_R.detach().numpy(), better, worse)
    assert found.loss == pytest.approx(loss.item(), abs=1e-12)
    assert found.slope_R == pytest.approx(score_R.grad.numpy(), abs=1e-12)
    assert found.accuracy == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("tokens_per_pass", "total", "temperature"), [(300, "sum", 1.0), (16384, "mean", 1.0), (16384, "sum", 0.5)]
)
def test_its_gradient_is_that_of_the_loss_over_all_pairs_at_once(world, turns, tokens_per_pass, total, temperature):
    """The loss as one graph: each rollout's score from passes over its turns' own contexts."""
    turns = turns.filter(np.isin(turns.column("group_id").to_pylist(), mixed_groups(turns)[:1]))
    at = turns.column_names.index("temperature")
    turns = turns.set_column(at, "temperature", pa.array(np.full(turns.num_rows, temperature)))
    _, (_, metrics) = trained(world, turns, beta=0.5, tokens_per_pass=tokens_per_pass, score=total)
    model = models.load_model(world.path("sft_policy"), dtype="float32").eval()
    scores: dict[str, list[torch.Tensor]] = {}
    won, context = {}, []
    for row in turns.to_pylist():
        context = ([] if row["context_reset"] else context) + row["prompt_ids"] + row["response_ids"]
        ids = torch.tensor([context])
        each = torch.log_softmax(model(ids).logits[0] / temperature, -1)[:-1].gather(1, ids[0, 1:, None])[:, 0]
        ratio = each[-len(row["response_ids"]) :].sum() - sum(row["response_logprobs"])
        scores.setdefault(row["rollout_id"], []).append(0.5 * ratio)
        won[row["rollout_id"]] = row["success"]
    score = {name: getattr(torch.stack(parts), total)() for name, parts in scores.items()}
    pairs = [(a, b) for a in score for b in score if won[a] and not won[b]]
    loss = -torch.stack([functional.logsigmoid(score[a] - score[b]) for a, b in pairs]).mean()
    loss.backward()
    norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
    assert metrics["pairs"] == len(pairs)
    assert metrics["loss"] == pytest.approx(loss.item(), abs=1e-4)
    assert metrics["grad_norm"] == pytest.approx(float(norm), rel=2e-3)


def mixed_groups(turns):
    """Groups with a success and a failure."""
    outcomes: dict[str, set[bool]] = {}
    for row in turns.select(["group_id", "success"]).to_pylist():
        outcomes.setdefault(row["group_id"], set()).add(row["success"])
    return [group for group, found in outcomes.items() if len(found) == 2]


def test_more_steps_lower_the_loss_and_order_more_pairs(world, turns):
    _, (_, once) = trained(world, turns)
    _, (moments, often) = trained(world, turns, steps=6)
    assert once["loss"] == pytest.approx(np.log(2), abs=1e-3)  # of the policy that sampled all scores are 0
    assert often["loss"] < once["loss"]
    assert often["accuracy"] > 0.7
    assert moments


def test_the_next_round_goes_on_with_the_moments_of_the_one_before(world, turns):
    """Two rounds of a step each, on the same rollouts, are one round of two steps."""
    twice, _ = trained(world, turns, steps=2)
    model = models.load_model(world.path("sft_policy"), dtype="float32")
    moments: dict[str, torch.Tensor] = {}
    for _ in range(2):
        settings = {"beta": 0.05, "lr": 1e-3, "steps": 1, "tokens_per_pass": 4096}
        moments, _ = implicit.train(Masters(model, "float32"), turns, moments=moments, **settings)
    for one, two in zip(model.parameters(), twice.parameters(), strict=True):
        torch.testing.assert_close(one, two)


def test_without_a_pair_the_model_stays_as_it_is(world, turns):
    lost = turns.filter([not won for won in turns.column("success").to_pylist()])
    model, (moments, metrics) = trained(world, lost)
    assert metrics["pairs"] == 0
    assert moments == {}
    before = models.load_model(world.path("sft_policy"), dtype="float32").state_dict()
    assert all(torch.equal(weights, before[name]) for name, weights in model.state_dict().items())


def test_the_stage_makes_a_policy_of_its_own_and_leaves_the_sft_policy_alone(world, tmp_path):
    first = replace(world.turns, method="istar")
    job = world.job("implicit_model", first, tmp_path, turns=world.path("turns"))
    job.store = Store(keep=True)
    metrics = load("implicit_model").run(job)
    assert metrics["pairs"] > 0
    made = models.load_model(job.output["implicit"], dtype="float32").state_dict()
    kept = job.store.policy(job.output["implicit"], dtype="float32").model().state_dict()
    sft = models.load_model(world.path("sft_policy"), dtype="float32").state_dict()
    again = job.store.policy(str(world.path("sft_policy")), dtype="float32").model().state_dict()
    assert all(torch.equal(made[name], kept[name]) for name in made)
    assert all(torch.equal(sft[name], again[name]) for name in sft)
    assert any(not torch.equal(made[name], sft[name]) for name in made)
    read = world.job("logprobs", replace(first, method="", scorer="implicit-istar"), tmp_path / "read")
    sft_folder = str(world.path("sft_policy"))
    read.input |= {"turns": str(world.path("turns")), "policy": job.output["implicit"], "sampler": sft_folder}
    assert load("logprobs").run(read)["log_ratio_rms"] > 1e-3
    table = tables.read(read.output["logprobs"], "logprobs")
    assert set(table.column("policy_id").to_pylist()) == {"implicit-istar/seed0/round01"}


def test_in_round_1_the_authors_codes_istar_is_rloo(world, turns, tmp_path):
    ran = world.run("logprobs", replace(world.turns, scorer="implicit-istar_code"), tmp_path)
    plan = Plan(tiny.experiment())
    read = {"logprobs": tables.read(ran.output["logprobs"], "logprobs")}
    one, two = compute(turns, plan.method("istar_code"), read), compute(turns, plan.method("rloo"))
    assert one.column("advantage").equals(two.column("advantage"))
    with pytest.raises(UserError, match="in round 1 it is the SFT policy"):
        plan.inputs("implicit_model", replace(SECOND, method="istar_code", round=1))


def test_as_published_the_model_is_trained_on_the_rollouts_that_it_scores():
    plan = Plan(tiny.experiment(methods=["istar", "istar_code"]))

    def files(method, round, stage="implicit_model"):
        turns = plan.turns_at(method, 0, round)
        at = replace(turns, method=method) if stage == "implicit_model" else plan.keys_for(stage, turns, method)
        return dict(plan.inputs(stage, at))

    first, second = (plan.turns_at("istar", 0, round) for round in (1, 2))
    model = plan.layout.path("implicit", first.keys, method="istar")
    assert files("istar", 1) == {"turns": plan.layout.path("turns", first.keys), "policy": plan.sft_policy(first)}
    assert files("istar", 2) == {"turns": plan.layout.path("turns", second.keys), "policy": model}
    assert files("istar", 1, "logprobs")["policy"] == model
    # One round behind, as in the authors' code.
    assert plan.keys_for("implicit_model", first, "istar_code") is None
    assert files("istar_code", 2)["turns"] == plan.layout.path("turns", first.keys)
    assert "policy" not in files("istar_code", 1, "logprobs")


def test_the_models_learning_rate_follows_the_policys_warm_up_and_decay():
    update = tiny.experiment().update.model_copy(
        update={"warmup_steps": 8, "minibatch": 2, "epochs": 1, "final_lr": 0.2, "decay_rounds": 5}
    )
    shares = [implicit_model.policy_share(update, 8, 10, round) for round in (1, 2, 3, 5, 9)]
    # Four steps a round: 1/8 to 4/8, then 5/8 to 8/8, then whole; the decay is .8 in four steps.
    assert shares == pytest.approx([2.5 / 8, 6.5 / 8 * 0.8, 0.6, 0.2, 0.2])
    constant = tiny.experiment(define={"mine": {"base": "istar", "model": {"schedule": "constant"}}})
    assert implicit_model.config(Plan(constant), replace(SECOND, method="mine")).share == 1.0


def test_the_model_is_trained_at_its_share_of_the_learning_rate(world, tmp_path, monkeypatch):
    """Eight steps of a warm-up of 16: on average 4.5 / 16 of twice the policy's."""
    given = {}
    monkeypatch.setattr(implicit, "train", lambda *_, **more: given.update(more) or ({}, {}))
    update = {"lr": 1e-3, "warmup_steps": 16, "minibatch": 2}
    job = world.job("implicit_model", replace(world.turns, method="istar"), tmp_path, {"update": update})
    job.input["turns"] = str(world.path("turns"))
    load("implicit_model").run(job)
    assert given["lr"] == pytest.approx(2e-3 * 4.5 / 16)


def test_beta_is_the_methods_and_the_learning_rate_twice_the_policys_unless_it_is_given():
    mine = {"base": "istar", "params": {"beta": 0.2}, "update": {"lr": 1e-4}, "model": {"steps": 3}}
    plan = Plan(tiny.experiment(define={"mine": mine, "fast": {"base": "istar", "model": {"lr": 0.5}}}))
    wanted = implicit_model.config(plan, replace(SECOND, method="mine"))
    assert (wanted.beta, wanted.lr, wanted.steps) == (0.2, 2e-4, 3)
    assert implicit_model.config(plan, replace(SECOND, method="fast")).lr == 0.5
    wrong = tiny.experiment(define={"mine": {"base": "istar", "model": {"step": 3}}})
    with pytest.raises(UserError, match=r"unknown key 'define\.mine\.model\.step' \(did you mean 'steps'\?\)"):
        checks.check(wrong)


def test_with_keep_policies_last_the_models_of_earlier_rounds_go_as_the_policies_do():
    plan = Plan(
        tiny.experiment(methods=["istar"], rounds=4, granularity="run", keep_policies="last", tasks={"eval": 16})
    )
    passing = fused.passing_policies(plan, "istar", 0, [1, 2, 3, 4])
    models_of = [plan.layout.path("implicit", replace(SECOND, round=round).keys) for round in (2, 3, 4)]
    assert [path in passing for path in models_of] == [True, True, False]
    said = plan.layout.path("logprobs", policy="istar", seed=0, round=3, scorer="implicit-istar")
    assert passing[models_of[0]] == said
