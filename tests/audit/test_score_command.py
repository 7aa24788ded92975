"""`turncredit score`: the findings that it is for, its outputs, and one line for all that a method can do wrong."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from tests.helpers import nonempty
from tests.helpers import turncredit as run
from turncredit.audit.score import card as module
from turncredit.audit.score.blocks import Measured
from turncredit.audit.score.card import SIZE, as_json, score, summarise
from turncredit.audit.score.leaderboard import leaderboard
from turncredit.audit.score.probes import traits
from turncredit.audit.score.running import at_most, can_score
from turncredit.audit.score.worlds import WORLDS, process
from turncredit.credit import METHODS, resolve
from turncredit.errors import UserError
from turncredit.views.score.leaderboard import markdown
from turncredit.views.score.page import card_page, leaderboard_page
from turncredit.views.score.words import verdict

FAST = {"rollouts": 256, "worlds": ("stop_helps", "repair", "stop")}
CLOSED_FORM = [name for name, method in METHODS.items() if can_score(method) is None]


def cosine(name: str, world: str, rollouts: int = 4096) -> float:
    return score(METHODS[name], worlds=(world,), rollouts=rollouts).worlds[0].validity[SIZE].cosine.value


# ------------------------------------------------------------------ what it finds


def test_progress_ranks_turns_and_has_a_biased_gradient_where_mistakes_are_repaired():
    one = score(METHODS["has_progressive"], worlds=("repair",), rollouts=4096).worlds[0]
    assert one.identification.rank.value > 0.3
    assert one.validity[SIZE].cosine.value < 0.8
    assert "slip" in one.validity[SIZE].charged.action


def test_the_reward_of_mgr_points_away_from_the_policy_gradient_where_most_turns_are_dead():
    assert cosine("mgr_no_critic", "dead") < 0
    assert cosine("gigpo", "dead") > 0.98


def test_a_method_that_ranks_nothing_can_have_a_valid_gradient():
    flat = score(METHODS["flat_grpo"], worlds=("repair",), rollouts=4096).worlds[0]
    assert flat.identification.rank.value == 0
    assert flat.validity[SIZE].cosine.value > 0.99


def test_the_measured_advantage_needs_fewer_rollouts_than_flat_grpo_and_random_credit_more():
    settings = {"rollouts": 2048, "worlds": ("early", "repair")}
    flat, truth, noise = (score(METHODS[name], **settings) for name in ("flat_grpo", "truth", "random_credit"))
    assert summarise(truth, flat).noise < 0.5
    assert summarise(noise, flat).noise > 1.5
    assert summarise(flat, flat).noise == pytest.approx(1)
    assert summarise(flat, flat).worst == min(one.validity[SIZE].cosine.value for one in flat.worlds)
    worse = [
        replace(one, validity={SIZE: replace(one.validity[SIZE], rollouts=factor * one.validity[SIZE].rollouts)})
        for one, factor in zip(flat.worlds, (2, 8), strict=True)
    ]
    assert summarise(replace(flat, worlds=tuple(worse)), flat).noise == pytest.approx(4)  # the geometric mean


# ------------------------------------------------------------------ every method, and its traits


@pytest.mark.slow
@pytest.mark.parametrize("name", CLOSED_FORM)
def test_every_closed_form_method_runs_unchanged(name):
    card = score(METHODS[name], rollouts=64, worlds=("stop_helps", "tasks", "refused"))
    apart = [one.world for one in card.left_out]
    assert apart == (["stop_helps"] if {"progress", "distance"} & set(METHODS[name].reads) else [])
    assert nonempty(one.validity[SIZE].scale.value for one in card.scored())


def test_methods_that_read_what_the_worlds_lack_are_told_so():
    left_out = set(METHODS) - set(CLOSED_FORM)
    assert {"has_judge", "turn_value", "carl", "hcapo"} <= left_out
    with pytest.raises(UserError, match="has_judge: reads the side table 'labels'"):
        score(METHODS["has_judge"])


def test_what_a_method_reads_is_found_and_not_taken_on_trust():
    assert traits(METHODS["flat_grpo"]).reads == ("reward",)
    assert traits(METHODS["gigpo"]).reads == ("reward", "observation")
    assert set(traits(METHODS["oracle_progress"]).reads) == {"distance_before", "distance"}

    def secretly(turns):
        """Reads more than the reward, and does not say so."""
        return turns.return_R[turns.rollout_N] + turns.truths("valid")

    assert traits(resolve(secretly)).reads == ("reward", "valid")


def test_traits_tell_batches_random_numbers_and_wording_apart():
    flat, whitened, noise, similar = (
        traits(METHODS[name]) for name in ("flat_grpo", "reinforce_pp", "random_credit", "scpo")
    )
    assert flat.enumerable
    assert flat.outcome_share == pytest.approx(1)
    assert (whitened.own_group, whitened.random) == (False, False)
    assert (noise.own_group, noise.random, noise.ids) == (True, True, None)
    assert not similar.wording
    assert not any(one.enumerable for one in (whitened, noise, similar))


def test_a_method_whose_texts_exact_worlds_lack_is_said_to_be_shown_on_recorded_rollouts_only():
    def microwave(turns):
        """Rewards a word of the household's."""
        there_N = np.array(["microwave" in text for text in turns.column("observation")])
        return turns.return_R[turns.rollout_N] + there_N

    says = "On exact worlds it gives all turns of a rollout the same credit. If it reads an environment's texts, only"
    for method, same in ((resolve(microwave), True), (METHODS["rloo"], True), (METHODS["gigpo"], False)):
        card = score(method, **FAST)
        assert any(line.startswith(says) for line in verdict(card, summarise(card, card))) is same


