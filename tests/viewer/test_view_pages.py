"""What the pages say, compared with the tables; and what they do about files that are wrong."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers import nonempty
from tests.pages import pages_world
from tests.results import synthetic
from tests.viewer import world
from tests.viewer.world import settled
from turncredit.config.layout import fill
from turncredit.config.stages import stages
from turncredit.credit import METHODS, compute
from turncredit.data import tables
from turncredit.data.turns import Turns
from turncredit.errors import UserError
from turncredit.views.pages.build import page as credit_page
from turncredit.views.pages.data import read_book
from turncredit.views.report.report import report
from turncredit.views.viewer import books, charts, compare, records, rollouts, round_views, sources, trail
from turncredit.views.viewer.activity import Activity, Failed, Work
from turncredit.views.viewer.given import Given
from turncredit.views.viewer.rollouts import Filter
from turncredit.views.viewer.sources import Absent
from turncredit.views.viewer.viewer import Viewer

SCRIPTS = [f'<script src="/static/{name}.js" defer>' for name in ("script", "view")]
EVIL = {"group": world.EVIL_GROUP, "rollout": world.EVIL_ROLLOUT}


@pytest.fixture(scope="module")
def files(made):
    return Given([made.results]).experiment("synthetic").files(world.ROUND)


@pytest.fixture(scope="module")
def turns(made):
    return tables.read(made.tables.turns).to_pandas()


def links(text: str, start: str) -> list[str]:
    return [unescape(link) for link in re.findall(rf'href="({start}[^"]*)"', text)]


# --------------------------------------------------------------- an experiment


def test_every_round_that_has_rollouts_is_a_link_and_others_are_not(viewer):
    text = settled(viewer)
    cells = re.findall(r'<(a|span) class="k (\w+)[^"]*"(?: href="([^"]*)")? title="round (\d)[^"]*"', text)
    assert len(cells) == 2 * 2 * 3
    assert [state for _, state, *_ in cells].count("missing") == 1
    for kind, state, link, _ in cells:
        assert (kind == "a") == (state != "missing") == bool(link)
    for link in nonempty(links(text, "/round/")):
        where = link.removeprefix("/round/synthetic/").partition("?")[0]
        assert viewer.round("synthetic", where, {})


def test_the_curves_are_the_means_over_seeds_of_the_evaluations(made, viewer):
    shown = viewer.overview(viewer.given.experiment("synthetic"))
    mode = made.experiment.eval.primary
    for (method, seed), cells in shown.runs.items():
        for cell in cells:
            path = Path(made.layout.path("evals", method=method, seed=seed, round=cell.round))
            if not path.exists():
                assert cell.evaluated is None
                continue
            rows = tables.read(path).to_pandas()
            assert cell.evaluated == pytest.approx(rows[rows["mode"] == mode]["success"].mean())


def test_a_round_is_coloured_by_held_out_success_alone(own):
    """Success of training rollouts is another measure: coloured by it, round 1 looks better than the next."""
    made, viewer = own
    (made.layout.root / fill(stages()["eval"].metrics, {"method": "flat_grpo", "seed": 0, "round": 2})).unlink()
    text = settled(viewer)
    overview = viewer.overview(viewer.given.experiment("synthetic"))
    cells = re.findall(r'<a class="k ([^"]*)"[^>]*title="(round \d[^"]*)" style="--s:([\d.]+)"', text)
    known = [cell for of_run in overview.runs.values() for cell in of_run if cell.state != "missing"]
    for cell, (classes, words, share) in nonempty(list(zip(known, cells, strict=True))):
        assert cell.training is not None
        assert ("unevaluated" in classes.split()) == ("not evaluated" in words) == (cell.evaluated is None)
        assert float(share) == pytest.approx(cell.evaluated or 0.0, abs=0.0051)
    assert {cell.evaluated is None for cell in known} == {True, False}


def test_curves_have_a_tick_for_each_round_and_those_of_training_begin_with_round_1(viewer):
    held_out, training = re.findall(r"<figure>.*?</figure>", settled(viewer), flags=re.DOTALL)
    for text, rounds in ((held_out, [0, 1, 2, 3]), (training, [1, 2, 3])):
        ticks = re.findall(r'<span class="x" style="left:([\d.]+)%">(\d+)</span>', text)
        assert [int(number) for _, number in ticks] == rounds
        places = [float(left) / 100 for left, _ in ticks]
        assert (places[0], places[-1]) == (0, 1)
        for line in nonempty(re.findall(r'<polyline[^>]*points="([^"]*)"', text)):
            for point in line.split():
                assert float(point.split(",")[0]) / charts.WIDE in [pytest.approx(place, abs=1e-3) for place in places]
    assert "compare methods within a round" in training


@given(st.integers(0, 1), st.integers(1, 3000))
def test_at_most_a_dozen_ticks_have_a_number(first, last):
    found = charts._numbered(first, last)
    assert found[0] == first
    assert found == sorted({*found})
    assert found[-1] <= max(first, last)
    assert len(found) <= charts.NUMBERED + 1
    assert len({b - a for a, b in itertools.pairwise(found[1:])}) <= 1


def test_metrics_that_are_being_written_or_have_changed_are_read_again(own, monkeypatch):
    made, viewer = own
    monkeypatch.setattr(records, "AGAIN", -1e9)
    found = records.Records(viewer.given.experiment("synthetic"))
    keys = {"method": "random_credit", "seed": 1, "round": 3}
    path = world.record(made.layout, "eval", keys, success_sampled=0.5)
    whole = path.read_text()
    path.write_text(whole[: len(whole) // 2])

    def evaluated():
        return found.overview(wait=30).runs["random_credit", 1][2].evaluated

    assert evaluated() is None
    path.write_text(whole)
    assert evaluated() == 0.5
    world.record(made.layout, "eval", keys, success_sampled=0.75)
    assert evaluated() == 0.75
    path.unlink()
    assert evaluated() is None


def test_a_warm_start_is_shown_on_the_games_of_the_round_that_it_is_compared_in(own):
    """Each round has its own games: a mean over all of them is no comparison with the methods' last round."""
    made, viewer = own
    rounds = viewer.given.experiment("synthetic").config().eval_rounds()
    assert len(rounds) > 1
    for number, round_ in enumerate(rounds):
        world.record(made.layout, "eval", {"method": "sft", "seed": 0, "round": round_}, success_sampled=0.1 * number)
    starts = records.Records(viewer.given.experiment("synthetic")).overview(wait=30).starts
    assert starts == {"sft": {round_: pytest.approx(0.1 * number) for number, round_ in enumerate(rounds)}}
    legend = settled(viewer).partition("last round:")[2].partition("</ul>")[0]
    assert f"sft <b>{10 * (len(rounds) - 1)}%</b>" in legend


