"""A second pass over turns: its numbers are the policy's, and nothing that it reads is trained on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch

from tests import tiny
from turncredit import agents, envs
from turncredit.credit import compute
from turncredit.data import tables
from turncredit.data.columns import sums_of
from turncredit.errors import UserError
from turncredit.pipeline import checks
from turncredit.pipeline.job import JobKeys, Store
from turncredit.pipeline.plan import Plan, load
from turncredit.pipeline.stages import logprobs
from turncredit.policy import models, tokenizer
from turncredit.training import second_pass, update
from turncredit.training.sequences import TokenSequence, contexts, sequences_of

WINDOW = {
    "agent": {"name": "window", "max_response_tokens": 4, "window": {"history": 1, "show_admissible": False}},
    "rollout": {"tasks": 2, "group_size": 2, "temperature": 0.7},
}


@pytest.fixture(scope="module")
def sampled(world, tmp_path_factory):
    """The turns of both agents, and the changes to the configuration that they were sampled with."""
    at = Plan(tiny.experiment(**WINDOW)).turns_at("flat_grpo", 0, 1)
    window = world.run("rollout", at, tmp_path_factory.mktemp("window"), WINDOW).output["turns"]
    return {"transcript": (world.path("turns"), {}, world.turns), "window": (window, WINDOW, at)}


def read(world, sampled, agent, folder, reader):
    """What the stage writes of an agent's turns, and what it measured."""
    turns, changes, at = sampled[agent]
    ran = world.run("logprobs", replace(at, scorer=reader), folder, changes, turns=turns)
    return tables.read(ran.output["logprobs"], "logprobs"), ran.metrics


def told_prompt(encoder, row, outcome):
    """A turn's prompt with the outcome after the goal, from the recorded prompt's text."""
    text = encoder._backend.decode(row["prompt_ids"], skip_special_tokens=False)
    assert encoder.encode(text) == row["prompt_ids"]
    return encoder.encode(text.replace(row["goal"], f"{row['goal']} In the end: {outcome}"))


def one_by_one(world, turns, prompt_of):
    """The log-probability of each response from a forward pass over its own context alone."""
    model = models.load_model(world.path("sft_policy"), dtype="float32").eval()
    found, context = [], []
    for row in turns:
        context = ([] if row["context_reset"] else context) + prompt_of(row)
        ids = torch.tensor([context + row["response_ids"]])
        with torch.no_grad():
            logits = model(ids).logits[0].double() / row["temperature"]
        each = torch.log_softmax(logits, -1)[:-1].gather(1, ids[0, 1:, None])[:, 0]
        found.append(float(each[-len(row["response_ids"]) :].sum()))
        context = context + row["response_ids"]
    return np.array(found)


@pytest.mark.parametrize("agent", ["transcript", "window"])
def test_in_hindsight_a_response_has_the_probability_of_a_pass_over_its_own_context(world, sampled, tmp_path, agent):
    table, metrics = read(world, sampled, agent, tmp_path, "hindsight")
    rows = tables.read(sampled[agent][0], "turns").to_pylist()
    ends = {row["rollout_id"]: row["next_observation"] for row in rows}
    encoder = tokenizer.load(world.path("sft_policy"))

    def told(row):
        first = row["context_reset"]
        return told_prompt(encoder, row, ends[row["rollout_id"]]) if first else row["prompt_ids"]

    alone_N = one_by_one(world, rows[:24], told)
    assert table.column("logprob").to_numpy()[:24] == pytest.approx(alone_N, abs=1e-4)
    assert table.column("tokens").to_pylist() == [len(row["response_ids"]) for row in rows]
    assert metrics["log_ratio_rms"] > 1e-3
    assert metrics["tokens"] > sum(len(row["prompt_ids"]) + len(row["response_ids"]) for row in rows)


@pytest.mark.parametrize("agent", ["transcript", "window"])
def test_with_the_recorded_prompts_the_policy_that_sampled_gives_the_recorded_probabilities(world, sampled, agent):
    path = sampled[agent][0]
    turns = tables.read(path, "turns")
    model = models.load_model(world.path("sft_policy"), dtype="float32").eval()
    found_N = second_pass.logprobs_N(
        model,
        contexts(turns, "turns"),
        turns.num_rows,
        temperature=turns.column("temperature")[0].as_py(),
        tokens_per_pass=2048,
    )
    assert found_N == pytest.approx(sums_of(turns.column("response_logprobs")), abs=2e-4)
    rows = turns.slice(0, 12).to_pylist()
    assert found_N[:12] == pytest.approx(one_by_one(world, rows, lambda row: row["prompt_ids"]), abs=1e-4)


