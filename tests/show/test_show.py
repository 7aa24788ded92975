from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from tests.helpers import nonempty
from tests.results import synthetic
from turncredit.credit.parts.baselines import NOT_COMPARED
from turncredit.data import tables
from turncredit.errors import UserError
from turncredit.views.pages.agreement import mean_ranks
from turncredit.views.pages.data import noise_of_largest, read_book
from turncredit.views.show import command, lines
from turncredit.views.show.find import find
from turncredit.views.show.read import RolloutCredit, RolloutTables


def shown(capsys, what, rollout=None, turn=None, *, results=Path("nowhere"), credit_files=(), components=False) -> str:
    command.run(str(what), rollout, turn, results=results, credit_files=list(credit_files), components=components)
    return capsys.readouterr().out


def test_without_a_rollout_all_are_listed(finished, capsys):
    turns = finished / "rollouts/flat_grpo/seed0/round02/turns.parquet"
    out = shown(capsys, turns.parent)
    for name in pq.read_table(turns)["rollout_id"].unique().to_pylist():
        assert f" {name} " in out


def test_a_terminal_lists_one_line_for_each_of_the_first_rollouts_and_says_how_to_list_the_others(
    tmp_path, capsys, monkeypatch
):
    path, ids = tmp_path / "mine.parquet", [f"a-long-name-of-a-rollout#{number:03}" for number in range(300)]
    keys = {"group_id": [name[:-2] for name in ids], "rollout_id": ids, "turn": [0] * 300}
    more = {"success": [True] * 300, "score": [1.0] * 300, "goal": ["put a rather clean mug on the second shelf"] * 300}
    pq.write_table(pa.table({**keys, **more}), path)
    piped = shown(capsys, path)
    assert [name for name in ids if f" {name} " not in piped] == []
    monkeypatch.setattr(command, "console", lambda: Console(width=60, force_terminal=True, color_system=None))
    out = shown(capsys, path)
    assert [line.split()[0] for line in out.splitlines() if "#" in line][:-1] == ids[: lines.LISTED]
    assert f"and 280 more; all of them: turncredit show {path} --results nowhere | cat" in out
    assert "score" not in out


def test_rollouts_with_ground_truth_are_listed_first_and_the_last_line_shows_one_of_them(audited, tmp_path, capsys):
    place = shutil.copytree(audited, tmp_path / "synthetic") / "rollouts/flat_grpo/seed0/round03"
    truth = pq.read_table(place / "branches.parquet")
    last = max(truth["group_id"].to_pylist())
    truth = truth.filter(pc.equal(truth["group_id"], last))
    tables.write(truth, place / "branches.parquet", "branches", synthetic.MADE_BY)
    lines = shown(capsys, "flat_grpo/seed0/round03", results=tmp_path).splitlines()
    groups = [line.split("#")[0].strip() for line in lines if "#" in line and "turncredit" not in line]
    assert groups[0] == last
    assert groups != sorted(groups)
    assert groups == sorted(groups, key=lambda group: group != last)
    assert re.fullmatch(
        rf"One of them, turn by turn: turncredit show flat_grpo/seed0/round03 '{last}#\d' --results {tmp_path}",
        lines[-1],
    )


def test_options_about_credit_ask_for_the_rollout_whose_credit_is_meant(finished, tmp_path, capsys):
    for option, given in (("--components", {"components": True}), ("--credits", {"credit_files": [tmp_path]})):
        with pytest.raises(UserError) as caught:
            shown(capsys, "flat_grpo/seed0/round02", results=finished, **given)
        assert str(caught.value).startswith(
            f"{option} is about the credit of one rollout; add its name, as in turncredit "
        )
        assert "\n" not in str(caught.value)
    assert capsys.readouterr().out == ""


def test_a_run_is_found_by_its_short_name(finished, capsys):
    by_name = shown(capsys, "flat_grpo/seed0/round02", "train-2-0#1", results=finished.parent)
    by_folder = shown(capsys, finished / "runs/flat_grpo/seed0/round02", "train-2-0/train-2-0#1")
    assert by_name == by_folder
    assert by_name == shown(capsys, "synthetic/flat_grpo/seed0/round02", "train-2-0#1", results=finished.parent)