@pytest.mark.parametrize(
    ("evaluated", "said"),
    [({1: 0.2, 3: 0.5}, "50%"), ({1: 0.2, 2: 0.5}, "35% (mean of rounds 1, 2)"), ({2: 0.5}, "50% (round 2)")],
)
def test_a_warm_start_that_was_not_evaluated_in_the_last_round_says_what_its_number_is(evaluated, said):
    drawn = charts.chart("", "", {"flat_grpo": {1: [0.1], 3: [0.6]}}, (0, 3), {"sft": evaluated}, ["flat_grpo"])
    assert drawn is not None
    assert drawn.starts == [("sft", said)]


def test_running_failed_and_collapsed_rounds_are_marked_with_the_last_lines_of_the_log(own):
    made, viewer = own
    layout = made.layout
    world.record(layout, "update", {"method": "flat_grpo", "seed": 1, "round": 2}, largest_log_ratio=7.0, entropy=1.0)
    world.record(layout, "update", {"method": "flat_grpo", "seed": 1, "round": 1}, largest_log_ratio=0.1, entropy=1.0)
    doing = Activity(
        [Work("evals", "random_credit", 1, 3, "running")],
        [
            Failed(
                "update flat_grpo seed0 round03: <b>no memory</b>",
                "logs/x.log",
                ["line 1", "<i>line 2"],
                "flat_grpo",
                0,
                3,
            )
        ],
        True,
    )
    viewer.activity_of = lambda _: doing
    text = settled(viewer)
    assert re.search(r'class="k running[^"]*" title="round 3: evals running"', text)
    assert re.search(r'class="k failed[^"]*"[^>]*title="round 3: failed', text)
    assert re.search(r'class="k done[^"]*collapsed[^"]*"[^>]*title="round 2', text)
    assert "line 1\n&lt;i&gt;line 2" in text
    assert "&lt;b&gt;no memory" in text
    assert "log-probabilities moved by 7.0" in text


# --------------------------------------------------------------- a round


def selected(files, **wanted) -> list[tuple[str, str]]:
    return [(row.group, row.rollout) for row in rollouts.listed(files, Filter(**wanted)).rows]


filters = st.fixed_dictionaries(
    {},
    optional={
        "outcome": st.sampled_from(["won", "lost"]),
        "shortest": st.integers(0, 12).map(str),
        "longest": st.integers(0, 12).map(str),
        "invalid": st.integers(0, 60).map(str),
        "text": st.sampled_from(["FRIDGE", "go to shelf", "nothing happens", "%", "'", "mug 3", "onerror"]),
        "sort": st.sampled_from([*rollouts.SORTS, *(f"-{name}" for name in rollouts.SORTS)]),
    },
)


@settings(max_examples=25)
@given(filters)
def test_a_filter_lets_through_what_pandas_selects(files, turns, wanted):
    texts = turns[[name for name in rollouts.TEXTS if name in turns]].fillna("").agg(" ".join, axis=1).str.lower()
    rows = turns.assign(found=texts.str.contains(wanted.get("text", "").lower(), regex=False))
    each = rows.groupby(["group_id", "rollout_id"]).agg(
        won=("success", "any"), length=("turn", "count"), valid=("valid", "mean"), found=("found", "any")
    )
    keep = each["found"]
    keep &= (each["length"] >= float(wanted.get("shortest", 0))) & (each["length"] <= float(wanted.get("longest", 99)))
    keep &= 1 - each["valid"] >= float(wanted.get("invalid", 0)) / 100
    if "outcome" in wanted:
        keep &= each["won"] == (wanted["outcome"] == "won")
    found = selected(files, **wanted)
    assert sorted(found) == sorted(each[keep].index.tolist())
    up = selected(files, **{**wanted, "sort": "-turns"})
    lengths = [int(each.loc[ids, "length"]) for ids in up]
    assert lengths == sorted(each[keep]["length"])


def test_the_list_can_be_sorted_by_the_largest_credit_of_the_chosen_method(made, files):
    credit = tables.read(made.tables.credits["gigpo"]).to_pandas()
    largest = credit.assign(size=credit["advantage"].abs()).groupby(["group_id", "rollout_id"])["size"].max()
    rows = rollouts.listed(files, Filter(sort="credit"), method="gigpo").rows
    sizes = [largest.loc[row.group, row.rollout] for row in rows]
    assert sizes == sorted(sizes, reverse=True)
    first = credit[(credit["group_id"] == rows[0].group) & (credit["rollout_id"] == rows[0].rollout)]
    np.testing.assert_allclose(rows[0].credit, first.sort_values("turn")["advantage"])


