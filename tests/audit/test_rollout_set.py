"""Scores on recorded rollouts: what a perfect, a random and a constant credit get, what a set refuses, and its card."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import score_data
from tests.audit import small_set
from tests.helpers import as_if_simulators_were_here, nonempty
from tests.helpers import turncredit as run
from turncredit import config
from turncredit.audit.score import rollout_set
from turncredit.audit.score.agreement import MEASURES, Agreement, score_rollouts
from turncredit.audit.score.card import Card, as_json, full_card, score, summarise
from turncredit.audit.score.leaderboard import Scored, leaderboard
from turncredit.audit.score.worth import gains, signs_elsewhere, signs_right, worth
from turncredit.config.layout import Layout
from turncredit.credit import METHODS, resolve
from turncredit.data import tables
from turncredit.data.tables import KEYS
from turncredit.errors import UserError
from turncredit.pipeline import checks
from turncredit.views.score.leaderboard import markdown
from turncredit.views.score.page import card_page, leaderboard_page
from turncredit.views.score.words import RECORDED_COLUMNS, verdict

FAST = {"rollouts": 256, "worlds": ("repair",)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_set.make(tmp_path_factory.mktemp("score") / "set")


@pytest.fixture(scope="module")
def small(folder):
    return rollout_set.load(folder)


def exact(turns):
    """The true advantage without noise."""
    return turns.numbers("exact")


# ------------------------------------------------------------------ what the numbers say


def test_the_exact_advantage_reaches_the_noise_ceilings(small):
    found = score_rollouts(resolve(exact), small)
    assert found.sign.value == pytest.approx(found.sign.ceiling, abs=0.05)
    assert found.alignment.value == pytest.approx(found.alignment.ceiling, abs=0.02)
    assert found.top.value == pytest.approx(found.top.ceiling, abs=0.1)
    assert found.rank.ceiling - 0.12 < found.rank.value <= found.rank.ceiling  # an upper bound where turns are dead
    assert found.rank.high - found.rank.low < min(part.rank.high - part.rank.low for part in found.parts)


def test_without_noise_the_exact_advantage_scores_one(tmp_path):
    found = score_rollouts(resolve(exact), rollout_set.load(small_set.make(tmp_path / "set", noise=0)))
    for name in MEASURES:
        number = getattr(found, name)
        assert (number.value, number.ceiling) == pytest.approx((1, 1)), name


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_permuted_credit_ranks_nothing(small, seed):
    """Permuted over all turns of a part. One interval in 20 has to miss zero; twice as wide, none does."""

    def permuted(turns):
        return np.random.default_rng(seed).permutation(turns.numbers("exact"))

    found = score_rollouts(resolve(permuted), small)
    half = (found.rank.high - found.rank.low) / 2
    assert abs(found.rank.value) < 2 * half
    assert found.top.value == pytest.approx(found.chance, abs=0.08)


def test_flat_credit_ranks_nothing_and_knows_the_outcome(small):
    found = score_rollouts(METHODS["flat_grpo"], small)
    assert (found.rank.value, found.rank.low, found.rank.high) == (0, 0, 0)
    assert found.top.value == pytest.approx(found.chance)
    assert found.sign.value > 0.55
    for part in nonempty(found.parts):
        assert part.between.credit == pytest.approx(1)
        assert part.between.truth < 0.3
        scored = next(one.scored for one in small.parts if one.name == part.part)
        sums_R = np.bincount(scored.rollout_N, scored.truth_N) / np.bincount(scored.rollout_N)
        assert part.between.truth == pytest.approx(sums_R[scored.rollout_N].var() / scored.truth_N.var())
        assert np.isnan(part.dead) or part.dead == pytest.approx(0, abs=1e-9)
    assert any(part.dead > 0.5 for part in score_rollouts(resolve(exact), small).parts)


@settings(max_examples=10, deadline=None)
@given(scale=st.floats(1e-3, 1e3))
def test_the_unit_of_credit_does_not_matter(small, scale):
    def scaled(turns):
        return scale * (turns.numbers("exact") + 0.1 * turns.turn_N)

    def plain(turns):
        return turns.numbers("exact") + 0.1 * turns.turn_N

    one, other = (score_rollouts(resolve(method), small) for method in (scaled, plain))
    for name in MEASURES:
        assert getattr(one, name).value == pytest.approx(getattr(other, name).value, abs=1e-9), name
    for mine, its in zip(one.parts, other.parts, strict=True):
        assert (mine.between.credit, mine.by_turn.credit) == pytest.approx((its.between.credit, its.by_turn.credit))
        assert mine.dead == pytest.approx(its.dead, nan_ok=True)


def test_credit_by_the_turns_number_is_found(small):
    found = score_rollouts(resolve(lambda turns: turns.turn_N.astype(float)), small)
    assert [part.by_turn.credit for part in found.parts] == pytest.approx([1, 1])
    assert max(part.by_turn.truth for part in found.parts) < 0.3


def test_credit_for_refused_actions_is_found(small):
    found = score_rollouts(resolve(lambda turns: 1.0 - turns.truths("valid")), small)
    by_world = {part.world: part.refused for part in found.parts}
    assert by_world["refused"].low > 1
    assert np.isnan(by_world["repair"].value)  # nothing is refused there


# ------------------------------------------------------------------ what methods are given


def test_methods_read_the_side_tables_of_the_set(small):
    found = {name: score_rollouts(METHODS[name], small) for name in ("triage", "turn_value", "turn_value_calibrated")}
    assert found["triage"].rank.value > 0.5  # its labels are the sign of A*
    assert found["turn_value"].rank.value > 0.2
    assert found["turn_value_calibrated"].parts[0].turns == found["turn_value"].parts[0].turns


def test_methods_read_as_many_continuations_as_they_take_by_default(tmp_path):
    made = rollout_set.load(small_set.make(tmp_path / "set", continued=True))
    assert score_rollouts(METHODS["vineppo"], made).rank.value > 0.5  # its values are exact
    assert score_rollouts(METHODS["truth"], made) == "reads continuations of its own, which the set does not have"


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("has_judge", r"reads the side table 'labels' \(score\)"),
        ("mgr", "reads values of its own model"),
        ("istar", r"reads the side table 'logprobs' \(implicit-istar\)"),
        ("carl", "credits a tree of rollouts"),
        ("vineppo", "reads continuations of its own"),
    ],
)
def test_what_a_set_lacks_is_one_line(small, method, said):
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(score_rollouts(METHODS[method], small))


def test_labels_of_ones_own_replace_those_of_the_set(small):
    def labels(sign):
        return pa.concat_tables(
            pa.table(
                {
                    **{key: part.turns.column(key) for key in KEYS},
                    "score": (1 + sign * np.sign(part.turns["exact"])) / 2,
                }
            )
            for part in small.parts
        )

    best, worst = (score_rollouts(METHODS["has_judge"], small.with_labels(labels(sign))) for sign in (1, -1))
    assert best.rank.value > 0.5
    assert worst.rank.value == pytest.approx(-best.rank.value, abs=0.02)
    with pytest.raises(UserError, match="of none of the rollouts"):
        small.with_labels(labels(1).set_column(1, "rollout_id", pa.array(["other"] * sum(map(_turns, small.parts)))))


def _turns(part):
    return len(part.turns)


def test_a_method_that_fails_on_one_part_is_scored_on_the_others(small):
    def fussy(turns):
        """Refuses the world in which nothing is refused."""
        if turns.truths("valid").all():
            raise UserError("no refused action")
        return turns.numbers("exact")

    found = score_rollouts(resolve(fussy), small)
    assert [part.part for part in found.parts] == ["refused"]
    assert found.left_out == (("repair", "no refused action"),)


def test_two_credits_for_the_same_turns_are_refused(small):
    with pytest.raises(UserError, match="gives the same turns two different credits"):
        score_rollouts(resolve(lambda turns: np.random.normal(size=turns.n)), small)


# ------------------------------------------------------------------ a set on disk


def test_the_same_tables_give_the_same_files(tmp_path, folder):
    again = small_set.make(tmp_path / "again")
    assert {path.name: path.read_bytes() for path in again.iterdir()} == {
        path.name: path.read_bytes() for path in folder.iterdir()
    }


@pytest.mark.parametrize("name", rollout_set.TABLES)
def test_one_changed_byte_is_refused_by_its_hash(tmp_path, name):
    copy = small_set.make(tmp_path / "set", continued=True)
    path = copy / f"{name}.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match=rf"{name}\.parquet: its SHA-256 is not the one in set\.json"):
        rollout_set.load(copy)


def test_a_table_that_was_written_again_is_refused_too(tmp_path, folder):
    copy = shutil.copytree(folder, tmp_path / "set")
    table = pq.read_table(copy / "branches.parquet")
    table = table.set_column(
        table.column_names.index("advantage_true"), "advantage_true", pc.negate(table["advantage_true"])
    )
    pq.write_table(table, copy / "branches.parquet")
    done = run("score", "gigpo", "--data", copy)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "branches.parquet: its SHA-256" in done.stderr


FAULTS = {
    "no set": (lambda folder: (folder / "set.json").unlink(), r"has no set\.json"),
    "no table": (lambda folder: (folder / "turns.parquet").unlink(), r"turns\.parquet: no such file"),
    "no json": (lambda folder: (folder / "set.json").write_text("{"), r"set\.json: damaged"),
    "format": (lambda folder: (folder / "set.json").write_text('{"format": 99}'), r"format 99, but .* reads 1"),
    "keys": (lambda folder: (folder / "set.json").write_text('{"format": 1}'), r"set\.json: has no 'files'"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_damaged_set_is_one_line(tmp_path, folder, fault):
    damage, said = FAULTS[fault]
    copy = shutil.copytree(folder, tmp_path / "set")
    damage(copy)
    with pytest.raises(UserError, match=said):
        rollout_set.load(copy)


# ------------------------------------------------------------------ how a set is made, and the one of the package


def test_an_experiments_audited_rounds_become_a_set(audited, tmp_path):
    score_data.pack([audited], tmp_path / "set")
    made = rollout_set.load(tmp_path / "set")
    branched = sorted(Layout(audited).find("branches"), key=lambda one: (one.keys["round"], one.keys["seed"]))
    assert len({part.name for part in made.parts}) == len(branched) > 1
    for part, one in zip(made.parts, branched, strict=True):
        turns = tables.read(Layout(audited).path("turns", one.keys), "turns")
        assert part.turns["reward"].to_pylist() == turns["reward"].to_pylist()
        assert len(part.scored) == len(tables.read(one.path))
        assert part.about["success"] == pytest.approx(
            np.mean(turns.filter(pc.equal(turns["turn"], 0))["success"]), abs=1e-4
        )
        assert set(part.side["labels"]) == {"role"}
        assert not part.side["values"]
    ids = [name for part in made.parts for name in set(part.turns["rollout_id"].to_pylist())]
    assert len(set(ids)) == len(ids)
    assert score_rollouts(METHODS["flat_grpo"], made).rank.value == 0


@pytest.mark.parametrize("tiny", [False, True])
@pytest.mark.parametrize("name", score_data.EXPERIMENTS)
def test_each_experiment_of_the_set_is_valid_and_audits_what_its_methods_read(name, tiny, monkeypatch):
    monkeypatch.chdir(score_data.ROOT)
    as_if_simulators_were_here(monkeypatch)
    command = score_data.command(name, score_data.GAMES, 1, tiny)
    files, entries = command.index("--configfile") + 1, command.index("--config")
    experiment = config.load([score_data.ROOT / "config.yaml", *command[files:entries]], command[entries + 1 :])
    checks.check(experiment)
    assert experiment.experiment == name + ("_tiny" if tiny else "")
    assert set(score_data.EXPERIMENTS[name].also) <= set(experiment.audit.methods)
    assert experiment.audit.runs == ("flat_grpo",)


def test_every_method_but_those_of_trees_and_the_truth_can_be_scored_on_some_part_of_the_next_set():
    """A method that needs more than the turns is audited in an experiment, or has the model of one that is."""
    audited = {*score_data.audited(), *(name for made in score_data.EXPERIMENTS.values() for name in made.also)}
    stored = {name for name in audited if METHODS[name].model is not None}
    scorable = audited | set(score_data.values_of(stored))
    scorers = {METHODS[name].scorer for name in audited}
    for name, method in METHODS.items():
        reads_more = set(method.needs) & {"values", "continuations"} or method.scorer == "implicit"
        found = name in scorable if reads_more else method.scorer is None or method.scorer in scorers
        assert (found and not method.forks) == (name not in {"carl", "tree_grpo", "truth"}), name


def test_an_experiment_without_ground_truth_is_refused(finished, tmp_path):
    with pytest.raises(UserError, match=r"has no branches\.parquet"):
        score_data.pack([finished], tmp_path / "set")


def test_the_set_of_the_package_is_whole_small_and_described():
    made = rollout_set.built_in()
    folder = Path(rollout_set.__file__).parent / "rollouts"
    about = json.loads((folder / "set.json").read_text())
    assert (folder / "README.md").read_text() == score_data.readme(about)
    assert sum(path.stat().st_size for path in folder.iterdir()) < 15e6
    for part in nonempty(made.parts):
        assert len(part.turns) == part.about["turns"]
        assert len(part.scored) == part.about["turns_with_truth"]
        assert min(part.branches["continuations"].to_pylist()) == part.about["continuations"][0] >= 32
        assert part.view.size_G.min() == part.view.size_G.max() > 1


def test_no_two_parts_of_the_set_of_the_package_share_a_game():
    """A task's name has its game's hash. The mean over parts resamples the groups of each part on its own."""
    games = [set(part.turns["task_id"].to_pylist()) for part in rollout_set.built_in().parts]
    assert sum(len(one) for one in nonempty(games)) == len(set().union(*games))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gigpo", "has_judge", "turn_value", "hcapo", "oracle_progress"])
def test_methods_are_scored_on_the_set_of_the_package_with_what_they_read(name):
    found = score_rollouts(METHODS[name], rollout_set.built_in())
    assert len(found.parts) == len(rollout_set.built_in().parts), found.left_out
    assert found.rank.low < found.rank.value < found.rank.high
    assert found.rank.value < found.rank.ceiling


# ------------------------------------------------------------------ the card and the leaderboard


def test_a_card_has_exact_worlds_and_recorded_rollouts(small):
    card = full_card(METHODS["gigpo"], small, **FAST)
    summary = summarise(card, score(METHODS["flat_grpo"], **FAST))
    found = json.loads(json.dumps(as_json(card, summary), allow_nan=False))
    assert found["recorded"]["digest"] == small.digest
    assert [one["part"] for one in found["recorded"]["parts"]] == ["repair", "refused"]
    assert found["summary"]["real_rank"] == found["recorded"]["rank"]["value"]
    assert set(found["recorded"]["rank"]) == {"value", "low", "high", "ceiling"}
    page = card_page(card, summary)
    assert "On recorded rollouts it orders the turns" in page
    assert small.digest[:12] in page


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.02, 0.06, "it orders the turns:"),
        (-0.06, -0.02, "it orders the turns wrongly:"),
        (-0.05, 0.03, "it is not shown to order the turns:"),
        (-0.05, -0.001, "it is not shown to order the turns:"),  # printed as 0.00
        (0.004, 0.05, "it is not shown to order the turns:"),
        (float("nan"), float("nan"), "it is not shown to order the turns:"),
    ],
)
def test_an_order_is_claimed_only_where_the_printed_interval_lies_off_zero(small, low, high, said):
    scored = score_rollouts(METHODS["gigpo"], small)
    rank = Agreement((low + high) / 2, low, high, 0.8)
    card = replace(score(METHODS["gigpo"], **FAST), recorded=replace(scored, rank=rank))
    sentences = verdict(card, summarise(card, card))
    assert sentences[0].startswith("On exact worlds it ")
    assert [one for one in sentences if one.startswith(f"On recorded rollouts {said}")]


def test_a_method_that_only_the_set_can_score_has_a_card_without_worlds(small):
    card = full_card(METHODS["triage"], small, **FAST)
    assert (card.worlds, card.nowhere) == ((), None)
    assert "It is not scored on exact worlds" in card_page(card, summarise(card, card))
    assert full_card(METHODS["mgr"], small, **FAST).nowhere is not None
    assert (
        full_card(METHODS["mgr"], **FAST).nowhere == "reads the side table 'values', which the exact worlds do not have"
    )


@pytest.mark.parametrize("column", RECORDED_COLUMNS)
def test_each_column_of_the_recorded_rollouts_has_its_line_in_the_documentation(column):
    page = (Path(__file__).parents[2] / "docs" / "score_data.md").read_text(encoding="utf-8")
    assert f"\n| `{column}` | " in page


def test_the_command_prints_both_and_refuses_what_neither_can_score(folder):
    done = run("score", "triage", "--data", folder)
    assert done.returncode == 0, done.stderr
    assert "recorded rollouts" in done.stdout
    assert "Columns: docs/score_data.md." in done.stdout
    refused = run("score", "mgr", "--data", folder)
    assert refused.returncode == 2
    assert "mgr: reads the side table 'values'" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_a_mean_over_fewer_parts_comes_last_and_says_so(small):
    board = leaderboard([METHODS["triage"], METHODS["flat_grpo"]], rollout_set=small, **FAST)
    best, flat = board.on_rollouts
    found = best.card.recorded
    fewer = best._replace(card=replace(best.card, recorded=replace(found, parts=found.parts[:1])))
    cut = board._replace(scored=(fewer, flat))
    assert [one.method.name for one in cut.on_rollouts] == ["flat_grpo", "triage"]
    assert re.search(r"^\| `triage` \|  \|  \| \+0\.\d\d \(1 of 2\) \|", markdown(cut), re.MULTILINE)
    assert "does not compare" in markdown(cut)
    assert "does not compare" not in markdown(board)


def test_the_leaderboard_has_methods_that_only_the_set_can_score(small):
    methods = [METHODS[name] for name in ("flat_grpo", "triage", "mgr", "carl")]
    board = leaderboard(methods, rollout_set=small, **FAST)
    assert [one.method.name for one in board.on_worlds] == ["flat_grpo"]
    assert [one.method.name for one in board.on_rollouts] == ["triage", "flat_grpo"]
    assert [method.name for method, _ in board.not_recorded] == ["mgr", "carl"]
    text, page = markdown(board), leaderboard_page(board)
    assert [re.match(r"`(\w+)`", row)[1] for row in re.findall(r"^\| (`.*)$", text, re.MULTILINE)] == [
        "triage",
        "flat_grpo",
    ]
    assert "| `triage` |  |  | +" in text
    assert "- Scored on neither: `carl`, `mgr`." in text
    assert "repair 0.00, refused 0.00" in page
    assert "<td>A*</td>" in page
    assert "Not scored on recorded rollouts" in page
    assert 'href="#triage"' in page


# ------------------------------------------------------------------ what it is worth


@pytest.mark.parametrize(
    ("setting", "world", "names"),
    [
        ("household 1", "household", ("flat_grpo", "rloo", "gigpo", "hgpo", "scpo", "step_grpo", "hcapo")),
        ("Search-QA", "searchqa", ("flat_grpo", "hgpo", "gigpo", "has_judge", "mgr", "igpo", "ppo")),
    ],
)
def test_a_setting_is_compared_with_the_recorded_rollouts_of_its_world(small, setting, world, names):
    """The last method has no rollouts of this world, so nothing predicts its gain."""
    found = score_rollouts(METHODS["gigpo"], small)
    board = []
    for name in names:
        gain = gains()[setting][name].value
        parts = (
            replace(found.parts[0], world="another", rank=Agreement(-3 * gain, 0, 0, 1)),
            replace(found.parts[1], world=world, rank=Agreement(gain, 0, 0, 1)),
        )
        has = replace(found, parts=parts[: 1 if name == names[-1] else 2])
        card = Card(name, "", (), (), None, None, 0, 0, 0.5, "lacks it", has)
        board.append(Scored(METHODS[name], card, summarise(card, card)))
    one = next(one for one in worth(board) if (one.part, one.setting) == ("real_rank", setting))
    assert one.rho == pytest.approx(1)
    assert one.families == len(names) - 1


def test_signs_are_predicted_from_the_other_families():
    x = np.array([0.0, 1, 2, 4, 5, 6])
    assert signs_right(x, np.array([-1.0, -1, -1, 1, 1, 1])) == 6
    assert signs_right(x, np.array([1.0, 1, 1, -1, -1, -1])) == 0  # more is better is given, not found
    assert signs_right(np.zeros(6), np.array([1.0, 1, 1, 1, 1, -1])) == 5


def test_signs_are_predicted_from_the_other_environments():
    """Their families above 3 gain, so the rule is the middle of 2 and 4."""
    others = [(np.array([0.0, 4]), np.array([-1.0, 1])), (np.array([2.0, 6]), np.array([-1.0, 1]))]
    x = np.array([1.0, 2.9, 3.1, 9])
    assert signs_elsewhere(x, np.array([-1.0, -1, 1, 1]), others) == 4
    assert signs_elsewhere(x, np.array([-1.0, 1, 1, -1]), others) == 2
    assert signs_elsewhere(x, x, []) is None