def test_each_turn_has_its_action_and_its_advantage(finished, capsys):
    folder = finished / "runs/flat_grpo/seed0/round02"
    out = shown(capsys, folder, "train-2-0#0")
    path = finished / "rollouts/flat_grpo/seed0/round02/credits/flat_grpo.parquet"
    credits = tables.read(path, "credits").to_pylist()
    for row in nonempty(row for row in credits if row["rollout_id"] == "train-2-0#0"):
        assert f"flat_grpo  {row['advantage']:+8.3f}" in out
        assert f"> go to shelf {row['turn'] + 1}" in out
    assert "turn_term" not in out
    assert "turn_term" in shown(capsys, folder, "train-2-0#0", components=True)


def test_progress_and_distance_are_those_of_the_measures_beside_the_turns(finished, capsys):
    folder = finished / "runs/flat_grpo/seed0/round02"
    measures = tables.read(finished / "rollouts/flat_grpo/seed0/round02/measures.parquet", "measures").to_pylist()
    out = shown(capsys, folder, "train-2-0#0")
    for row in nonempty(row for row in measures if row["rollout_id"] == "train-2-0#0"):
        assert f"progress {row['progress_before']:.3g} to {row['progress']:.3g}" in out
    assert "progress_before: 0" in shown(capsys, folder, "train-2-0#0", 0)


def test_round_one_shows_the_shared_rollouts_with_the_runs_own_credit_first(finished, capsys):
    out = shown(capsys, finished / "runs/oracle_progress/seed1/round01", "train-1-0#0")
    credited = [line.split()[0] for line in out.splitlines() if "│" in line]
    assert credited[:4] == ["oracle_progress", "flat_grpo", "has_progressive", "random_credit"]
    by_turns = shown(capsys, "sft-t4k4T1.0/seed1/round01", "train-1-0#0", results=finished)
    assert sorted(by_turns.splitlines()) == sorted(out.splitlines())


def test_the_shared_rollouts_show_every_methods_credit(finished, capsys):
    turns = finished / "rollouts/sft-t4k4T1.0/seed0/round01/turns.parquet"
    out = shown(capsys, turns, "train-1-0#0")
    for method in ("flat_grpo", "has_progressive", "oracle_progress", "random_credit"):
        assert method in out


def test_one_turn_is_shown_in_full(finished, capsys):
    out = shown(capsys, "flat_grpo/seed0/round02", "train-2-0#0", 1, results=finished)
    assert "observation: You arrive at shelf 1. On the shelf 1, you see a mug 1." in out
    assert "admissible: look" in out
    assert "trajectory" in out
    assert "response_logprobs" not in out


def test_a_table_of_ones_own_needs_only_the_keys(tmp_path, capsys):
    path = tmp_path / "mine.parquet"
    keys = {"group_id": [1, 1], "rollout_id": [7, 7], "turn": [1, 0]}
    pq.write_table(pa.table({**keys, "action": ["second", "first"]}), path)
    out = shown(capsys, path, "7")
    assert out.index("> first") < out.index("> second")
    credit = tmp_path / "credits.parquet"
    pq.write_table(pa.table({**keys, "method": ["mine"] * 2, "advantage": [-1.0, 0.5]}), credit)
    # Its whole numbers as keys match the text keys of a credits table.
    assert "mine    -1.000" in shown(capsys, path, "7", credit_files=[credit])


def test_each_line_of_an_action_stands_under_the_first(tmp_path, capsys):
    """Such as the calls of a turn with several."""
    path = tmp_path / "mine.parquet"
    keys = {"group_id": ["g"], "rollout_id": ["r"], "turn": [0]}
    pq.write_table(pa.table({**keys, "action": ['find {"id": 1}\nfind {"id": 2}']}), path)
    lines = shown(capsys, path, "r").splitlines()
    assert [line.index("find") for line in lines if "find" in line] == [7, 7]