def test_rollouts_whose_true_advantage_was_measured_come_first(own):
    made, viewer = own
    path = Path(made.layout.path("branches", world.KEYS))
    branches = tables.read(path)
    last = {"group_id": "game-2", "rollout_id": "game-2#3"}
    kept = pa.Table.from_pylist([row for row in branches.to_pylist() if row.items() >= last.items()], branches.schema)
    tables.write(kept, path, "branches", pages_world.MADE_BY)
    files = viewer.given.experiment("synthetic").files(world.ROUND)
    assert selected(files)[0] == tuple(last.values())
    assert selected(files)[1:] == selected(files, sort="order")[:-1]
    near = rollouts.neighbours(files, Filter(), *last.values())
    assert (near.place, near.after) == (1, selected(files)[1])
    chip = "1 with true advantage A*"
    assert f'<span class="chip">{chip}</span>' in viewer.round("synthetic", world.ROUND, {})
    (link,) = re.findall(
        rf'<a class="chip" href="([^"]*)">{re.escape(chip)}</a>',
        viewer.round("synthetic", world.ROUND, {"sort": "order", "outcome": "lost"}),
    )
    assert {"sort=truth", "outcome=lost"} <= {*unescape(link).partition("?")[2].split("&")}
    assert "true advantage" not in viewer.round("synthetic", "random_credit/seed0/round02", {})


def test_an_experiment_leads_to_the_rounds_whose_true_advantage_was_measured(own):
    made, viewer = own
    text = re.search(r'<p class="measured">(.*?)</p>', settled(viewer), flags=re.DOTALL)[1]
    assert re.findall(r'href="([^"]*)">(.*?)</a>', text) == [
        (f"/round/synthetic/{world.ROUND}", "flat_grpo, seed 0, round 2")
    ]
    Path(made.layout.path("branches", world.KEYS)).unlink()
    assert 'class="measured"' not in settled(Viewer(viewer.given))


def test_pages_of_the_list_have_every_rollout_once(files):
    pages = [rollouts.listed(files, Filter(sort="turns"), page=page, size=5) for page in range(3)]
    ids = [(row.group, row.rollout) for page in pages for row in page.rows]
    assert len(ids) == len(set(ids)) == pages[0].total == 12


def test_previous_and_next_go_through_the_filtered_list(files):
    wanted = Filter(outcome="lost", sort="-turns")
    ids = selected(files, outcome="lost", sort="-turns")
    assert len(ids) > 2
    for place, at in enumerate(ids):
        near = rollouts.neighbours(files, wanted, *at)
        assert (near.place, near.total) == (place + 1, len(ids))
        assert near.before == (ids[place - 1] if place else None)
        assert near.after == (ids[place + 1] if place + 1 < len(ids) else None)
    won = selected(files, outcome="won")[0]
    assert rollouts.neighbours(files, wanted, *won) is None


def test_a_condition_in_sql_can_use_the_tables_of_the_round(files, turns):
    found = selected(files, where="turns > 5 AND NOT success AND rollout_id IN (SELECT rollout_id FROM credits)")
    each = turns.groupby(["group_id", "rollout_id"]).agg(won=("success", "any"), length=("turn", "count"))
    assert sorted(found) == sorted(each[(each["length"] > 5) & ~each["won"]].index.tolist())


@pytest.mark.parametrize(
    "where",
    [
        "nonsense >",
        "true); COPY turns TO '{out}'; SELECT (true",
        "true; DROP VIEW turns",
        "rollout_id IN (SELECT content FROM read_text('{secret}'))",
        "rollout_id IN (SELECT * FROM '{secret}')",
        "rollout_id IN (SELECT * FROM read_csv('{secret}'))",
        "rollout_id IN (SELECT * FROM glob('/*'))",
        "(SELECT count(*) FROM read_parquet('http://127.0.0.1:1/x.parquet')) > 0",
        "no_such_column = 1",
        "true /*",
    ],
)
def test_sql_can_neither_write_nor_read_anything_else_and_a_mistake_is_one_line(viewer, tmp_path, where):
    secret, out = tmp_path / "secret.csv", tmp_path / "out.parquet"
    secret.write_text("x\nhidden treasure\n")
    text = viewer.round("synthetic", world.ROUND, {"where": where.format(secret=secret, out=out)})
    assert "hidden treasure" not in text
    assert not out.exists()
    shown = re.findall(r'<p class="problem" role="status">(.*?)</p>', text, flags=re.DOTALL)
    assert len(shown) == 1
    assert shown[0].startswith("where: ")
    assert "\n" not in shown[0]
    assert "game-1#0" in text


def test_sql_that_takes_too_long_is_stopped(files, monkeypatch):
    monkeypatch.setattr(round_views, "PATIENCE", 0.3)
    endless = "(SELECT count(*) FROM range(1000000000) a, range(1000000000) b) > 0"
    with pytest.raises(UserError, match="took longer than 0 seconds"):
        rollouts.listed(files, Filter(where=endless))


# --------------------------------------------------------------- a rollout


def articles(text: str) -> list[str]:
    """The turns of a page, without what only the viewer has."""
    text = re.sub(r'<details class="tokens">.*?</details>', "", text, flags=re.DOTALL)
    return [
        re.sub(r"\s+", " ", one) for one in re.findall(r'<article class="row turn.*?</article>', text, flags=re.DOTALL)
    ]