def test_in_round_1_the_sft_policy_says_what_is_recorded_and_progress_advantage_is_half_of_flat_grpo(
    world, sampled, tmp_path
):
    table, metrics = read(world, sampled, "transcript", tmp_path, "sft")
    turns = tables.read(world.path("turns"), "turns")
    assert table.column("logprob").equals(pa.chunked_array([sums_of(turns.column("response_logprobs"))]))
    assert metrics["tokens"] == metrics["log_ratio_rms"] == 0
    credit = compute(turns, Plan(tiny.experiment()).method("progress_advantage"), {"logprobs": table})
    flat = compute(turns, Plan(tiny.experiment()).method("flat_grpo"))
    assert not credit.column("credit").to_numpy().any()
    assert np.array_equal(credit.column("advantage").to_numpy(), 0.5 * flat.column("advantage").to_numpy())


def test_a_policy_that_has_not_moved_differs_from_the_sft_policy_by_exactly_nothing(world, tmp_path):
    """Not by rounding noise, which a division by a deviation, or the scaling of advantages, would blow up."""
    at, sft = JobKeys(policy="flat_grpo", seed=0, round=2, scorer="sft"), world.path("sft_policy")
    ran = world.run("logprobs", at, tmp_path, turns=world.path("turns"), policy=sft, sampler=sft)
    table = tables.read(ran.output["logprobs"], "logprobs")
    assert ran.metrics["log_ratio_rms"] == 0
    rows = tables.read(world.path("turns"), "turns").to_pylist()
    tokens = sum(len(row["prompt_ids"]) + len(row["response_ids"]) for row in rows)
    assert ran.metrics["tokens"] == 2 * tokens, "by each of the two policies"
    recorded_N = sums_of(tables.read(world.path("turns"), "turns").column("response_logprobs"))
    assert table.column("sampled").to_numpy() == pytest.approx(recorded_N, abs=2e-4)


def test_what_is_read_in_hindsight_never_reaches_the_turns_that_the_policy_trains_on(world, sampled, tmp_path):
    """Also where tables stay in memory from stage to stage, as in a job of several rounds."""
    turns, _, at = sampled["transcript"]
    before = turns.read_bytes()
    store = Store(keep=True)
    store.put_table(str(turns), tables.read(turns, "turns"))
    job = world.job("logprobs", replace(at, scorer="hindsight"), tmp_path, turns=turns)
    job.store = store
    load("logprobs").run(job)
    made = store.table(job.output["logprobs"])
    assert [name for name in made.column_names if "ids" in name] == []
    assert turns.read_bytes() == before
    kept = store.table(str(turns))
    assert kept.equals(tables.read(turns, "turns"))
    method = Plan(tiny.experiment()).method("hcapo")
    trained = update.training_set(kept, compute(kept, method, {"logprobs": made}), tiny.experiment().update)
    recorded = {tuple(sequence.ids) for sequence in sequences_of(kept)}
    assert trained.sequences
    assert {tuple(sequence.ids) for sequence in trained.sequences} <= recorded


def test_the_table_has_the_same_bytes_each_time(world, sampled, tmp_path):
    turns, _, at = sampled["transcript"]
    one, two = (
        world.run("logprobs", replace(at, scorer="hindsight"), tmp_path / name, turns=turns).output["logprobs"]
        for name in "ab"
    )
    assert one.read_bytes() == two.read_bytes()


def test_the_passes_do_not_depend_on_how_many_tokens_one_takes(world, sampled, tmp_path):
    turns, _, at = sampled["transcript"]
    at = replace(at, scorer="hindsight")
    one, two = (
        world.run("logprobs", at, tmp_path / str(size), {"update": {"tokens_per_pass": size}}, turns=turns)
        for size in (200, 16384)
    )
    first, second = (tables.read(ran.output["logprobs"]).column("logprob").to_numpy() for ran in (one, two))
    assert first == pytest.approx(second, abs=1e-4)


def prompts(world, spec, turns, **settings):
    encoder = tokenizer.load(world.path("sft_policy"))
    new_agent = agents.agent_factory(spec, encoder, settings, envs.load("household").words)
    return second_pass.hindsight_prompts(turns, spec, new_agent, "turns.parquet")