@pytest.mark.filterwarnings("ignore:(divide by zero|invalid value)")
def test_a_method_that_is_not_defined_in_groups_of_one_is_scored_all_the_same():
    def naive(turns):
        """Divides by a deviation that one rollout does not have; a group of equal returns has 0."""
        mean_G = turns.sum_G(turns.return_R) / turns.size_G
        off_R = turns.return_R - mean_G[turns.group_R]
        spread_G = np.sqrt(turns.sum_G(off_R**2) / (turns.size_G - 1))
        return (off_R / np.where(spread_G == 0, 1, spread_G)[turns.group_R])[turns.rollout_N]

    found = traits(resolve(naive))
    assert np.isnan(found.alone)
    assert found.dead_groups == 0


def test_credit_in_groups_of_equal_returns_is_found():
    """A method that pays turns of exactly these groups gives no credit to any other."""

    def paid(turns):
        return np.where(turns.dead_G[turns.group_N], 5.0, np.sign(turns.reward_N - 0.5))

    assert traits(resolve(paid)).dead_groups > 5
    assert traits(METHODS["flat_grpo"]).dead_groups == 0


def test_credit_that_follows_the_turn_number_is_found():
    assert traits(resolve(lambda turns: turns.turn_N.astype(float))).turn_share == pytest.approx(1)
    assert traits(METHODS["flat_grpo"]).turn_share < 1e-9


def test_credit_for_refused_actions_is_told_in_deviations_against_what_they_are_worth():
    found = traits(resolve(lambda turns: 1.0 - turns.truths("valid")))
    assert found.refused > 1
    assert found.outcome_share < 0.5


def test_the_order_of_rows_is_a_trait():
    def by_row(turns):
        """The place in the file."""
        return turns.order_N.astype(float)

    assert not traits(resolve(by_row)).row_order


# ------------------------------------------------------------------ what goes wrong

