"""Leaks of credit models.

1. Models that read the length, the last turn, either, or what happens are told apart, and the sentence says which.
2. A causal value owes nothing to how its rollout goes on; a bidirectional one that reads the end does.
3. TurnRD, trained where the length tells the outcome, is caught; shown equal lengths in training, it is not.
4. The measures are what they say: AUC and intervals over groups, a length's rate from other groups only.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

from tests import tiny
from tests.credit.models.synthetic import HIDDEN_SIZE, as_rollouts, as_tables, noise_rollouts, trained_on
from turncredit.audit import leak_measures as measures
from turncredit.audit import leak_tests
from turncredit.audit.leak_measures import Measured, measured, outcome_auc
from turncredit.credit import resolve
from turncredit.credit.models import replay, train
from turncredit.credit.models.critic import CriticSettings
from turncredit.credit.models.protocol import load_kind
from turncredit.credit.models.turnrd import TurnRDSettings
from turncredit.data import tables
from turncredit.errors import UserError
from turncredit.pipeline.job import Job
from turncredit.pipeline.plan import Plan, load
from turncredit.stats.bootstrap import BLOCKS, FEWEST_GROUPS, Resamples

LONG, SHORT, ROLLOUTS = 10, 6, 200


def told(seed: int = 0) -> tuple[replay.Rollouts, np.ndarray]:
    """Rollouts that say their outcome three times: by length, in the last turn, and by a fact seen on the way."""
    rng = np.random.default_rng(seed)
    won_R = rng.random(ROLLOUTS) < 0.5
    # Lengths overlap a little, so that nothing tells everything.
    length_R = np.where(won_R ^ (rng.random(ROLLOUTS) < 0.03), SHORT, LONG) - rng.integers(0, 2, ROLLOUTS)
    hidden = rng.normal(size=(ROLLOUTS, LONG, HIDDEN_SIZE)) * 0.3
    seen_RT = np.arange(LONG) >= rng.integers(0, 3, ROLLOUTS)[:, None]
    hidden[..., 0] += 2.0 * seen_RT * (won_R ^ (rng.random(ROLLOUTS) < 0.03))[:, None]
    hidden[np.arange(ROLLOUTS), length_R - 1, 1] += np.where(won_R, 3.0, -3.0)
    return as_rollouts(hidden, lengths=length_R, returns=won_R.astype(float)), won_R


class Planted(nn.Module):
    """A model that reads one thing only."""

    def __init__(self, reads: str):
        super().__init__()
        self.reads = reads

    def forward(self, shown: replay.Rollouts) -> torch.Tensor:
        turns = torch.arange(shown.present.shape[1], dtype=torch.float32)
        noise = shown.hidden[..., 2] * 1e-3
        length = -shown.lengths.float()[:, None]
        last = shown.hidden[torch.arange(len(shown)), shown.lengths - 1, 1][:, None]
        if self.reads == "length":
            return noise + length
        if self.reads == "last turn":
            return noise + last
        if self.reads == "either":
            return noise + last + 1.5 * length
        if self.reads == "turn's number":
            return noise - turns
        if self.reads == "what happens":
            return shown.hidden[..., 0]
        return noise  # nothing


def planted(reads: str) -> train.CreditModel:
    return train.CreditModel("critic", CriticSettings(), HIDDEN_SIZE, Planted(reads), 1, {})


def tables_of(rollouts: replay.Rollouts, won_R: np.ndarray) -> tuple[pa.Table, pa.Table]:
    """Turns with these outcomes, and their hidden states."""
    turns, hiddens = as_tables(rollouts)
    number_N = [int(name[1:]) for name in turns.column("rollout_id").to_pylist()]
    return turns.append_column("success", pa.array(won_R[number_N])), hiddens


def found_by(
    model: train.CreditModel, rollouts: replay.Rollouts, won_R: np.ndarray, branches: pa.Table | None = None
) -> dict[tuple[str, str], Measured]:
    turns, hiddens = tables_of(rollouts, won_R)
    view, loaded = replay.load(turns, hiddens)
    audited = leak_tests.audited(turns, view, {}, branches)
    rows = leak_tests.measure(model, resolve("has_turnrd"), loaded, audited, seed=0, round=2)
    number = {None: np.nan}
    return {
        (row["view"], row["measure"]): Measured(*(number.get(row[key], row[key]) for key in Measured._fields))
        for row in rows
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reads", "says"),
    [
        ("length", "infers the outcome from the length: AUC"),
        ("turn's number", "infers the outcome from the length: AUC"),
        ("last turn", "infers the outcome from the last turn: AUC 1.00 in full"),
        ("either", "infers the outcome from the end (length or last turn): AUC"),
        ("what happens", "infers the outcome from the events: AUC"),
        ("nothing", "hardly predicts the outcome"),
    ],
)
def test_what_a_model_reads_is_told_apart(reads, says):
    found = found_by(planted(reads), *told())
    assert measures.leak_summary(found).startswith(says)


def test_each_view_closes_its_own_door():
    by_length = found_by(planted("length"), *told())
    by_last = found_by(planted("last turn"), *told())
    honest = found_by(planted("what happens"), *told())
    auc = {
        view: [found[view, "outcome_auc"].value for found in (by_length, by_last, honest)]
        for view in ("full", "padded", "masked_last", "blind", "without_last", "half", "equal_length")
    }
    assert auc["full"] == pytest.approx([0.97, 1.0, 0.95], abs=0.05)
    assert auc["padded"] == pytest.approx([0.5, 1.0, 0.95], abs=0.1)
    assert auc["masked_last"] == pytest.approx([0.97, 0.5, 0.95], abs=0.1)
    assert auc["blind"] == pytest.approx([0.5, 0.5, 0.95], abs=0.1)
    assert auc["without_last"][1] == pytest.approx(0.5, abs=0.1)
    assert auc["half"][1] == pytest.approx(0.5, abs=0.1)
    assert auc["equal_length"] == pytest.approx([0.5, 0.5, 0.9], abs=0.15)


def test_length_alone_is_the_line_beside_it():
    found = found_by(planted("nothing"), *told())
    assert found["length_only", "outcome_auc"].value > 0.9
    assert "length alone: AUC .9" in measures.leak_summary(found)


def test_a_causal_value_owes_nothing_to_the_end_and_a_reader_of_it_does():
    causal = found_by(planted("what happens"), *told())
    for view in ("without_last", "half", "equal_length"):
        assert causal[view, "hindsight"].value == pytest.approx(0.0, abs=1e-6)
        assert causal[view, "hindsight"].high == pytest.approx(0.0, abs=1e-6)
    reader = found_by(planted("last turn"), *told())
    assert reader["half", "hindsight"].low > 0.3
    assert "values of early turns depend on the end: AUC 1.00, ." in measures.leak_summary(reader)
    assert "know the end" not in measures.leak_summary(causal)


def test_credit_is_compared_with_itself_and_with_the_truth():
    rollouts, won_R = told()
    turns, _ = tables_of(rollouts, won_R)
    keys = turns.select(list(tables.KEYS))
    rng = np.random.default_rng(0)
    chosen = keys.take(np.sort(rng.choice(keys.num_rows, 800, replace=False)))
    state = {
        (f"r{rollout:03d}", turn): float(rollouts.hidden[rollout, turn, 0])
        for rollout in range(ROLLOUTS)
        for turn in range(LONG)
    }
    key_N = list(zip(chosen.column("rollout_id").to_pylist(), chosen.column("turn").to_pylist(), strict=True))
    true_N = np.array([-state[key] for key in key_N])
    branches = chosen.append_column("advantage_true", pa.array(true_N)).append_column(
        "advantage_true_se", pa.array(np.full(len(true_N), 0.1))
    )
    found = found_by(planted("what happens"), rollouts, won_R, branches)
    assert found["full", "rank_with_truth"].high < -0.3
    assert "(reversed)" in measures.leak_summary(found)
    assert found["masked_last", "rank_with_full"].value > 0.75
    assert ("full", "rank_with_full") not in found


def test_a_model_that_has_not_been_trained_says_nothing_and_no_more():
    rollouts, won_R = told()
    model = train.fresh("turn_value", load_kind("turn_value").settings, HIDDEN_SIZE, seed=0)
    found = found_by(model, rollouts, won_R)
    assert set(found) == {("length_only", "outcome_auc")}
    assert measures.leak_summary(found).startswith("not trained yet")


def test_where_all_ended_alike_there_is_nothing_to_know():
    rollouts, won_R = told()
    found = found_by(planted("length"), rollouts, np.zeros_like(won_R))
    assert np.isnan(found["full", "outcome_auc"].value)
    assert measures.leak_summary(found) == "all rollouts have the same outcome: nothing to predict"


@pytest.mark.slow
def test_a_turnrd_that_learned_the_length_is_caught_and_one_that_could_not_is_not():
    """Nothing but noise in the states; successes end after 6 turns, failures after 10."""
    won = np.arange(128) % 2 == 0
    learned, unseen = (noise_rollouts(lengths=np.where(won, 6, 10), returns=won, seed=seed) for seed in (0, 1))
    says = {}
    for equal_length in (False, True):
        outcome = {"lambda_value": 0, "lambda_progress": 0}
        chosen = TurnRDSettings(hidden=32, layers=1, epochs=30, lr=3e-3, equal_length=equal_length, **outcome)
        model = trained_on("turnrd", chosen, learned)
        says[equal_length] = measures.leak_summary(found_by(model, unseen, won))
    assert says[False].startswith("infers the outcome from the length: AUC 1.00 in full")
    assert "values of early turns depend on the end" in says[False]
    assert "values of early turns depend on the end" not in says[True]


@pytest.mark.slow
def leaks_job(folder: Path, names: Sequence[str], width: int = HIDDEN_SIZE, define: dict | None = None) -> Job:
    """The job of the stage leaks on made-up turns, for untrained models that say they were trained."""
    audit = {"run": names[0], "rounds": [2], "methods": names}
    plan = Plan(tiny.experiment(methods=names, define=define or {}, audit=audit), folder)
    job = plan.job("leaks", plan.audited[0])
    turns, hiddens = tables_of(*told())
    keys = turns.select(list(tables.KEYS)).slice(0, 50)
    branches = keys.append_column("advantage_true", pa.array(np.linspace(-1, 1, 50)))
    for path, table in {"turns": turns, "hiddens": hiddens, "branches": branches}.items():
        pq.write_table(table, folder / f"{path}.parquet")
    job.input |= {"turns": str(folder / "turns.parquet"), "branches": str(folder / "branches.parquet")}
    job.input["hiddens"] = [str(folder / "hiddens.parquet")] * len(names)
    for name, path in zip(names, job.paths("models"), strict=True):
        kind, settings = plan.model(name)
        model = train.fresh(kind, settings, width, seed=0)
        model.steps = 100
        Path(path).mkdir(parents=True)
        train.save(model, Path(path))
    return job


@pytest.mark.slow
def test_the_stage_writes_one_table_for_all_methods(tmp_path, capsys):
    names = ("has_turnrd", "has_turnrd_film", "turn_value", "ppo", "value_baseline")
    job = leaks_job(tmp_path, names)
    load("leaks").run(job)
    out = Path(job.output["leaks"])
    rows = tables.read(out, "leaks").to_pylist()
    assert {row["method"] for row in rows} == set(names)
    assert {row["view"] for row in rows} == set(measures.VIEWS)
    assert {row["measure"] for row in rows} == set(measures.MEASURES)
    assert len(capsys.readouterr().out.strip().splitlines()) >= len(names)
    first = out.read_bytes()
    load("leaks").run(job)
    assert out.read_bytes() == first


def test_a_method_gets_all_side_tables_that_its_parts_read(tmp_path):
    define = {"mixed": {"base": "ppo", "params": {"turn_term": "progress_advantage"}}}
    job = leaks_job(tmp_path, ("ppo", "mixed"), define=define)
    rows = [
        {**keys, "tokens": 1, "logprob": 0.0, "sampled": -1.0, "policy_id": "sft"}
        for keys in tables.read(job.path("turns")).select(list(tables.KEYS)).to_pylist()
    ]
    (path,) = map(Path, job.paths("logprobs"))
    path.parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows, tables.schema("logprobs")), path)
    load("leaks").run(job)
    rows = tables.read(job.output["leaks"], "leaks").to_pylist()
    assert {row["method"] for row in rows if row["measure"] == "rank_with_truth"} == {"ppo", "mixed"}


def test_hidden_states_of_another_width_are_one_clear_line_that_names_the_method(tmp_path):
    job = leaks_job(tmp_path, ["ppo"], width=HIDDEN_SIZE + 1)
    with pytest.raises(UserError, match=f"of ppo.*{HIDDEN_SIZE} numbers per turn, but .* reads {HIDDEN_SIZE + 1}"):
        load("leaks").run(job)
    assert not Path(job.output["leaks"]).exists()


# ---------------------------------------------------------------- views and measures


def test_views_show_what_they_say_and_leave_the_rollouts_as_they_were():
    rollouts = noise_rollouts(lengths=[4, 1, 6, 3], returns=[1, 0, 0, 1])
    before = rollouts.hidden.clone()
    won_R = np.array([True, False, False, True])
    shown = dict(leak_tests.views(rollouts, won_R, np.random.default_rng(0)))
    assert torch.equal(before, rollouts.hidden)
    assert set(shown) == set(measures.VIEWS) - {"length_only"}
    padded = shown["padded"].shown
    assert padded.lengths.tolist() == [6] * 4
    assert torch.equal(padded.hidden[0, 4], rollouts.hidden[0, 3])
    assert torch.equal(padded.hidden[0, :4], rollouts.hidden[0, :4])
    masked = shown["masked_last"].shown
    assert masked.lengths.tolist() == [4, 1, 6, 3]
    assert not torch.equal(masked.hidden[0, 3], rollouts.hidden[0, 3])
    assert torch.equal(masked.hidden[0, 3], rollouts.hidden[2, 3])  # only rollout 2 goes on after its turn 3
    assert shown["blind"].shown.lengths.tolist() == [6] * 4
    assert shown["without_last"].index.tolist() == [0, 2, 3]
    assert shown["without_last"].shown.lengths.tolist() == [3, 5, 2]
    assert shown["half"].shown.lengths.tolist() == [2, 1, 3, 2]
    even = shown["equal_length"]  # both successes have at least 3 turns: two are shown, of those that have a third
    assert even.index.tolist() == [0, 2, 3]
    assert even.shown.lengths.tolist() == [2, 2, 2]


def outcome_of(score, won, group, seed=0):
    draws = Resamples(int(group.max()) + 1, measures.RESAMPLES, seed)
    return measured(outcome_auc(score, won, group, draws), draws)


def test_the_auc_counts_ties_half_and_its_interval_draws_whole_groups():
    score = np.array([3.0, 1.0, 2.0, 2.0])
    won = np.array([True, False, True, False])
    assert outcome_of(score, won, np.arange(4)).value == pytest.approx(3.5 / 4)
    # Each group twice over is no more evidence: the interval stays what it was.
    rng = np.random.default_rng(0)
    score, won = rng.normal(size=60), rng.random(60) < 0.5
    once = outcome_of(score, won, np.arange(60))
    twice = outcome_of(np.tile(score, 2), np.tile(won, 2), np.tile(np.arange(60), 2))
    assert twice == pytest.approx(once)


def test_an_auc_of_chance_has_half_inside_its_interval_about_as_often_as_it_says():
    for groups, tries in ((80, 60), (8, 100)):
        inside = 0
        for trial in range(tries):
            rng = np.random.default_rng(trial)
            group = np.repeat(np.arange(groups), 80 // groups)
            won = rng.random(80) < 0.5
            found = outcome_of(rng.normal(size=80), won, group, trial)
            inside += found.low <= 0.5 <= found.high
        assert inside / tries >= 0.87, groups


def test_a_few_groups_give_an_auc_without_an_interval_and_no_difference_counts():
    """Drawn from three groups, an AUC of 1 would have the interval from 1 to 1."""
    won = np.tile([True, False], 24)
    score = np.where(won, 1.0, 0.0) + np.linspace(0, 0.5, 48)
    for groups, shown in ((3, False), (FEWEST_GROUPS - 1, False), (FEWEST_GROUPS, True)):
        found = outcome_of(score, won, np.arange(48) // 2 % groups)
        assert found.value == 1
        assert np.isfinite([found.low, found.high]).all() == shown, groups
        assert measures.clear(found) == shown


def test_many_groups_are_drawn_in_blocks_with_the_same_interval_width():
    """An AUC of chance on n rollouts, half of them won, has the standard error 1 / sqrt(3 n)."""
    rng = np.random.default_rng(0)
    rollouts = 3 * BLOCKS
    found = outcome_of(rng.normal(size=rollouts), np.arange(rollouts) % 2 == 0, np.arange(rollouts))
    assert found.high - found.low == pytest.approx(2 * 1.96 / np.sqrt(3 * rollouts), rel=0.1)


def test_a_lengths_rate_never_counts_the_rollouts_own_group():
    length = np.array([5, 5, 5, 7])
    won = np.array([True, True, False, True])
    group = np.array([0, 0, 1, 1])
    assert measures.length_scores(length, won, group) == pytest.approx([1 / 3, 1 / 3, 3 / 4, 1 / 2])
    # Where lengths say nothing, neither does the score.
    rng = np.random.default_rng(0)
    length, won, group = rng.integers(3, 9, 400), rng.random(400) < 0.5, np.arange(400) // 8
    scores = measures.length_scores(length, won, group)
    assert outcome_of(scores, won, group).value == pytest.approx(0.5, abs=0.07)


def test_a_summary_from_a_few_task_groups_claims_nothing():
    one = Measured(0.97, np.nan, np.nan)
    said = measures.leak_summary({("full", "outcome_auc"): one, ("full", "rank_with_truth"): one})
    assert said == "AUC .97 in full, in fewer than 8 task groups: too few for more"
    full = Measured(0.9, 0.8, 0.95)
    said = measures.leak_summary(
        {("full", "outcome_auc"): full, ("full", "rank_with_truth"): Measured(0.2, np.nan, np.nan)}
    )
    assert said.endswith("rank correlation of credit with the truth +0.20")