def test_a_system_prompt_and_a_long_result_are_folded_until_their_turn_is_asked_for(tmp_path, capsys):
    path, prompt, result = tmp_path / "mine.parquet", "You are an agent. " * 900 + "Begin.", "row " * 5000 + "end"
    keys = {"group_id": ["g"], "rollout_id": ["r"], "turn": [0]}
    texts = {"observation": [prompt], "action": ["list"], "next_observation": [result]}
    pq.write_table(pa.table({**keys, **texts, "tool_error": ["There is no tool call."]}), path)
    out = shown(capsys, path, "r")
    assert len(out) < 3000
    assert "[... 15,206 characters ...]" in out
    assert "Begin." in out
    assert "There is no tool call." in out
    assert result in " ".join(shown(capsys, path, "r", 0).split())  # a terminal breaks lines


def test_an_excerpt_of_a_rollout_is_shown_also_with_its_credit(tmp_path, capsys):
    path, credit = tmp_path / "late.parquet", tmp_path / "mine.parquet"
    keys = {"group_id": ["g"] * 2, "rollout_id": ["r"] * 2, "turn": [5, 2]}
    pq.write_table(pa.table({**keys, "action": ["second", "first"]}), path)
    out = shown(capsys, path, "r")
    assert out.index("> first") < out.index("> second")
    pq.write_table(pa.table({**keys, "advantage": [-1.0, 0.5]}), credit)
    with_credit = shown(capsys, path, "r", credit_files=[credit])
    assert with_credit.index("+0.500") < with_credit.index("-1.000")


def test_credit_whose_method_is_null_has_the_files_name(tmp_path, capsys):
    turns, credits = two_methods(tmp_path)
    table = pq.read_table(credits).slice(0, 2)
    null = pa.nulls(2, pa.string())
    pq.write_table(table.set_column(table.column_names.index("method"), "method", null), credits)
    out = shown(capsys, turns, "r", credit_files=[credits])
    assert "credits  " in out
    assert "None" not in out


def two_methods(tmp_path):
    """A rollout of two turns and a table of two methods' credit of it: the paths of both."""
    turns, credits = tmp_path / "mine.parquet", tmp_path / "credits.parquet"
    keys = {"group_id": ["g"] * 2, "rollout_id": ["r"] * 2, "turn": [0, 1]}
    pq.write_table(pa.table({**keys, "action": ["first", "second"]}), turns)
    both = {name: column * 2 for name, column in keys.items()}
    numbers = {"advantage": [1.0, 2.0, -3.0, -4.0], "part": [0.1, 0.2, 0.3, 0.4]}
    pq.write_table(pa.table({**both, "method": ["one"] * 2 + ["two"] * 2, **numbers}), credits)
    return turns, credits


@pytest.mark.parametrize("turn", [None, 1])
def test_a_table_of_several_methods_shows_each_methods_own_numbers(tmp_path, capsys, turn):
    turns, credits = two_methods(tmp_path)
    out = shown(capsys, turns, "r", turn, credit_files=[credits], components=True)
    assert [out.count(f"{name}    {value:+.3f}") for name, value in (("one", 2.0), ("two", -4.0))] == [1, 1]
    assert re.search(r"two .*│.*\n +part \+0\.4", out)


@pytest.mark.parametrize(
    ("keep", "said"),
    [
        ([0, 1, 2], "no row for group 'g', rollout 'r', turn 1 "),
        ([0, 1, 2, 3, 3], "duplicate key: group_id 'g', rollout_id 'r', turn 1 occurs more than once"),
    ],
)
def test_credit_that_lacks_a_turn_or_has_one_twice_is_one_line(tmp_path, capsys, keep, said):
    turns, credits = two_methods(tmp_path)
    pq.write_table(pq.read_table(credits).take(keep), credits)
    with pytest.raises(UserError) as caught:
        shown(capsys, turns, "r", credit_files=[credits])
    assert str(caught.value).startswith(f"{credits}: {said}")
    assert "\n" not in str(caught.value)


