from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from markupsafe import escape
from typer.testing import CliRunner

from tests.helpers import nonempty
from tests.pages import pages_world
from turncredit.audit import fidelity_measures, scored_turns
from turncredit.cli.main import app
from turncredit.config import from_mapping
from turncredit.credit import METHODS
from turncredit.credit.parts.baselines import NOT_COMPARED
from turncredit.data import tables
from turncredit.data.files import write_json
from turncredit.data.turns import Turns
from turncredit.errors import UserError
from turncredit.pipeline.plan import Plan, load
from turncredit.views.pages import build, draw, strips
from turncredit.views.pages.agreement import agreement, clashes, mean_ranks
from turncredit.views.pages.build import gather, page, pages, render_index
from turncredit.views.pages.cells import credit_cell
from turncredit.views.pages.choose import choose, pairs
from turncredit.views.pages.data import CLEAR, Book, Credit, read_book
from turncredit.views.pages.formats import decimals_for, number
from turncredit.views.pages.method_details import gate_words, walk
from turncredit.views.pages.turn_details import parting, side_by_side, turns_of
from turncredit.views.pages.verdict import verdict


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    return pages_world.make(tmp_path_factory.mktemp("pages"))


@pytest.fixture(scope="session")
def book(world):
    return read_book(**world.given())


def make_pages(world, out, count=5):
    """The stage pages on these tables; what it measured."""
    audit = {"rounds": [1], "run": "flat_grpo", "methods": list(world.credits), "pages": count}
    plan = Plan(from_mapping({"experiment": "synthetic", "methods": ["flat_grpo"], "audit": audit}))
    probe = out.parent / "probe.json"
    write_json(probe, {"metrics": {}})
    job = plan.job("pages", plan.audited[0])
    job.input = {
        "turns": str(world.turns),
        "measures": [str(world.measures)],
        "branches": str(world.branches),
        "credits": [str(path) for path in world.credits.values()],
        "values": [str(world.values[name]) for name in plan.audit_learned],
        "probes": [str(probe)] * len(plan.audit_learned),
        "labels": [str(path) for path in world.labels.values()],
    }
    job.output = {"index": str(out / "index.html")}
    return load("pages").run(job)


def test_a_failure_is_laid_beside_the_longest_successful_sibling_and_one_with_a_page_before_others(book):
    chosen = choose(book, 6)
    assert len(chosen) == len(set(chosen)) == 6
    found = pairs(book, chosen)
    assert {rollout for pair in found for rollout in pair} >= {r for r in chosen if len(_others(book, r))}
    for failed, won in found:
        assert book.turns.group_R[failed] == book.turns.group_R[won]
        assert (book.success_R[failed], book.success_R[won]) == (False, True)
    for failed in nonempty(r for r in chosen if not book.success_R[r] and _others(book, r)):
        with_a_page = [r for r in _others(book, failed) if r in chosen] or _others(book, failed)
        longest = max(with_a_page, key=lambda r: (book.turns.length_R[r], -r))
        assert (failed, longest) in found


def _others(book: Book, rollout: int) -> list[int]:
    """The siblings with the other outcome."""
    return [int(r) for r in book.siblings(rollout) if book.success_R[r] != book.success_R[rollout]]


def test_every_rollout_with_a_page_has_ground_truth_where_there_is_any_and_its_sibling_stands_beside_it(
    world, tmp_path
):
    table = tables.read(world.branches)
    few = table.filter(pc.is_in(table["rollout_id"], pa.array(["game-2#1", "game-0#0"])))
    tables.pq.write_table(few, tmp_path / "branches.parquet")
    book = read_book(**{**world.given(), "branches": tmp_path / "branches.parquet"})
    chosen = choose(book, 6)
    assert {book.ids_R[rollout][1] for rollout in chosen} == {"game-2#1", "game-0#0"}
    assert [sum(rollout in pair for pair in pairs(book, chosen)) for rollout in chosen] == [1, 1]
    made = pages(book, {}, count=6, first=None, title="x")
    beside = next(text for name, text in made.items() if name.startswith("pair-"))
    assert len(re.findall(r'href="game-[^"]+"', beside)) == 1