def test_a_rollout_is_drawn_as_on_its_credit_page(made, viewer, tmp_path):
    book = read_book(**made.tables.given())
    for number, (group, rollout) in enumerate(book.ids_R):
        credit_page(book, number, against=None, out=tmp_path / "page.html")
        mine = viewer.rollout("synthetic", world.ROUND, {"group": group, "rollout": rollout})
        theirs = articles((tmp_path / "page.html").read_text())
        assert len(theirs) == int(book.turns.length_R[number])
        assert articles(mine) == theirs


def test_credit_that_is_computed_on_demand_is_that_of_the_library(made, viewer):
    book = read_book(**made.tables.given())
    names = books.computable(book)
    assert {"rloo", "reinforce_pp", "triage"} <= {*names}
    assert not {*names} & {*book.credits, "has_turnrd", "vineppo"}
    side = {"labels": tables.read(made.tables.labels["rule-role"])}
    table = tables.read(made.tables.turns)
    for name in ("rloo", "triage"):
        more, problems = books.with_credit(book, [name])
        assert problems == []
        wanted = compute(Turns(table, side), METHODS[name], seed=0)
        np.testing.assert_allclose(book.turns.restore(more.credits[name].advantage_N), wanted["advantage"])
    text = viewer.rollout("synthetic", world.ROUND, {**EVIL, "also": "rloo"})
    assert text.count('class="nm">rloo ') == len(articles(text))
    assert "not read from a file: rloo" in text


def test_a_method_that_cannot_be_computed_here_is_one_line(viewer):
    text = viewer.rollout("synthetic", world.ROUND, {**EVIL, "also": "vineppo,<b>none"})
    assert "vineppo: its credit cannot be computed from these tables" in text
    assert "&lt;b&gt;none: " in text


def test_tokens_have_the_log_probabilities_of_the_table(viewer):
    text = viewer.rollout("synthetic", world.ROUND, {"group": "game-1", "rollout": "game-1#0"})
    assert len(re.findall(r'<details class="tokens">', text)) == len(articles(text))
    assert 'title="log-probability −0.500, probability 0.607"' in text


def test_texts_of_agents_judges_and_tasks_are_text_on_every_page(viewer):
    place = ("synthetic", world.ROUND)
    pages = [
        viewer.round(*place, {"text": "<script>alert(1)</script>", "where": "<b>"}),
        viewer.round(*place, {}),
        viewer.rollout(*place, EVIL),
        viewer.group(*place, {"group": world.EVIL_GROUP}),
        viewer.pair(*place, {"group": world.EVIL_GROUP, "left": world.EVIL_ROLLOUT, "right": "game-0#0"}),
        viewer.compare("synthetic", {"round": world.ROUND, "a": "gigpo", "b": "scpo"}),
        viewer.trail("synthetic", {"file": f"rollouts/{world.ROUND}/turns.parquet"}),
        viewer.problem("<script>"),
    ]
    for text in pages:
        assert "<img" not in text
        assert "<b>evil" not in text
        assert re.findall(r"<script[^>]*>", text) == SCRIPTS
        tags = nonempty(re.findall(r"<[a-z][^>]*>", re.sub(r'="[^"]*"', '=""', text)))
        assert [tag for tag in tags if re.search(r"\son\w+=", tag)] == []
    assert all("&lt;" in text for text in pages)


def test_siblings_are_side_by_side_and_their_first_difference_is_marked(viewer, turns):
    text = viewer.group("synthetic", world.ROUND, {"group": "game-1"})
    table = re.search(r'<table class="aligned">(.*?)</table>', text, flags=re.DOTALL)[1]
    rows = re.findall(r'<tr><th scope="row">(\d+)</th>(.*?)</tr>', table, flags=re.DOTALL)
    lengths = turns[turns["group_id"] == "game-1"].groupby("rollout_id").size()
    assert len(rows) == lengths.max()
    assert len(re.findall(r'class="differs"', table)) == len(lengths) - 1


# --------------------------------------------------------------- tables of others


def test_an_imported_table_without_credit_or_rewards_has_the_same_pages(tmp_path):
    texts = {"source": "x:1", "observation": "here", "reward": None, "group_id": "g"}
    rows = [
        {**texts, "rollout_id": f"r{copy}", "turn": turn, "goal": f"goal {copy}", "response_text": f"say {turn}"}
        for copy in range(3)
        for turn in range(copy + 1)
    ]
    table = pa.Table.from_pylist(rows)
    pq.write_table(table.set_column(2, "reward", pa.nulls(len(rows), pa.float64())), tmp_path / "mine.parquet")
    viewer = Viewer(Given([tmp_path / "mine.parquet"]))
    assert "goal 2" in viewer.round("mine", "table", {})
    assert "goal 2" not in viewer.round("mine", "table", {"longest": "2"})
    text = viewer.rollout("mine", "table", {"group": "g", "rollout": "r2"})
    assert len(articles(text)) == 3
    assert "6 turns have no reward; here they count as 0" in text
    assert viewer.group("mine", "table", {"group": "g"}).count("say 0") == 3


def test_files_about_turns_belong_to_the_table_before_them(made):
    world_ = made.tables
    given = [world_.turns, *world_.credits.values(), world_.branches, world_.labels["rule-role"]]
    found = Given(given)
    about = found.source("turns").about
    assert (len(about.credits), about.branches, about.labels) == (3, world_.branches, [world_.labels["rule-role"]])
    text = Viewer(found).rollout("turns", "table", EVIL)
    assert "A* " in text
    with pytest.raises(UserError, match="'turns' was given twice"):
        Given([world_.turns, world_.turns])