FAULTS = {
    "raises": ("return turns.return_R / 0 + {}['x']", r"own\.py:6: own: KeyError: 'x'"),
    "shape": ("return turns.return_R", r"shape \(\d+,\); one number for each of the \d+ turns is needed"),
    "none": ("turns.return_R", r"returned None \(is its `return` missing\?\)"),
    "text": ("return np.array(['a'] * turns.n)", "contains a value that is not a number"),
    "nan": ("return np.full(turns.n, np.nan)", r"column 'advantage' is nan at group"),
    "infinite": ("return turns.reward_N / 0", r"column 'advantage' is (nan|inf) at group"),
    "random": ("return np.random.normal(size=turns.n)", "gives the same turns two different credits"),
    "absent": ("return turns.numbers('judge')", "needs the column 'judge', which the table does not have"),
    "side": ("return turns.side_table('labels').numbers('score')", "needs the side table 'labels'"),
    "exit": ("raise SystemExit(3)", "SystemExit: 3"),
    "cheats": ("return turns.numbers('advantage_true')", "needs the column 'advantage_true'"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.filterwarnings("ignore:(divide by zero|invalid value)")
def test_a_faulty_function_is_one_line(tmp_path, fault):
    body, said = FAULTS[fault]
    path = tmp_path / "own.py"
    path.write_text(f'import numpy as np\n\n\ndef own(turns):\n    """A fault."""\n    {body}\n')
    done = run("score", f"{path}:own", "--json", tmp_path / "card.json")
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert re.search(said, done.stderr), done.stderr
    assert not (tmp_path / "card.json").exists()


def test_a_function_that_never_ends_is_interrupted_even_if_it_catches_every_exception():
    def endless():
        while True:
            try:
                time.sleep(0.01)
            except Exception:
                continue

    start = time.monotonic()
    with pytest.raises(UserError, match="slow: takes more than"), at_most(0.2, "slow: takes more than 0.2 s"):
        endless()
    assert time.monotonic() - start < 5


def test_a_function_that_would_take_minutes_is_refused_before_it_does(monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 1.0)

    def slow(turns):
        """Sleeps."""
        time.sleep(0.05)
        return turns.reward_N

    with pytest.raises(UserError, match=r"slow: takes 0\.\d s for 128 rollouts of 50 turns, so about .* min"):
        score(resolve(slow))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give one method"),
        (("gigpo", "--all"), "give one method"),
        (("gigpo", "--markdown", "x.md"), "give --all"),
        (("turns.parquet",), "turns.parquet: score takes a method, not a table of turns"),
        (("gigpoo",), "unknown method 'gigpoo' (did you mean 'gigpo'?)"),
        (("gigpo", "--json", "x.txt"), "JSON"),
        (("gigpo", "--html", "x.json"), "HTML"),
        (("gigpo", "--density", "0"), "density of decisive turns"),
        (("absent.py:own",), "no such file"),
    ],
)
def test_a_wrong_command_is_one_line(tmp_path, arguments, said):
    done = run("score", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------ its outputs


def test_the_same_seed_gives_the_same_card_and_another_one_other_rollouts():
    first, again, other = (
        as_json(card, summarise(card, card))
        for card in (score(METHODS["gigpo"], **FAST, seed=seed) for seed in (0, 0, 1))
    )
    for one in (first, again, other):
        del one["traits"]["seconds"]
    assert first == again
    assert first["worlds"] != other["worlds"]


def test_the_card_as_json_has_every_world_and_null_for_what_is_not_there():
    card = score(METHODS["has_progressive"], **FAST)
    found = json.loads(json.dumps(as_json(card, summarise(card, card)), allow_nan=False))
    assert [one["world"] for one in found["worlds"]] == ["repair"]
    assert [one["world"] for one in found["left_out"]] == ["stop_helps", "stop"]
    assert set(found["worlds"][0]["validity"]) == {"4", "8", "16"}
    assert found["summary"]["going_on"] is None
    assert found["worlds"][0]["decisions"][0].keys() == {"observation", "action", "visits", "truth", "credit"}


def test_pages_are_one_file_each_without_a_network_or_a_script():
    board = leaderboard([METHODS[name] for name in ("gigpo", "has_progressive", "has_judge")], **FAST)
    pages = [leaderboard_page(board), *(card_page(one.card, one.summary) for one in board.scored)]
    for page in pages:
        assert "<svg" in page
        assert "default-src 'none'" in page
        assert not re.search(r"<script|<link|<img|src=|https?://|@import|url\(", page)
    assert "has_judge" in pages[0]


def test_text_of_a_method_of_ones_own_is_escaped_on_its_page():
    def own(turns):
        """<b>bold</b>"""
        return turns.reward_N

    card = score(resolve(own), **FAST)
    assert "<b>bold</b>" not in card_page(card, summarise(card, card))


def test_the_leaderboard_lists_each_method_once_with_its_numbers_or_the_reason():
    board = leaderboard([METHODS[name] for name in ("flat_grpo", "random_credit", "has_judge")], **FAST)
    lines = markdown(board).splitlines()
    for name in ("flat_grpo", "random_credit", "has_judge"):
        assert sum(f"`{name}`" in line for line in lines if line.startswith(("|", "- "))) == 1
    assert any(line.startswith("| *`random_credit`*") for line in lines)


def test_worlds_without_an_expected_gradient_are_named():
    def only_where_an_action_is_refused(turns):
        """Flat GRPO's credit where any action is refused; nothing in other worlds."""
        return turns.reward_N * (not turns.truths("valid").all())

    card = score(resolve(only_where_an_action_is_refused), worlds=("early", "refused", "ruin"), rollouts=2048)
    summary, found = summarise(card, card), {one.world: one.validity[SIZE].cosine.value for one in card.worlds}
    assert np.isnan([found["early"], found["ruin"]]).all()
    assert found["refused"] > 0.3
    assert (summary.cosine, summary.where) == (found["refused"], "refused")
    assert any("does not differ from zero in early, ruin." in line for line in verdict(card, summary))


@pytest.mark.parametrize(("world", "rollouts", "seed"), [("luck", 2048, 0), ("stop_helps", 1024, 1)])
def test_credit_that_says_nothing_has_no_direction(world, rollouts, seed):
    # The expected gradient of a constant is zero, so whatever is left of the mean over drawn groups is noise.
    method = resolve(lambda turns: np.ones(turns.n), "constant")
    constant = score(method, worlds=(world,), rollouts=rollouts, seed=seed)
    assert np.isnan([one.validity[SIZE].cosine.value for one in constant.scored()]).all()
    assert "It has no expected gradient that differs from zero." in verdict(constant, summarise(constant, constant))


@pytest.mark.slow
def test_worlds_with_the_same_answer_about_going_on_share_a_sentence():
    card = score(METHODS["flat_grpo"], worlds=("repair", "stop", "stop_paid"), rollouts=64)

    def said(*paid):
        repair, *others = card.worlds
        pairs = zip(others, paid, strict=True)
        worlds = [replace(one, going_on={SIZE: Measured(x, 0.0)}) for one, x in pairs]
        lines = verdict(replace(card, worlds=(repair, *worlds)), summarise(card, card))
        return [line.removeprefix("Going on is ") for line in lines if line.startswith("Going on")]

    where = "where it changes nothing"
    assert said(0.0, 0.0) == [f"hardly paid or charged {where}: 0.00 deviations in stop and stop_paid."]
    assert said(0.01, -0.02) == [
        f"hardly paid or charged {where}: +0.01 deviations in stop, -0.02 deviations in stop_paid."
    ]
    assert said(0.0, 1.0) == [
        f"hardly paid or charged {where}: 0.00 deviations in stop.",
        f"rewarded by itself {where}: +1.00 deviations in stop_paid.",
    ]


def test_the_command_imports_neither_torch_nor_snakemake_and_scores_a_function_of_ones_own(tmp_path):
    (tmp_path / "own.py").write_text(
        'def own(turns):\n    """The return."""\n    return turns.return_R[turns.rollout_N]\n'
    )
    code = """
import sys
sys.argv = ["turncredit", "score", "own.py:own", "--rollouts", "256", "--json", "card.json", "--html", "card.html"]
from turncredit.cli.main import main
try:
    main()
except SystemExit:
    pass
heavy = ("torch", "transformers", "snakemake", "mlflow", "duckdb", "matplotlib")
print("HEAVY", [name for name in heavy if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
    )
    assert "HEAVY []" in done.stdout
    assert "own: The return." in done.stdout
    assert "Its expected gradient" in done.stdout
    assert json.loads((tmp_path / "card.json").read_text())["method"] == "own"
    assert (tmp_path / "card.html").read_text().startswith("<!doctype html>")


def test_every_world_is_named_by_what_is_hard_in_it():
    assert all(process(name).world.name == name for name in WORLDS)
    assert not np.isnan([process(name).v_S.sum() for name in WORLDS]).any()