def test_an_experiment_without_a_round_is_told_from_none(finished, tmp_path, capsys):
    (tmp_path / "synthetic").mkdir()
    with pytest.raises(UserError, match="there is no experiment in"):
        shown(capsys, "flat_grpo/seed0/round01", results=tmp_path / "nowhere")
    shutil.copy(finished / "config.json", tmp_path / "synthetic")
    with pytest.raises(UserError, match=r"no experiment in .* has a round yet"):
        shown(capsys, "flat_grpo/seed0/round01", results=tmp_path)


@pytest.mark.parametrize(
    ("what", "rollout", "turn", "said"),
    [
        ("flat_grpo/seed0/rond02", None, None, "did you mean 'flat_grpo/seed0/round02'"),
        ("nothing/at/all", None, None, "neither a file, nor a folder"),
        ("runs/flat_grpo/seed0", None, None, "neither a file, nor a folder"),
        ("flat_grbo/seed0/round01", None, None, "did you mean 'flat_grpo/seed0/round01'"),
        ("flat_grpo/seed0/round09", None, None, "did you mean 'flat_grpo/seed0/round0"),
        ("flat_grpo/seed0/round02", "train-2-0#77", None, "no rollout 'train-2-0#77'"),
        ("flat_grpo/seed0/round02", "train-2-0#0", 99, "not 99"),
    ],
)
def test_what_is_not_there_is_one_line(what, rollout, turn, said, finished, capsys):
    with pytest.raises(UserError) as caught:
        shown(capsys, what, rollout, turn, results=finished.parent)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_rollout_id_in_several_groups_must_be_written_with_its_group(tmp_path, capsys):
    path = tmp_path / "mine.parquet"
    pq.write_table(pa.table({"group_id": ["a", "b"], "rollout_id": ["x", "x"], "turn": [0, 0]}), path)
    with pytest.raises(UserError, match="write GROUP/ROLLOUT"):
        shown(capsys, path, "x")
    assert "b/x" in shown(capsys, path, "b/x")


def test_a_rollout_whose_id_has_its_group_is_named_once_and_found_by_its_second_part(tmp_path, capsys):
    path = tmp_path / "mine.parquet"
    ids = {"group_id": ["a", "a", "b"], "rollout_id": ["a/r0", "a/r1", "b/r0"], "turn": [0, 0, 0]}
    pq.write_table(pa.table(ids), path)
    for name in ("r1", "a/r1", "a/a/r1"):
        assert shown(capsys, path, name).splitlines()[0] == "a/r1"
    with pytest.raises(UserError, match="rollout 'r0' is in 2 groups"):
        shown(capsys, path, "r0")


def test_the_list_has_the_return_of_rollouts_without_success(tmp_path, capsys):
    path = tmp_path / "mine.parquet"
    turns = {"group_id": ["a"] * 3, "rollout_id": ["x", "x", "y"], "turn": [0, 1, 0], "reward": [0.25, 0.5, None]}
    pq.write_table(pa.table(turns), path)
    lines = [line.split() for line in shown(capsys, path).splitlines()]
    assert ["rollout", "turns", "return"] in lines
    assert ["x", "2", "0.75"] in lines
    assert ["y", "1", "none"] in lines
    pq.write_table(pa.table({**turns, "success": [True, True, False]}), path)
    assert ["rollout", "turns", "success"] in [line.split() for line in shown(capsys, path).splitlines()]


def test_a_missing_key_column_is_named(tmp_path, capsys):
    path = tmp_path / "mine.parquet"
    pq.write_table(pa.table({"group_id": ["a"], "rollout": ["x"], "turn": [0]}), path)
    with pytest.raises(UserError, match=r"showing rollouts needs the column 'rollout_id' \(did you mean 'rollout'"):
        shown(capsys, path)


@pytest.mark.parametrize(
    ("value", "scale", "expected"),
    [(0.0, 1.0, (0, 0)), (1.0, 1.0, (0, 12)), (-0.5, 1.0, (6, 0)), (0.0, 0.0, (0, 0)), (float("nan"), 1.0, (0, 0))],
)
def test_a_bar_grows_from_zero_to_its_side(value, scale, expected):
    left, right = lines.bar(value, scale).split("│")
    assert (left.count("█"), right.count("█")) == expected
    assert len(left) == lines.BAR