def test_a_table_whose_name_has_wildcards_is_itself_and_not_its_neighbour(tmp_path, monkeypatch):
    rows = {"group_id": ["g"], "rollout_id": ["r"], "turn": [0], "reward": [0.0]}
    for name, goal in (("x[1]", "mine"), ("x1", "its neighbour")):
        pq.write_table(pa.table({**rows, "goal": [goal]}), tmp_path / f"{name}.parquet")
    files = Given([tmp_path / "x[1].parquet"]).source("x[1]").files(sources.TABLE)
    assert rollouts.listed(files, Filter()).rows[0].goal == "mine"
    monkeypatch.setattr(books, "WHOLE", 0)  # a table that is read by group
    assert books.Shelf().open(files, "g").book.cell("goal", 0) == "mine"


def test_a_large_table_is_read_by_group_and_shows_the_same_turns(viewer, monkeypatch):
    whole = viewer.rollout("synthetic", world.ROUND, EVIL)
    monkeypatch.setattr(books, "WHOLE", 10)
    part = Viewer(viewer.given).rollout("synthetic", world.ROUND, EVIL)
    assert "only the group game-0 was read" in part

    def texts(page):
        return re.findall(r'<span class="did">(.*?)</span>', page)

    assert texts(part) == texts(whole)
    assert len(texts(part)) == 9


# --------------------------------------------------------------- bad input


def test_a_damaged_or_foreign_table_beside_the_turns_is_one_line_and_the_rest_is_shown(own):
    made, viewer = own
    folder = Path(made.layout.path("turns", world.KEYS)).parent
    (folder / "credits/gigpo.parquet").write_bytes((folder / "credits/gigpo.parquet").read_bytes()[:500])
    shutil.copy(folder / "credits/scpo.parquet", folder / "branches.parquet")
    (folder / "measures.parquet").write_bytes(b"")
    for text in (viewer.round("synthetic", world.ROUND, {}), viewer.rollout("synthetic", world.ROUND, EVIL)):
        lines = re.findall(r'<p class="problem" role="status">(.*?)</p>', text)
        assert any("gigpo.parquet: not a readable Parquet file" in line for line in lines)
        assert any("branches.parquet" in line for line in lines)
        assert "flat_grpo" in text
    assert len(articles(text)) == 9


@pytest.mark.parametrize(
    ("harm", "line"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:2000]), "not a readable Parquet file"),
        (lambda path: path.write_bytes(b""), "not a readable Parquet file"),
        (lambda path: pq.write_table(pa.table({"x": [1]}), path), "a table of turns needs the column 'group_id'"),
        (lambda path: pq.write_table(pq.read_table(path).drop_columns("reward"), path), "needs the column 'reward'"),
        (lambda path: path.unlink(), "no turns of a round flat_grpo/seed0/round02 yet"),
    ],
)
def test_turns_that_are_gone_half_made_or_of_another_schema_are_one_line(own, harm, line):
    made, viewer = own
    assert viewer.rollout("synthetic", world.ROUND, EVIL)
    harm(Path(made.layout.path("turns", world.KEYS)))
    with pytest.raises(UserError) as caught:
        viewer.round("synthetic", world.ROUND, EVIL)
    assert line in str(caught.value)
    lines = [str(caught.value)]
    for make in (viewer.group, viewer.rollout):
        with pytest.raises(UserError) as caught:
            make("synthetic", world.ROUND, EVIL)
        lines.append(str(caught.value))
    assert [one for one in lines if "\n" in one] == []
    assert viewer.round("synthetic", "random_credit/seed0/round02", {})
    assert settled(viewer)


def test_a_half_written_configuration_is_one_line_and_comes_back(own):
    made, viewer = own
    path = made.folder / "config.json"
    whole = path.read_text()
    path.write_text(whole[:50])
    with pytest.raises(UserError, match=r"config.json: not valid JSON"):
        viewer.experiment("synthetic")
    path.write_text(whole)
    assert settled(viewer)


def problems(text: str) -> list[str]:
    """The lines of a page on what is wrong."""
    return [unescape(line) for line in re.findall(r'<p class="problem" role="status">(.*?)</p>', text, flags=re.DOTALL)]


def test_two_rounds_of_which_one_has_another_schema_are_one_line(own):
    made, viewer = own
    settled(viewer)
    pq.write_table(pa.table({"x": [1]}), made.layout.path("turns", world.KEYS))
    with pytest.raises(UserError, match=r"these rounds cannot be compared \(Binder Error: .*task_id.*\)") as caught:
        viewer.compare("synthetic", {"a": "flat_grpo/seed0/round02", "b": "random_credit/seed0/round02"})
    assert "\n" not in str(caught.value)


def test_half_made_evaluations_are_a_line_and_the_rest_of_the_page_is_shown(own):
    made, viewer = own
    report(experiment=made.experiment, results=made.folder, out=made.folder / "report")
    settled(viewer)
    path = Path(made.layout.path("evals", method="flat_grpo", seed=0, round=3))
    path.write_bytes(path.read_bytes()[:300])
    compared = viewer.compare("synthetic", {"a": "flat_grpo/seed0/round03", "b": "random_credit/seed0/round03"})
    assert "Training tasks in both" in compared
    assert "has not been evaluated" not in compared
    number = viewer.trail("synthetic", {"table": "final", "row": "flat_grpo", "column": "final", "run": "1"})
    assert "<h2>SQL" in number
    assert "Made from" in number
    where = path.relative_to(made.folder).as_posix()
    file = viewer.trail("synthetic", {"file": where})
    assert f"<h1>{where}</h1>" in file
    assert "Numbers of the report made from it" in file
    for text in (compared, number, file):
        (line,) = problems(text)
        assert "evals.parquet" in line or "cannot be compared" in line
        assert "\n" not in line


