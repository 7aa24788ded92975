"""The report's answer to "can this experiment tell methods apart?", and what it says to run next."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests.results import synthetic
from turncredit.stats.intervals import Estimate
from turncredit.views import terminal
from turncredit.views.collect import collect
from turncredit.views.report import summary as module
from turncredit.views.report.ordering import Corrected
from turncredit.views.report.report import final_table, print_table
from turncredit.views.report.selection import Sourced
from turncredit.views.report.summary import summarise
from turncredit.views.report.verdict import RELEVANT, References, verdict

FOUR = {"methods": ["flat_grpo", "random_credit", "oracle_progress"], "seeds": [0, 1, 2, 3]}


def estimate(value: float, half: float = 0.02, seeds: int = 4) -> Estimate:
    return Estimate(value, value - half, value + half, 0.01, 100, seeds, 100, "seeds and games")


def references(upper: float | None, lower: float | None, half: float = 0.02, seeds: int = 4) -> References:
    ends = [None if value is None else estimate(value, half, seeds) for value in (upper, lower)]
    whole = None if upper is None or lower is None else estimate(upper - lower, half, seeds)
    return References(ends[0], ends[1], whole)


@pytest.mark.parametrize(
    ("found", "state", "reason"),
    [
        (references(0.07, -0.05), "apart", "credit from the privileged reference is clearly better"),
        (references(0.07, 0.01), "apart", "credit from the privileged reference is clearly better"),
        (references(0.03, 0.015), "undecided", "with 4 seeds an interval of the reference or of noise includes zero"),
        (references(0.07, -0.05, half=0.1), "undecided", "with 4 seeds"),
        (references(0.15, -0.05, seeds=1), "undecided", "one seed; intervals cover the choice of games"),
        (references(0.15, -0.05, seeds=2), "undecided", "two seeds; they may agree by chance"),
        (references(0.15, -0.05, seeds=3), "apart", "clearly better"),
        (references(-0.01, -0.05), "cannot", "gains less than 2 points"),
        (references(0.15, 0.03), "cannot", "noise as credit is clearly better"),
        (references(0.15, None), "open", "random_credit has no finished run"),
        (references(None, 0.03), "open", "oracle_progress has no finished run"),
        (references(None, None), "open", "oracle_progress and random_credit have no finished run"),
        (References(estimate(0.1), estimate(-0.1), None), "open", "no finished seed in common"),
    ],
)
def test_the_verdict_follows_from_the_references_intervals_and_says_why(found, state, reason):
    said = verdict(found, apart=[], **FOUR)
    assert said.state == state
    assert reason in said.words


@given(
    st.floats(-0.3, 0.3),
    st.floats(-0.3, 0.3),
    st.floats(0.001, 0.2),
    st.integers(1, 8),
    st.lists(st.just("x"), max_size=1),
)
def test_one_seed_never_decides_and_an_answer_never_contradicts_its_intervals(upper, lower, half, seeds, apart):
    state = verdict(references(upper, lower, half, seeds), apart=apart, **FOUR).state
    assert (state == "undecided") >= (seeds == 1)
    assert (state == "apart") <= (lower - half <= 0 and (upper - half > 0 or bool(apart)))
    assert (state == "cannot") <= (lower - half > 0 or upper + half < RELEVANT)


def test_a_method_that_is_told_apart_answers_the_question_where_the_references_do_not():
    said = verdict(references(0.01, -0.05), apart=["has_judge"], **FOUR)
    assert said.state == "apart"
    assert "has_judge clearly differs from flat_grpo, though the reference and noise alone would not" in said.words
    assert verdict(references(0.01, 0.05), apart=["has_judge"], **FOUR).state == "cannot"


def test_a_method_that_is_told_apart_without_noise_beside_it_leaves_the_question_open():
    said = verdict(References(None, None, None), apart=["mine"], methods=["flat_grpo", "mine"], seeds=[0, 1, 2])
    assert said.state == "open"
    assert "random_credit have no finished run; whether noise differs from flat_grpo as mine does is open" in said.words
    assert "Next, what is missing: turncredit run --config 'methods=[flat_grpo, mine, random_credit, " in said.next


@pytest.mark.parametrize(
    ("seeds", "wanted"),
    [([0], [0, 1, 2, 3]), ([0, 1, 2], [0, 1, 2, 3, 4, 5]), ([10, 11, 12, 13], [0, 1, 2, 3, 10, 11, 12, 13])],
)
def test_what_is_undecided_is_told_to_run_more_seeds_and_keeps_those_it_has(seeds, wanted):
    said = verdict(references(0.03, -0.05, half=0.1), apart=[], methods=FOUR["methods"], seeds=seeds)
    (setting,) = re.findall(r"turncredit run --config '([^']*)', with", said.next)
    name, _, value = setting.partition("=")
    assert (name, yaml.safe_load(value)) == ("seeds", wanted)


@pytest.mark.parametrize(
    ("seeds", "said"),
    [((3, 1), "a (+5.0 points) differs from flat_grpo."), ((1, 1), "with one seed."), ((2, 1), "with two seeds.")],
)
def test_a_method_with_one_finished_seed_does_not_silence_those_with_more(monkeypatch, seeds, said):
    experiment = SimpleNamespace(runs=lambda: [("a", 0)], start_of=lambda _: "sft")
    monkeypatch.setattr(module, "paired", lambda *_: estimate(0.1))
    monkeypatch.setattr(module, "at_checkpoint", lambda *_: Sourced(estimate(0.4), "", ""))
    found = {"a": estimate(0.05, seeds=seeds[0]), "b": estimate(0.05, seeds=seeds[1])}
    adjusted = Corrected({"a": 0.001, "b": 0.001}, {}, {})
    assert module._headline(SimpleNamespace(experiment=experiment), "flat_grpo", found, adjusted).endswith(said)


def test_what_has_begun_is_told_to_finish_its_seeds_before_others_are_added():
    said = verdict(references(0.03, -0.05, seeds=2), apart=[], methods=FOUR["methods"], seeds=list(range(8)))
    assert said.next == "Next, the same command: it finishes the seeds that are configured."


def test_where_methods_are_told_apart_the_next_one_is_suggested_by_a_setting():
    for methods, more in ((FOUR["methods"], "turn_value"), ([*FOUR["methods"], "turn_value"], "gigpo")):
        said = verdict(references(0.2, -0.05), apart=[], methods=methods, seeds=[0, 1])
        assert said.state == "apart"
        (setting,) = re.findall(r"turncredit run --config '([^']*)', with", said.next)
        assert yaml.safe_load(setting.partition("=")[2]) == [*methods, more]


def test_what_lacks_a_reference_is_told_to_train_it_unless_there_is_no_distance():
    alone = {"methods": ["flat_grpo", "scpo"], "seeds": [0]}
    said = verdict(references(None, None), apart=[], **alone)
    (setting,) = re.findall(r"turncredit run --config '([^']*)', with", said.next)
    assert yaml.safe_load(setting.partition("=")[2]) == ["flat_grpo", "scpo", "random_credit", "oracle_progress"]
    assert "no exact distance" in verdict(references(None, None), apart=[], measurable=False, **alone).next


@pytest.fixture(scope="module")
def summary(tmp_path_factory):
    methods = ["flat_grpo", "has_turnrd_film_outcome_only", "oracle_progress", "random_credit"]
    config = synthetic.experiment(methods=methods, seeds=[0, 1], rounds=3, games=12)
    done = {("random_credit", 0): 1, ("random_credit", 1): 1}
    return summarise(collect(synthetic.make(tmp_path_factory.mktemp("narrow"), config, rounds_done=done, turns=False)))


@pytest.mark.slow
def test_the_final_table_fits_80_columns_and_no_number_and_no_name_is_cut(summary):
    screen = Console(width=80, record=True, file=open("/dev/null", "w", encoding="utf-8"))  # noqa: SIM115
    terminal.print_table(final_table(summary), screen)
    text = screen.export_text()
    assert max(map(len, text.splitlines())) <= 80
    final = summary.sections["final"][0].rows
    flat = final["flat_grpo"]["final"]
    low, high = flat.interval.split(" to ")
    assert f" {flat.text} " in text
    assert f"[{low}, {high}]" in text  # below: the longest name leaves no room beside it
    gain = final["oracle_progress"]["minus_baseline"]
    assert f"[{gain.interval.replace(' to ', ', ')}]" in text
    assert "has_turnrd_film_outcome_only" in text
    assert "unfinished" in text
    assert "…" not in text


def test_a_plain_sentence_stands_above_the_table_and_what_to_run_next_below(tmp_path, capsys):
    config = synthetic.experiment(seeds=[0], rounds=3, games=12)
    folder = synthetic.make(tmp_path, config, turns=False)
    print_table(folder)
    said = capsys.readouterr().out
    assert said.index("No difference between methods can be shown with one seed") < said.index("above flat_grpo")
    assert (
        said.index("above flat_grpo") < said.index("undecided: one seed") < said.index("--config 'seeds=[0, 1, 2, 3]'")
    )
    assert "after Holm" not in said