# Ground truth and labels ---------------------------------------------------------------------------------------------


def test_an_audited_round_shows_the_truth_beside_every_methods_credit(audited, capsys):
    out = shown(capsys, audited / "runs/flat_grpo/seed0/round03", "train-3-0#0")
    truth = tables.read(audited / "rollouts/flat_grpo/seed0/round03/branches.parquet", "branches").to_pylist()
    mine = nonempty(row for row in truth if row["rollout_id"] == "train-3-0#0")
    for row in mine:
        assert f"A* {row['advantage_true']:+.3f} ± 0.100 (V 0.50, Q {row['q_true']:.2f}, 24 continuations)" in out
    best = max(mine, key=lambda row: row["advantage_true"])
    assert f"A* {best['advantage_true']:+.3f}" in next(line for line in out.splitlines() if "★ most useful" in line)
    # The run's own credit comes first, and only once.
    assert out.count("  flat_grpo  ") == len(mine)
    assert "turn_value" in out
    assert "rule-role: decisive (it moved)" in out
    assert "Rank correlation with A*" in out


def test_the_folders_of_a_run_and_of_its_turns_show_the_same(audited, capsys):
    for turns, run, rollout in (
        ("rollouts/sft-t4k4T1.0/seed0/round01", "runs/flat_grpo/seed0/round01", "train-1-0#0"),
        ("rollouts/flat_grpo/seed0/round03", "runs/flat_grpo/seed0/round03", "train-3-0#0"),
    ):
        by_turns = shown(capsys, audited / turns, rollout)
        assert "A* " in by_turns
        assert by_turns == shown(capsys, audited / turns / "turns.parquet", rollout)
        assert by_turns == shown(capsys, audited / run, rollout)


def test_a_folder_without_a_round_is_one_line(audited, capsys):
    for folder in (audited / "rollouts/flat_grpo/seed0", audited.parent):
        with pytest.raises(UserError, match="not the folder of a round"):
            shown(capsys, folder)


def test_a_round_without_turns_is_named(tmp_path, capsys):
    folder = synthetic.make(
        tmp_path, synthetic.experiment(methods=["flat_grpo"], seeds=[0], games=6, rounds=1), turns=False
    )
    with pytest.raises(UserError, match=r"round01/turns\.parquet: no turns of this round yet"):
        shown(capsys, folder / "runs/flat_grpo/seed0/round01")


def test_round_one_of_an_audited_run_shows_every_methods_credit_its_own_first(audited, capsys):
    out = shown(capsys, audited / "runs/flat_grpo/seed0/round01", "train-1-0#0")
    assert "A* " in out
    credited = [line.split()[0] for line in out.splitlines() if "│" in line]
    assert credited[0] == "flat_grpo"
    assert {"turn_value", "random_credit"} <= set(credited)


def test_the_list_says_which_rollouts_have_truth(audited, capsys):
    truth = tables.read(audited / "rollouts/flat_grpo/seed0/round03/branches.parquet", "branches").to_pylist()
    lines = shown(capsys, audited / "runs/flat_grpo/seed0/round03").splitlines()
    assert ["rollout", "turns", "branched"] in [line.split()[:3] for line in lines]
    for name in nonempty({row["rollout_id"] for row in truth}):
        count = sum(row["rollout_id"] == name for row in truth)
        assert next(line for line in lines if f" {name} " in line).split()[2] == str(count)


def test_a_star_that_noise_explains_says_so(audited, capsys):
    out = shown(capsys, audited / "runs/flat_grpo/seed0/round03", "train-3-0#0")
    count = sum(line.startswith("     A* ") for line in out.splitlines())
    starred = [line for line in out.splitlines() if "★" in line]
    assert starred
    for line in starred:
        value = abs(float(line.split()[1]))
        assert (value <= noise_of_largest(0.1, count)) == line.endswith(f"within the noise of the largest of {count}")