def test_a_page_of_the_list_beyond_its_end_is_the_last_one(viewer, monkeypatch):
    monkeypatch.setattr(rollouts, "PAGE", 5)
    last = viewer.round("synthetic", world.ROUND, {"page": "3"})
    assert "page 3 of 3" in last
    assert viewer.round("synthetic", world.ROUND, {"page": "7"}) == last
    for odd in ("99999999999999999999999", "0", "-1", "x", "²"):
        assert "page 1 of 3" in viewer.round("synthetic", world.ROUND, {"page": odd})


def test_a_round_with_the_credit_of_one_method_has_nothing_to_compare(viewer):
    with pytest.raises(Absent, match="flat_grpo, seed 0, round 3: credit of flat_grpo alone"):
        viewer.compare("synthetic", {"round": "flat_grpo/seed0/round03"})


def test_control_characters_of_an_address_are_shown_and_not_obeyed(viewer):
    with pytest.raises(Absent) as caught:
        viewer.trail("synthetic", {"file": "a\0\x1b[31m"})
    text = viewer.problem(str(caught.value))
    assert not {"\0", "\x1b"} & {*text}


@contextmanager
def without_privileges() -> Iterator[None]:
    """As somebody who may only read what everybody may, also where the tests run as root."""
    before = os.geteuid()
    os.seteuid(65534 if before == 0 else before)
    try:
        yield
    finally:
        os.seteuid(before)


def test_a_file_without_permission_is_one_line():
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        made = world.make(Path(folder))
        viewer = Viewer(Given([made.results]))
        assert viewer.rollout("synthetic", world.ROUND, EVIL)
        Path(made.layout.path("credits", world.KEYS)).chmod(0)
        with without_privileges():
            text = viewer.round("synthetic", world.ROUND, {})
        lines = re.findall(r'<p class="problem" role="status">(.*?)</p>', text)
        assert len(lines) == 1
        assert "credits/flat_grpo.parquet" in lines[0]
        assert "no permission to read it" in lines[0]
        assert "gigpo" in text
        Path(made.layout.path("turns", world.KEYS)).chmod(0)
        with without_privileges(), pytest.raises(UserError, match=r"turns.parquet: no permission"):
            viewer.round("synthetic", world.ROUND, {})
        (made.folder / "config.json").chmod(0)
        with without_privileges(), pytest.raises(PermissionError, match=r"config.json"):
            viewer.experiment("synthetic")


def test_names_that_are_not_there_are_told_with_the_nearest(viewer):
    for call, line in (
        (lambda: viewer.experiment("syntetic"), "nothing here is called 'syntetic' (did you mean 'synthetic'?)"),
        (lambda: viewer.round("synthetic", "flat_grpo/seed0/round99", {}), "no turns of a round"),
        (
            lambda: viewer.rollout("synthetic", world.ROUND, {"group": "game-0", "rollout": "x"}),
            "there is no rollout x",
        ),
        (lambda: viewer.group("synthetic", world.ROUND, {"group": "x"}), "there is no group x"),
        (lambda: viewer.trail("synthetic", {}), "no report yet"),
    ):
        with pytest.raises(Absent) as caught:
            call()
        assert line in str(caught.value)


# --------------------------------------------------------------- compare, trail


def test_two_methods_are_compared_on_the_turns_where_they_differ_most(made, files, viewer):
    found = compare.methods(files, "gigpo", "scpo")
    both = [tables.read(made.tables.credits[name]).to_pandas() for name in ("gigpo", "scpo")]
    joined = both[0].merge(both[1], on=list(tables.KEYS), suffixes=("_a", "_b"))
    scales = [np.quantile(frame["advantage"].abs(), 0.95) for frame in both]
    apart = (joined["advantage_a"] / scales[0] - joined["advantage_b"] / scales[1]).abs()
    assert found.count == len(joined)
    assert found.correlation == pytest.approx(np.corrcoef(joined["advantage_a"], joined["advantage_b"])[0, 1])
    shown = [abs(row.a - row.b) for row in found.turns]
    np.testing.assert_allclose(shown, sorted(apart, reverse=True)[: compare.MOST])
    text = viewer.compare("synthetic", {"round": world.ROUND, "a": "gigpo", "b": "scpo"})
    for link in nonempty(links(text, "/rollout/")):
        assert "#t" in link
    with pytest.raises(UserError, match="nothing has no credit here; those that have: flat_grpo, gigpo, scpo"):
        compare.methods(files, "nothing", "scpo")


def test_two_methods_are_judged_on_the_turns_whose_true_advantage_was_measured(made, files, viewer):
    """As the credit pages judge each of them."""
    book = read_book(**made.tables.given())
    clear, true = book.truth.clear_N, book.truth.advantage_N
    found = compare.methods(files, "gigpo", "scpo")
    judged = found.judged
    assert (judged.count, judged.known) == (int(book.truth.branched_N.sum()), int(clear.sum()))
    assert 0 < judged.known < judged.count
    right = [int((book.credits[name].sign_N[clear] == np.sign(true[clear])).sum()) for name in ("gigpo", "scpo")]
    assert list(judged.right) == right
    assert [row.known for row in judged.turns] == sorted((row.known for row in judged.turns), reverse=True)
    text = viewer.compare("synthetic", {"round": world.ROUND, "a": "gigpo", "b": "scpo"})
    assert f"A*: {judged.known}. gigpo is right on {right[0]}, scpo on {right[1]}." in text
    assert "the report’s sign agreement, over many turns, needs more than one" in text
    rows = {(*book.ids_R[book.turns.rollout_N[n]], int(book.turns.turn_N[n])): n for n in range(len(true))}
    first, second = re.findall(r'<table class="list">(.*?)</table>', text, flags=re.DOTALL)
    for table, turns in ((first, judged.turns), (second, found.turns)):
        shown = re.findall(r"<tr tabindex.*?</tr>", table, flags=re.DOTALL)
        for one, line in nonempty(list(zip(turns, shown, strict=True))):
            row = rows[one.group, one.rollout, one.turn]
            clash = [bool(clear[row] and book.credits[name].sign_N[row] * true[row] < 0) for name in ("gigpo", "scpo")]
            assert line.count(" clash") == sum(clash)
            assert (" ± " in line) == bool(book.truth.branched_N[row])
    assert " clash" in text