def test_an_agent_that_does_not_say_how_it_carries_an_outcome_is_refused_before_any_job(world):
    spec = replace(agents.load("transcript"), hindsight=None)
    said = r"^turns\.parquet: can't be read in hindsight: the agent 'transcript' does not say how"
    with pytest.raises(UserError, match=said):
        prompts(world, spec, tables.read(world.path("turns"), "turns"))
    own = {"name": str(tiny.ROOT / "examples/own_agent.py")}
    with pytest.raises(UserError) as told:
        checks.check(tiny.experiment(methods=["hcapo"], agent=own))
    line = "config: methods: 'hcapo' reads turns in hindsight, and the agent 'notes' does not say how"
    assert str(told.value).startswith(line)
    assert "\n" not in str(told.value)
    checks.check(tiny.experiment(methods=["progress_advantage"], agent=own))


def test_an_agent_whose_prompts_do_not_change_with_the_outcome_is_refused(world):
    spec = replace(agents.load("transcript"), hindsight=lambda goal, _outcome: goal)
    with pytest.raises(UserError, match="its prompts are the same with the outcome in the goal"):
        prompts(world, spec, tables.read(world.path("turns"), "turns"))


def test_turns_of_an_agent_with_other_settings_are_refused(world, sampled):
    turns = tables.read(sampled["window"][0], "turns")
    said = r"agent 'window' does not make the recorded prompt of group_id .*other settings"
    with pytest.raises(UserError, match=said):
        prompts(world, agents.load("window"), turns, history=2, show_admissible=False)


def test_turns_beyond_what_the_model_can_read_with_the_outcome_keep_their_sampled_logprob(world, sampled, tmp_path):
    """The outcome makes contexts longer than those that were sampled: that ends no job, and the others are read."""
    turns, _, at = sampled["transcript"]
    longest = max(len(sequence.ids) for sequence in contexts(tables.read(turns), str(turns)))
    more, short = (
        world.policy_that_reads(positions, tmp_path / str(positions)) for positions in (longest + 100, longest)
    )
    at = replace(at, scorer="hindsight")
    runs = [
        world.run("logprobs", at, tmp_path / str(number), turns=turns, policy=policy)
        for number, policy in enumerate((more, short))
    ]
    whole, part = (tables.read(ran.output["logprobs"], "logprobs") for ran in runs)
    metrics, cut_metrics = (ran.metrics for ran in runs)
    read, sampled_N = (part.column(name).to_numpy() for name in ("logprob", "sampled"))
    unread = read == sampled_N
    assert 0 < unread.sum() < len(unread) / 2
    np.testing.assert_allclose(read[~unread], whole.column("logprob").to_numpy()[~unread], atol=1e-4)
    assert (metrics["unread"], cut_metrics["unread"]) == (0, unread.sum())
    assert logprobs.warning(metrics) is None
    assert f"{unread.sum()} turns" in logprobs.warning(cut_metrics)


def test_a_sequence_is_cut_before_the_first_turn_that_does_not_fit():
    ids, turn = np.arange(8), np.array([-1, 0, 0, -1, 1, 1, -1, -1])
    whole = TokenSequence(0, ids, turn, np.zeros(8, dtype=np.float32))
    fitting = {positions: second_pass.fitting([whole], positions) for positions in (8, 6, 5, 3, 2, None)}
    assert {positions: [len(part.ids) for part in parts] for positions, (parts, _) in fitting.items()} == {
        8: [8], 6: [6], 5: [4], 3: [3], 2: [], None: [8],
    }  # fmt: skip
    assert {positions: left.tolist() for positions, (_, left) in fitting.items()} == {
        8: [], 6: [], 5: [1], 3: [1], 2: [0, 1], None: [],
    }  # fmt: skip


def test_where_the_policy_is_not_kept_a_second_pass_says_so_in_one_line(world, sampled, tmp_path):
    turns, _, at = sampled["transcript"]
    with pytest.raises(UserError, match=r"gone: the policy for a second pass is not there any more") as told:
        world.run("logprobs", replace(at, scorer="hindsight"), tmp_path, turns=turns, policy=tmp_path / "gone")
    assert "\n" not in str(told.value)
    assert "keep_policies" in str(told.value)


def test_a_method_whose_parts_need_two_readers_is_refused():
    from turncredit.credit import METHODS

    hcapo, progress = METHODS["hcapo"], METHODS["progress_advantage"]
    both = replace(hcapo, estimator=replace(hcapo.estimator, scorer=progress.scorer))
    with pytest.raises(UserError, match="log-probabilities of two scorers, hindsight and sft; a method has one"):
        _ = both.scorer