def test_the_largest_of_turns_that_change_nothing_stands_out_in_one_of_twenty_rollouts():
    drawn = np.abs(np.random.default_rng(0).normal(0.0, 0.1, (20_000, 18)))
    assert noise_of_largest(0.1, 1) == pytest.approx(0.196, abs=1e-3)
    assert (drawn.max(axis=1) > noise_of_largest(0.1, 18)).mean() == pytest.approx(0.05, abs=0.01)
    assert (drawn.max(axis=1) > noise_of_largest(0.1, 1)).mean() > 0.5


def test_one_turn_in_full_has_its_truth(audited, capsys):
    assert "A* " in shown(capsys, audited / "runs/flat_grpo/seed0/round03", "train-3-0#0", 0)


@pytest.mark.parametrize(
    ("true", "credit", "said"),
    [
        ([1.0, 2.0, 3.0], [0.1, 0.2, 5.0], "over 3 turns of this rollout alone: mine +1.00"),
        ([1.0, 2.0, 3.0], [5.0, 5.0, 5.0], "over 3 turns of this rollout alone: mine +0.00"),
        ([0.2, 0.2, 0.2], [0.1, 0.2, 5.0], ""),
        ([1.0, 2.0], [0.1, 0.2], ""),
        ([0.5, 0.0, 0.0, 0.1], [0.1, 0.2, 5.0, 0.0], "only 2 have an A* other than 0: too few to rank methods by."),
        ([], [], ""),
    ],
)
def test_the_rank_correlation_of_a_rollout_is_spearmans_where_there_is_an_order_to_find(true, credit, said):
    truth = {turn: {"advantage_true": value} for turn, value in enumerate(true)}
    mine = RolloutCredit("mine", dict(enumerate(credit)), {}, 1.0)
    line = "".join(map(str, lines._agreement(RolloutTables([mine], [], truth))))
    assert line.endswith(said)
    assert bool(line) == bool(said)


def test_a_rank_correlation_stands_before_the_mean_over_all_rollouts_and_references_come_last(audited, capsys):
    place = audited / "rollouts/flat_grpo/seed0/round03"
    out = shown(capsys, place, "train-3-0#0")
    line = next(line for line in out.splitlines() if "Rank correlation" in line)
    credits = {path.stem: path for path in place.glob("credits/*.parquet")}
    book = read_book(turns=place / "turns.parquet", credits=credits, branches=place / "branches.parquet")
    ranked = max(int(found.scored_R.sum()) for found in book.correlations.values())
    assert f"of this rollout alone (and over {ranked} rollouts): " in line
    found = dict(re.findall(r"(\w+)(?: \(\w+\))? [+-][\d.]+ \(([+-][\d.]+)\)", line.partition("): ")[2]))
    for name, mean in nonempty(mean_ranks(book).items()):
        assert float(found[name]) == pytest.approx(mean, abs=0.005)
    kinds = [name in NOT_COMPARED for name in found]
    assert kinds == sorted(kinds)
    assert set(kinds) == {True, False}
    assert "random_credit (noise) " in line


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"role": "D", "score": None, "evidence": "took it", "reason": None}, "decisive (took it)"),
        ({"role": None, "score": 0.5, "evidence": None, "reason": None}, "score 0.5"),
        ({"role": None, "score": -1.0, "evidence": "back", "reason": None}, "score -1 (back)"),
        ({"role": None, "score": float("nan"), "evidence": None, "reason": "no JSON"}, "no label (no JSON)"),
    ],
)
def test_a_label_is_a_role_a_score_or_the_reason_why_there_is_none(said, expected):
    assert lines._label(said) == expected


def test_a_round_that_several_experiments_have_is_named_with_its_experiment(finished, tmp_path):
    for name in ("one", "two"):
        shutil.copytree(finished, tmp_path / name)
        config = tmp_path / name / "config.json"
        config.write_text(json.dumps({**json.loads(config.read_text()), "experiment": name}))
    what = "flat_grpo/seed0/round02"
    with pytest.raises(UserError, match=rf"{what}: several experiments .* name one of one/{what}, two/{what}"):
        find(what, tmp_path)
    assert find(f"two/{what}", tmp_path).turns.is_relative_to(tmp_path / "two")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no experiment here"):
        find(what, tmp_path / "empty")