def test_credit_that_is_rounding_alone_has_no_sign_in_a_comparison(own):
    made, viewer = own
    path = Path(made.layout.path("credits", {**world.KEYS, "method": "scpo"}))
    credit = tables.read(path).to_pandas()
    credit["advantage"] = np.where(np.arange(len(credit)) % 2, 1.0, -1e-17)
    tables.write(pa.Table.from_pandas(credit, preserve_index=False), path, "credits", pages_world.MADE_BY)
    found = compare.methods(viewer.given.experiment("synthetic").files(world.ROUND), "gigpo", "scpo")
    assert {row.b for row in found.turns} <= {0.0, 1.0}
    text = viewer.compare("synthetic", {"round": world.ROUND, "a": "gigpo", "b": "scpo"})
    assert "−0.00" not in text
    assert "+0.00" not in text


def test_two_methods_without_ground_truth_are_compared_all_the_same(own):
    made, viewer = own
    Path(made.layout.path("branches", world.KEYS)).unlink()
    text = viewer.compare("synthetic", {"round": world.ROUND, "a": "gigpo", "b": "scpo"})
    assert "A*" not in text
    assert "Turns on which they differ most" in text


def test_two_rounds_are_compared_on_common_tasks_and_on_held_out_games(made, viewer):
    settled(viewer)
    text = viewer.compare("synthetic", {"a": "flat_grpo/seed0/round03", "b": "random_credit/seed0/round03"})
    frames = [
        tables.read(made.layout.path("evals", method=method, seed=0, round=3)).to_pandas()
        for method in ("flat_grpo", "random_credit")
    ]
    won = [frame.groupby("task_id")["success"].sum() for frame in frames]
    other = pd.concat(won, axis=1, keys=["a", "b"]).dropna()
    assert f"of {len(other)} that both played" in text
    for task, row in nonempty(other.iterrows()):
        assert (f'<td class="what">{task}</td>' in text) == (row["a"] != row["b"])
    both = other.sum().astype(int)
    played = [sum(frame["task_id"].isin(other.index)) for frame in frames]
    shares = [f"{round(100 * both[side] / of)}% of {of}" for side, of in zip("ab", played, strict=True)]
    assert f"<b>flat_grpo/seed0/round03</b> {shares[0]}, <b>random_credit/seed0/round03</b> {shares[1]}" in text
    assert re.search(r'data-h="flat_grpo/seed0/round03">\d of 1<', text)
    apart = viewer.compare("synthetic", {"a": "flat_grpo/seed0/round01", "b": "random_credit/seed0/round03"})
    assert "They were evaluated on different games." in apart
    assert "The two rounds sampled different tasks." in apart


def test_a_comparison_of_rounds_says_how_many_of_its_lines_are_shown(made, viewer, monkeypatch):
    settled(viewer)
    monkeypatch.setattr(compare, "MOST", 2)
    monkeypatch.setattr(compare, "MOST_GAMES", 1)
    sides = [f"{method}/seed0/round03" for method in ("flat_grpo", "random_credit")]
    text = viewer.compare("synthetic", dict(zip("ab", sides, strict=True)))
    turns = [tables.read(made.layout.path("turns", policy=one.partition("/")[0], seed=0, round=3)) for one in sides]
    each = [table.to_pandas().groupby(["task_id", "rollout_id"])["success"].max().reset_index() for table in turns]
    common = {*each[0]["task_id"]} & {*each[1]["task_id"]}
    assert f"<small>2 of {len(common)} shown, those whose success differs most first</small>" in text
    for side, frame in zip(sides, each, strict=True):
        shown = frame[frame["task_id"].isin(common)]
        assert f"<b>{side}</b> {round(100 * shown['success'].mean())}% of {len(shown)}" in text
    assert "; 1 shown</small>" in text
    first, second = re.findall(r'<table class="list">(.*?)</table>', text, flags=re.DOTALL)
    assert [part.count("<tr tabindex") for part in (first, second)] == [2, 1]


def test_from_two_rounds_one_comes_to_two_methods_and_back(viewer):
    settled(viewer)
    (link,) = links(viewer.compare("synthetic", {}), "/compare/")
    assert link == f"/compare/synthetic?round={world.ROUND.replace('/', '%2F')}"
    assert links(viewer.compare("synthetic", {"round": world.ROUND}), "/compare/") == ["/compare/synthetic"]


def test_at_first_two_runs_are_compared_in_the_last_round(viewer):
    settled(viewer)
    assert "<h1>flat_grpo/seed0/round03 and random_credit/seed0/round03</h1>" in viewer.compare("synthetic", {})


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """The viewer of SYNTHETIC results with a report, and the report's page. Tests must not change them."""
    experiment = synthetic.experiment(("flat_grpo", "random_credit"), rounds=3, games=8)
    folder = synthetic.make(tmp_path_factory.mktemp("reported") / "results", experiment)
    report(experiment=experiment, results=folder, out=folder / "report")
    return Viewer(Given([folder])), folder / "report" / "index.html"