def test_a_group_without_contrast_comes_last(tmp_path):
    world = pages_world.make(tmp_path, groups=3)
    table = tables.read(world.turns)
    rewards = [
        1.0 if group == "game-1" else reward
        for group, reward in zip(table["group_id"].to_pylist(), table["reward"].to_pylist(), strict=True)
    ]
    won = [
        group == "game-1" or won
        for group, won in zip(table["group_id"].to_pylist(), table["success"].to_pylist(), strict=True)
    ]
    changed = table.set_column(table.column_names.index("reward"), "reward", pa.array(rewards))
    changed = changed.set_column(table.column_names.index("success"), "success", pa.array(won))
    tables.write(changed, world.turns, "turns", pages_world.MADE_BY)
    book = read_book(**world.given())
    groups = [book.ids_R[rollout][0] for rollout in choose(book, 9)]
    assert groups.count("game-1") == 1


def test_the_mean_rank_correlation_is_that_of_the_fidelity_measures(world, book):
    truth, advantages = scored_turns.load(world.turns, list(world.credits.values()), world.branches)
    means = mean_ranks(book)
    assert set(means) == set(world.credits)
    for name, mean in means.items():
        found = fidelity_measures.rank_correlation(advantages[name], truth)
        assert mean == pytest.approx(found.value, abs=1e-12)


def test_credit_clashes_only_where_the_sign_of_the_truth_is_known(book):
    truth, credit_N = book.truth, book.credits["flat_grpo"].advantage_N
    known_N = np.abs(truth.advantage_N) > 1.96 * truth.se_N
    against_N = credit_N * truth.advantage_N < 0
    assert (known_N & against_N).any()
    assert (~known_N & against_N).any()
    found = [clashes(book, "flat_grpo", row) for row in range(book.turns.n)]
    assert found == (known_N & against_N).tolist()


def test_a_page_says_from_where_on_a_sign_counts_as_known(book, tmp_path):
    page(book, 0, against=None, out=tmp_path / "one.html")
    assert (tmp_path / "one.html").read_text().count(f"more than {CLEAR} standard errors from zero") == 2


def test_the_walk_shown_for_scpo_gives_the_credits_of_its_table(book):
    parts = book.credits["scpo"].components
    walks = [walk(book, "scpo", METHODS["scpo"], int(rollout)) for rollout in np.flatnonzero(~book.success_R)]
    credited = {step.row: (step, found) for found in walks for step in found.steps if step.place >= 0}
    rows = [row for rollout in np.flatnonzero(~book.success_R) for row in book.rows(int(rollout)).tolist()]
    assert sorted(credited) == [row for row in sorted(rows) if parts["scpo_reference"][row] >= 0]
    for row, (step, found) in nonempty(credited.items()):
        assert parts["scpo_credit"][row] == pytest.approx(max(0.0, (step.similarity - 0.4) / 0.6))
        assert step.similarity >= found.theta
    for found in walks:
        assert [step.visit for step in found.steps] == sorted(step.visit for step in found.steps)


def test_a_success_has_no_walk(book):
    won = int(np.flatnonzero(book.success_R)[0])
    assert walk(book, "scpo", METHODS["scpo"], won) is None


def test_the_gate_is_told_in_words_only_where_there_is_one(book):
    parts = book.credits["mgr_no_critic"].components
    flipped_N = (parts["gate"] < 0) & (parts["local"] > 0)
    assert set(flipped_N.tolist()) == {True, False}
    for row, flipped in enumerate(flipped_N):
        assert ("turned it negative" in gate_words(parts, row)) == flipped
    assert gate_words(book.credits["gigpo"].components, 0) is None


@pytest.mark.parametrize(
    ("outcome", "gate", "words"),
    [
        (0.5, 0.0, "no gate: the rollout succeeded"),
        (0.0, 0.0, "no gate: all rollouts of the group ended alike"),
        (-0.5, 1.0, "gate kept"),
        (-0.5, -1.0, "gate turned"),
    ],
)
def test_a_rollout_without_a_gate_is_not_called_a_success_where_all_of_its_group_failed(outcome, gate, words):
    turns = Turns({"group_id": ["g"], "rollout_id": ["r"], "turn": [0], "reward": [0.0]})
    numbers = {"validity": 1.0, "local": 1.0, "outcome": outcome, "gate": gate, "reward_mgr": gate * outcome}
    credit = Credit("mgr", np.zeros(1), {name: np.array([value]) for name, value in numbers.items()})
    found = build._gates(Book(turns, {"mgr": credit}, None, {}, {}, {}, {}), 0, ["mgr"])
    assert [row["words"] for row in found] == [words]