def test_numbers_have_the_words_and_digits_of_the_report(reported):
    """A difference of 0.074 is +7.4 points there."""
    viewer, page = reported
    found = re.search(r'id="numbers">(.*?)</script>', page.read_text(), flags=re.DOTALL)
    theirs = {(one["name"], one["value"], one["interval"], one["sql"]) for one in json.loads(found[1])}
    numbers = trail.numbers(viewer.given.experiment("synthetic").layout)
    assert {one.unit for one in numbers} >= {"share", "points", "seconds", "number"}
    mine = {
        (
            f"{one.title} / {one.row} / {one.heading}",
            one.text.removesuffix(" points").replace("−", "-"),
            one.interval.replace("−", "-"),
            one.sql,
        )
        for one in numbers
    }
    assert mine == theirs
    (difference,) = [one for one in numbers if (one.table, one.column) == ("final", "minus_baseline")]
    assert difference.text.endswith(" points")
    where = {key: getattr(difference, key) for key in trail.NUMBER}
    text = viewer.trail("synthetic", {**where, "run": "1"})
    assert f'<span class="chip">{difference.text} ({difference.interval})</span>' in text
    assert f"It gives <b>{difference.text} (" in text


def test_numbers_are_found_by_the_words_of_the_report_and_by_their_names_in_the_summary(reported):
    viewer, _ = reported
    for words in ("above flat_grpo", "Final success", "minus_baseline"):
        text = viewer.trail("synthetic", {"text": words})
        assert ">above flat_grpo</a>" in text, words
        assert len(links(text, "/trail/synthetic\\?table")) < 30, words
        assert re.search(r"data-nothing hidden", text)
    nothing = viewer.trail("synthetic", {"text": "no such words"})
    assert "<table" not in nothing
    assert re.search(r"data-nothing>Nothing found", nothing)


def test_a_difference_shows_files_of_both_its_sides(reported, monkeypatch):
    monkeypatch.setattr(trail, "FILES", 2)
    viewer, _ = reported
    at = {"table": "final", "row": "random_credit", "column": "minus_baseline"}
    text = viewer.trail("synthetic", at)
    first = re.search(r'<div class="lineage".*?</ol>', text, flags=re.DOTALL)[0]
    assert re.findall(r"<code>runs/(\w+)/", first) == ["random_credit", "flat_grpo"]
    pattern = trail.number(viewer.given.experiment("synthetic").layout, *at.values()).path
    assert [f"<code>{part}</code>" in text for part in pattern.split()] == [True, True]


def test_every_number_of_the_report_leads_to_files_and_its_sql_gives_it(reported):
    viewer, _ = reported
    layout = viewer.given.experiment("synthetic").layout
    numbers = trail.numbers(layout)
    listed = viewer.trail("synthetic", {})
    assert len(links(listed, "/trail/")) == len(numbers) > 10
    with_files = [one for one in numbers if "*" not in one.path]
    for one in nonempty(with_files[:: max(1, len(with_files) // 12)]):
        files, _ = trail.files_of(layout, one.path)
        assert files, one.path
        text = viewer.trail("synthetic", {"table": one.table, "row": one.row, "column": one.column, "run": "1"})
        assert f"{one.value:.6g}".replace("-", "−") in text or f"{one.value:.6g}" in text
        for link in nonempty(links(text, "/trail/synthetic\\?file"))[:2]:
            path = link.partition("file=")[2].replace("%2F", "/")
            assert one in trail.read_from(layout, path)
            back = viewer.trail("synthetic", {"file": path})
            assert one.column in back


def test_the_trail_follows_what_jobs_read(made, tmp_path):
    folder = tmp_path / "results" / "synthetic"
    shutil.copytree(made.folder, folder)
    layout = sources.Experiments("synthetic", folder).layout
    keys = {"policy": "flat_grpo", "method": "flat_grpo", "seed": 0, "round": 2}
    world.described(
        layout, "credit", keys, {"turns": f"results/synthetic/rollouts/{world.ROUND}/turns.parquet", "x": "/etc/passwd"}
    )
    credit = trail.located(layout, f"rollouts/{world.ROUND}/credits/flat_grpo.parquet")
    pq_path = credit.path
    tables.write(
        tables.read(pq_path),
        pq_path,
        "credits",
        {**pages_world.MADE_BY, "stage": "credit", "config": {"api_key": "s3cret"}},
    )
    first, second = trail.lineage(layout, [credit])
    assert [one.artifact for one in first[0]] == ["credits"]
    assert [one.path for one in second[0]] == [f"rollouts/{world.ROUND}/turns.parquet"]
    assert first[0][0].turns == world.ROUND
    assert "s3cret" not in first[0][0].config
    for path in ("/etc/passwd", "../other/config.json", "logs/x.log", "rollouts"):
        with pytest.raises(Absent, match="no such artifact in synthetic"):
            trail.located(layout, path)


def test_policies_are_compared_in_one_mode_of_evaluation(own):
    """Games that one wins sampled and the other greedily are not the same games won."""
    made, _ = own
    last = max(one.keys["round"] for one in made.layout.find("evals", method="random_credit", seed=0))
    ends = [("flat_grpo", 0, last), ("random_credit", 0, last)]
    for won_in, (method, seed, round_) in zip(("sampled", "greedy"), ends, strict=True):
        path = made.layout.path("evals", method=method, seed=seed, round=round_)
        rows = tables.read(path).to_pylist()
        first = rows[0]
        shown = [{**first, "mode": mode, "success": mode == won_in} for mode in ("sampled", "greedy")]
        tables.write(pa.Table.from_pylist(shown, schema=tables.read(path).schema), path, "evals", {})
    games = compare.evaluated(made.layout, *ends, "sampled")
    assert [row[2:] for row in games.differ] == [(1, 1, 0, 1)]
    assert games.common == 1