def test_the_same_tables_give_the_same_bytes_and_old_pages_go(world, tmp_path):
    make_pages(world, tmp_path / "one")
    (tmp_path / "one" / "stale.html").write_text("from an earlier choice")
    measured = make_pages(world, tmp_path / "one")
    make_pages(world, tmp_path / "two")
    one, two = ({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("one", "two"))
    assert "stale.html" not in one
    assert {name: text.replace(b"/one", b"/two") for name, text in one.items()} == two
    assert measured["pages"] == len(one)


def test_every_link_between_pages_leads_somewhere(world, tmp_path):
    make_pages(world, tmp_path / "pages")
    folder = tmp_path / "pages"
    texts = {path.name: path.read_text() for path in nonempty(folder.glob("*.html"))}
    links = [
        (name, *link.partition("#")[::2])
        for name, text in texts.items()
        for link in re.findall(r'href="([^"]+)"', text)
    ]
    for name, file, _ in nonempty(links):
        assert (folder / (file or name)).exists(), (name, file)
    for name, part in nonempty((file or name, part) for name, file, part in links if part):
        assert f'id="{part}"' in texts[name]


def test_fifty_turns_and_twenty_methods_stay_under_a_megabyte(tmp_path):
    made = {"carl", "tree_grpo", "hipif", "hipif_gigpo"}  # they read columns that these turns do not have
    names = [name for name, method in METHODS.items() if not method.needs and name not in made]
    world = pages_world.make(tmp_path, groups=1, longest=50, methods=names)
    assert len(names) >= 15
    assert make_pages(world, tmp_path / "pages", count=4)["largest_bytes"] < 1e6


def test_files_differ_also_where_a_file_system_makes_no_difference_of_case():
    used: set[str] = set()
    names = [build.file_name(build.slug(name), used) for name in ("Index", "index", "a b", "A-B", "日本", "?")]
    assert names == ["Index-2.html", "index-3.html", "a-b.html", "A-B-2.html", "rollout.html", "rollout-2.html"]


def test_texts_of_the_tables_are_never_markup(world, tmp_path):
    make_pages(world, tmp_path / "pages", count=12)
    texts = [path.read_text() for path in (tmp_path / "pages").glob("*.html")]
    assert any("&lt;script&gt;document.title" in text for text in texts)
    for text in texts:
        assert "<script>document" not in text
        assert "<img" not in text
        assert "<b>evil" not in text


def test_page_needs_no_more_than_keys_rewards_and_credits(tmp_path):
    rows = {"group_id": ["g"] * 4, "rollout_id": ["a", "a", "b", "b"], "turn": [0, 1, 0, 1], "reward": [0.0, 1, 0, 0]}
    tables.pq.write_table(pa.table(rows), tmp_path / "turns.parquet")
    rows |= {"advantage": [1.0, 2.0, -1.0, float(0)]}
    tables.pq.write_table(pa.table(rows), tmp_path / "mine.parquet")
    command = ["page", "--turns", str(tmp_path / "turns.parquet"), "--credits", str(tmp_path / "mine.parquet")]
    done = CliRunner().invoke(app, [*command, "--rollout", "g/a", "--out", str(tmp_path / "a.html")])
    assert done.exit_code == 0, done.output
    assert "+2.00" in (tmp_path / "a.html").read_text()
    done = CliRunner().invoke(app, [*command, "--rollout", "b", "--against", "a", "--out", str(tmp_path / "b.html")])
    assert done.exit_code == 0, done.output


def test_a_long_text_is_folded_behind_its_start_and_none_of_it_is_lost(tmp_path):
    rows = {"group_id": ["g"] * 4, "rollout_id": ["a", "a", "b", "b"], "turn": [0, 1, 0, 1], "reward": [0.0, 1, 0, 0]}
    tables.pq.write_table(pa.table({**rows, "advantage": [1.0, 2.0, -1.0, float(0)]}), tmp_path / "mine.parquet")
    rows |= {"observation": ["rules <b> " * 300, "short"] * 2, "next_observation": ["short", "row " * 400] * 2}
    tables.pq.write_table(pa.table(rows), tmp_path / "turns.parquet")
    command = ["page", "--turns", str(tmp_path / "turns.parquet"), "--credits", str(tmp_path / "mine.parquet")]
    done = CliRunner().invoke(app, [*command, "--rollout", "g/a", "--out", str(tmp_path / "a.html")])
    assert done.exit_code == 0, done.output
    page = (tmp_path / "a.html").read_text()
    assert page.count('<details class="saw long">') == page.count('<details class="got long">') == 1
    assert page.count("rules &lt;b&gt;") == 300
    assert "2,999 characters</span>" in page
    assert '<p class="got">short</p>' in page


def test_several_methods_may_share_a_file(world, tmp_path):
    both = pa.concat_tables(
        [tables.read(world.credits[name]).select([*tables.KEYS, "method", "advantage"]) for name in ("gigpo", "scpo")]
    )
    tables.pq.write_table(both, tmp_path / "both.parquet")
    book = read_book(turns=world.turns, credits={"both": tmp_path / "both.parquet"})
    assert list(book.credits) == ["gigpo", "scpo"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (["--rollout", "game-0#9"], "no rollout 'game-0#9' (did you mean 'game-0#"),
        (["--rollout", "game-0#0", "--against", "game-1#0"], "not in the group of"),
        (["--rollout", "game-0#0", "--show", "gigpoo"], "no credits of this method"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_no_file(world, tmp_path, change, says):
    out = tmp_path / "page.html"
    command = ["page", "--turns", str(world.turns), "--credits", str(world.credits["gigpo"]), "--out", str(out)]
    done = CliRunner().invoke(app, [*command, *change])
    assert isinstance(done.exception, UserError)
    assert says in str(done.exception)
    assert "\n" not in str(done.exception)
    assert not out.exists()


def test_branches_of_other_turns_are_refused(world, tmp_path):
    table = tables.read(world.branches)
    other = table.slice(0, 1).set_column(1, "rollout_id", pa.array(["elsewhere"]))
    tables.pq.write_table(other, tmp_path / "branches.parquet")
    with pytest.raises(UserError, match=r"'elsewhere'.* is not one of these turns"):
        read_book(turns=world.turns, credits={}, branches=tmp_path / "branches.parquet")


def test_the_verdict_names_the_turn_that_mattered_most_and_counts_who_saw_it(book):
    outcomes, silent = set(), 0
    for rollout in range(book.turns.rollouts):
        rows = book.branched(rollout)
        true = book.truth.advantage_N[rows]
        sign = 1 if book.success_R[rollout] else -1
        row = int(rows[(sign * true).argmax()])
        if sign * book.truth.advantage_N[row] <= 0:
            continue
        outcomes.add(sign)
        said = str(verdict(book, rollout)[0])
        varied = [c for c in book.credits.values() if np.ptp(c.rounded_N[book.rows(rollout)]) > 0]
        assert len(varied) < len(book.credits)
        right = sum(credit.advantage_N[row] * sign > 0 for credit in varied)
        before, after = (100 * book.truth.extra[name][row] for name in ("v_true", "q_true"))
        assert f"turn {book.turns.turn_N[row]}</a>" in said
        by, error = (100 * abs(getattr(book.truth, name)[row]) for name in ("advantage_N", "se_N"))
        rose = "rose" if sign > 0 else "fell"
        assert f"{rose} by {by:.0f} ± {error:.0f} points, from {before:.0f}% to {after:.0f}%" in said
        assert f" {right} of {len(varied)} methods " in said
        tops = {name: (sign * credit.advantage_N[book.rows(rollout)]).max() for name, credit in book.credits.items()}
        mine = {name: sign * credit.advantage_N[row] for name, credit in book.credits.items()}
        others = [name for name in book.credits if mine[name] < tops[name] or mine[name] <= 0]
        assert [name for name in others if name in said.partition("methods")[2]] == []
        silent += len(others)
    assert outcomes == {1, -1}
    assert silent > 0


def test_what_is_rounding_alone_is_no_credit(book):
    rows = book.rows(next(r for r in range(book.turns.rollouts) if len(book.branched(r)) > 2))
    useful = int(rows[1])
    true_N = np.full(book.turns.n, np.nan)
    true_N[rows] = 0.0
    true_N[useful] = 0.3
    bits = np.where(np.arange(book.turns.n) == useful, 1e-17, 0.0)
    other = np.where(np.isin(np.arange(book.turns.n), rows), 0.0, 1.0)
    made = {"zero": other + bits, "same": 0.1 + 10 * bits}
    of_rounding = replace(
        book,
        credits={name: Credit(name, x_N, {}) for name, x_N in made.items()},
        truth=replace(book.truth, advantage_N=true_N, se_N=np.full(book.turns.n, 0.01)),
    )
    said = str(verdict(of_rounding, int(book.turns.rollout_N[useful]))[0])
    assert said.endswith(
        " 0 of 0 methods credit it (2 more give all turns the same). None gives it its largest credit."
    )
    cell = credit_cell(of_rounding, "zero", useful, 0)
    assert (cell.text, cell.kind) == ("0", "c0 flat")


def test_two_rollouts_are_told_apart_at_their_first_different_turn(book):
    failed, won = pairs(book, list(range(book.turns.rollouts)))[0]
    left, right = (turns_of(book, rollout, [], components=False) for rollout in (failed, won))
    alike = next(n for n, (a, b) in enumerate(zip(left, right, strict=False)) if (a.action, a.got) != (b.action, b.got))
    said = str(parting(left, right))
    assert str(escape(left[alike].action)) in said
    assert str(escape(right[alike].action)) in said
    assert ("at once" in said) == (alike == 0)
    assert "until the shorter one ends" in str(parting(left, left[:2]))


def test_turns_face_the_turn_of_the_same_number_and_only_what_two_rollouts_have_in_common_is_shaded(book):
    failed, won = pairs(book, list(range(book.turns.rollouts)))[0]
    left, right = (turns_of(book, rollout, [], components=False) for rollout in (failed, won))
    lines = side_by_side(left, right)
    assert [one for one, _, _ in lines if one] == left
    assert [other for _, other, _ in lines if other] == right
    facing = [(one.number, other.number) for one, other, _ in lines if one and other]
    assert facing == [(turn, turn) for turn in range(min(len(left), len(right)))]
    marks = [same for _, _, same in side_by_side(left, [*left[:2], replace(left[2], got="another"), *left[3:]])]
    assert marks == [True, True, *[False] * (len(left) - 2)]


def test_the_index_names_a_best_method_only_among_methods_whose_credit_varies(book):
    page = render_index(gather(book, [0], {}, first=None), [0], "x")
    varied = [name for name, found in book.correlations.items() if found.varies_R.any() and name not in NOT_COMPARED]
    assert len(varied) >= 2
    best = max(varied, key=lambda name: mean_ranks(book)[name])
    assert f"the credit of {best} (mean" in page
    assert re.search(r">weighted mean of \d+ rollouts<", page)
    alone = replace(book, credits={name: book.credits[name] for name in ("flat_grpo", best)})
    assert "Over all rollouts" not in render_index(gather(alone, [0], {}, first=None), [0], "x")


def test_the_index_sets_a_single_method_beside_noise_and_the_reference(book):
    names = ("flat_grpo", "gigpo", "random_credit", "oracle_progress")
    few = replace(book, credits={name: book.credits[name] for name in names})
    rank = {name: number(value) for name, value in mean_ranks(few).items()}
    said = re.search(
        r"Over all rollouts with ground truth, .*?</p>", render_index(gather(few, [0], {}, first=None), [0], "x")
    )
    order = sorted(("random_credit", "oracle_progress"), key=lambda name: -mean_ranks(few)[name])
    kind = {"random_credit": "noise", "oracle_progress": "reference"}
    beside = " and ".join(f"{name} ({kind[name]}) {rank[name]}" for name in order)
    assert said[0] == (
        f"Over all rollouts with ground truth, the rank correlation of gigpo with A* is {rank['gigpo']}; "
        f"for comparison {beside}.</p>"
    )


def test_no_reference_is_named_as_best_or_worst_and_each_rank_has_the_mean_beside_it(book):
    means, seen = mean_ranks(book), 0
    for rollout in range(book.turns.rollouts):
        said = str(verdict(book, rollout)[-1])
        if "ranks most like A*" not in said:
            continue
        seen += 1
        named = re.findall(r"<b>(\w+)</b> [a-z A*]+\(here (\S+), over (\d+) rollouts (\S+)\)", said)
        assert len(named) == 2
        for name, here, _, mean in named:
            assert name not in NOT_COMPARED
            assert (here, mean) == (number(agreement(book, name, rollout).rank), number(means[name]))
    assert seen > 0


def with_truth(book: Book, rollout: int, true: list[float], se: float = 0.01) -> Book:
    """The book with another A* on the first turns of a rollout, and 0 on its others."""
    rows, true_N = book.rows(rollout), book.truth.advantage_N.copy()
    true_N[rows] = 0.0
    true_N[rows[: len(true)]] = true
    se_N = np.where(np.isin(np.arange(book.turns.n), rows), se, book.truth.se_N)
    return replace(book, truth=replace(book.truth, advantage_N=true_N, se_N=se_N))


@pytest.mark.parametrize(("true", "has"), [([0.5], "only 1 has"), ([0.5, -0.2], "only 2 have")])
def test_methods_are_not_ranked_where_hardly_any_turn_mattered(book, true, has):
    changed = with_truth(book, 0, true)
    said = str(verdict(changed, 0)[-1])
    assert said == (f"Of its {len(book.rows(0))} branched turns {has} an A* other than 0: too few to rank methods by.")
    assert "too few" not in str(verdict(with_truth(book, 0, [0.5, -0.2, 0.1]), 0)[-1])


def test_the_first_page_is_of_a_rollout_with_a_known_sign_and_those_with_hardly_any_come_last(book):
    quiet = with_truth(book, 1, [0.5, -0.5])
    unsure = with_truth(quiet, 2, [0.05, 0.1, -0.2], se=9.0)
    names = re.findall(
        r'<td><span class="mark[^<]*</span> <a href="([^"]+)"',
        pages(unsure, {}, count=99, first=None, title="x")["index.html"],
    )
    last, before = (build.slug(book.ids_R[rollout][1]) + ".html" for rollout in (1, 2))
    assert names[-1] == last
    assert names.index(before) > 0
    rows = book.rows(next(r for r in range(book.turns.rollouts) if build.slug(book.ids_R[r][1]) + ".html" == names[0]))
    assert unsure.truth.clear_N[rows].any()


def test_a_turn_that_shares_its_largest_credit_with_others_is_not_the_largest_alone(book):
    rows = book.rows(0)
    shared, alone = np.zeros(book.turns.n), np.zeros(book.turns.n)
    shared[rows[:3]], alone[rows[0]] = 2.0, 1.0
    made = {"shared": shared, "alone": alone, "same": np.full(book.turns.n, 0.5)}
    changed = replace(with_truth(book, 0, [0.5]), credits={name: Credit(name, x_N, {}) for name, x_N in made.items()})
    assert str(verdict(changed, 0)[0]).endswith(
        " 2 of 2 methods credit it (1 more gives all turns the same). "
        "It has the largest credit of shared (which gives 2 other turns as much) and alone."
    )


def test_numbers_keep_their_sign_and_zero_is_zero():
    assert [number(x) for x in (1.005, -0.5, 0.0, float("nan"), -0.001)] == ["+1.00", "−0.50", "0", "–", "−0.00"]
    assert [decimals_for(scale) for scale in (1.0, 0.05, 0.001)] == [2, 3, 5]


def test_a_rollout_without_branches_says_so(world, tmp_path):
    table = tables.read(world.branches)
    few = table.filter(pc.equal(table["rollout_id"], "game-2#1"))
    tables.pq.write_table(few, tmp_path / "branches.parquet")
    book = read_book(**{**world.given(), "branches": tmp_path / "branches.parquet"})
    other = next(n for n, (_, name) in enumerate(book.ids_R) if name == "game-0#0")
    assert "No turn of this rollout was branched" in str(verdict(book, other)[0])
    page(book, other, against=None, out=tmp_path / "one.html")
    text = (tmp_path / "one.html").read_text()
    assert "not measured: no turn of this rollout was branched" in text
    assert "rank with A*" not in text
    first, *others = strips.lanes(book, other, list(book.credits), 9)
    assert ("<svg" in first.picture, {lane.score for lane in others}) == (False, {""})


def test_a_turn_without_a_number_is_a_gap_and_one_with_zero_a_mark():
    drawn = draw.strip(np.array([0.0, np.nan, 1.0]), 1.0, width=3)
    assert re.findall(r'class="zero" d="([^"]*)"', drawn) == ["M0 10h10M20 10h10"]
    assert re.findall(r'class="o" d="([^"]*)"', drawn) == ["M1 10h8"]


def test_a_label_on_a_page_names_its_judge_and_a_distance_is_that_of_the_shortest_plan(book, tmp_path):
    page(book, 0, against=None, out=tmp_path / "one.html")
    text = (tmp_path / "one.html").read_text()
    assert re.search(r'<span class="tag" title="[^"]*">rule-role: (decisive|exploration|no progress|regression)<', text)
    assert re.search(r"shortest plan: \d( → \d)? actions?<", text)


def test_of_two_rollouts_the_failure_stands_on_the_left_whoever_is_named_first(book, tmp_path):
    failed, won = pairs(book, list(range(book.turns.rollouts)))[0]
    page(book, failed, against=won, out=tmp_path / "one.html")
    page(book, won, against=failed, out=tmp_path / "two.html")
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()
    assert 'class="heatmap"' in (tmp_path / "one.html").read_text()
