"""`turncredit view --export`: which pages there are, that every link of theirs leads somewhere, and the size."""

from __future__ import annotations

import json
import re
import shutil
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.helpers import nonempty, turncredit
from tests.results import synthetic
from tests.viewer import world
from turncredit.data import tables
from turncredit.errors import UserError
from turncredit.views.pages.build import slug
from turncredit.views.viewer import round_views, trail
from turncredit.views.viewer.export import Exported, export
from turncredit.views.viewer.given import Given
from turncredit.views.viewer.sources import Absent
from turncredit.views.viewer.viewer import Viewer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """SYNTHETIC results with a report."""
    return world.reported(tmp_path_factory.mktemp("exported"))


@pytest.fixture(scope="module")
def whole(reported, tmp_path_factory):
    """An export of two methods' second and third rounds, and what was said of it."""
    out = tmp_path_factory.mktemp("pages") / "pages"
    rounds = [world.ROUND, "random_credit/seed0/round02", "flat_grpo/seed0/round03"]
    return out, written(reported.results, out, rounds=rounds)


def written(*given: Path, rounds=(), count=3, megabytes=50.0) -> Exported:
    *paths, out = given
    return export(Viewer(Given(paths)), out, rounds=rounds, count=count, megabytes=megabytes)


class Page(HTMLParser):
    """What a page leads to, loads, and has as targets of links; and its texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        values = dict(attrs)
        self.ids |= {values["id"] or ""} if "id" in values else set()
        self.links += [values[name] or "" for name in ("href", "src", "action") if name in values]


def dead_links(folder: Path) -> list[tuple[str, str]]:
    """(page, link) of every link of every page that leads to no file of the folder, or to no place on its page."""
    pages = {path.name: Page(path.read_text(encoding="utf-8")) for path in folder.glob("*.html")}
    found = []
    for name, page in nonempty(pages.items()):
        for link in page.links:
            file, _, fragment = link.partition("#")
            file = unquote(file) or name
            there = file in pages or (file.endswith((".css", ".js")) and (folder / file).is_file())
            if link != "data:," and not (there and (not fragment or fragment in pages[file].ids)):
                found.append((name, link))
    return found


def reached(folder: Path) -> set[str]:
    """The pages to which links lead from the first one on."""
    seen, wanted = set(), ["index.html"]
    while wanted:
        name = wanted.pop()
        if name in seen:
            continue
        seen.add(name)
        links = Page((folder / name).read_text(encoding="utf-8")).links
        wanted += [file for link in links if (file := link.partition("#")[0]).endswith(".html")]
    return seen


def test_every_link_of_every_page_leads_somewhere_and_every_page_is_led_to(whole):
    out, made = whole
    assert made.left_out == {}
    assert dead_links(out) == []
    assert reached(out) == {path.name for path in out.glob("*.html")}
    assert len(reached(out)) == made.pages


def test_a_dead_link_is_found(whole, tmp_path):
    folder = tmp_path / "harmed"
    shutil.copytree(whole[0], folder)
    (folder / "synthetic-numbers.html").unlink()
    assert {link for _, link in dead_links(folder)} == {"synthetic-numbers.html"}
    index = folder / "index.html"
    index.write_text(index.read_text(encoding="utf-8") + '<a href="synthetic-flat-grpo-seed0-round02.html#none">')
    assert ("index.html", "synthetic-flat-grpo-seed0-round02.html#none") in dead_links(folder)


@pytest.mark.parametrize("share", [0.15, 0.4, 0.7, 0.95])
def test_an_export_stays_within_its_size_without_dead_links_and_says_what_is_left_out(reported, whole, tmp_path, share):
    all_of_it = whole[1]
    rounds = [world.ROUND, "random_credit/seed0/round02", "flat_grpo/seed0/round03"]
    limit = share * all_of_it.size / 1e6
    made = written(reported.results, tmp_path / "part", rounds=rounds, megabytes=limit)
    part = tmp_path / "part"
    pages = sum(path.stat().st_size for path in part.iterdir() if path.suffix in (".html", ".css", ".js"))
    assert made.size == pages <= limit * 1e6
    assert made.pages + sum(made.left_out.values()) == all_of_it.pages
    assert made.left_out
    assert dead_links(part) == []
    assert json.loads((part / "turncredit-view.json").read_text()) == {"pages": made.pages, "left_out": made.left_out}


def test_lists_that_are_larger_than_the_size_are_refused_and_nothing_is_written(made, tmp_path):
    with pytest.raises(UserError, match=r"--max-size .*: the lists of rollouts alone are larger"):
        written(made.results, tmp_path / "none", megabytes=0.001)
    assert list(tmp_path.iterdir()) == []


def test_methods_and_rounds_are_compared_for_what_was_chosen(whole):
    out, _ = whole
    text = (out / f"{slug(f'synthetic-{world.ROUND}')}.html").read_text(encoding="utf-8")
    first = next(link for link in Page(text).links if link.startswith("flat-grpo-seed0-round02-"))
    compared = (out / first).read_text(encoding="utf-8")
    assert "<h1>flat_grpo and gigpo on the rollouts of flat_grpo, seed 0, round 2</h1>" in compared
    assert ">flat_grpo and scpo</a>" in compared
    assert "#t" in compared
    index = (out / "index.html").read_text(encoding="utf-8")
    rounds = next(link for link in Page(index).links if "-round0" in link and not link.startswith("synthetic"))
    text = (out / rounds).read_text(encoding="utf-8")
    assert "<h1>flat_grpo/seed0/round02 and random_credit/seed0/round02</h1>" in text
    assert ">flat_grpo/seed0/round02 and flat_grpo/seed0/round03</a>" in text


def test_every_number_of_the_report_leads_to_its_sql_files_rows_and_hashes(reported, whole):
    out, _ = whole
    numbers = trail.numbers(reported.layout)
    listed = (out / "synthetic-numbers.html").read_text(encoding="utf-8")
    pages = [link for link in Page(listed).links if link.endswith(".html") and link != "index.html"]
    assert len(pages) == len(numbers)
    for one, page in nonempty(list(zip(numbers, pages, strict=True))[::5]):
        text = (out / page).read_text(encoding="utf-8")
        assert f"<h1>{one.row}: {one.heading} " in unescape(text)
        assert "<h2>SQL" in text
        assert one.sql.split()[0] in text
        files, words = trail.files_of(reported.layout, one.path)
        assert bool(files) == ("Made from" in text)
        assert bool(words) == (words in text and words != "")
        for file in files[:1]:
            path = file.path.relative_to(reported.layout.root).as_posix()
            link = next(link for link in Page(text).links if link.startswith(slug(path)[:40]))
            of_file = (out / link).read_text(encoding="utf-8")
            assert f"<h1>{path}</h1>" in of_file
            assert f"{tables.read(file.path).num_rows:,} rows" in of_file
            assert "<h2>Rows" in of_file
            assert one.column in of_file


def test_pages_say_nothing_of_the_folders_on_the_machine_that_made_them(reported, tmp_path):
    table = tmp_path / "secret folder" / "mine.parquet"
    table.parent.mkdir()
    shutil.copy(reported.tables.turns, table)
    credit = table.with_name("gigpo.parquet")
    credit.write_bytes(reported.tables.credits["gigpo"].read_bytes()[:300])
    shutil.copytree(reported.folder, tmp_path / "secret folder" / "synthetic")
    harmed = Path(reported.layout.path("credits", {**world.KEYS, "method": "gigpo"}))
    harmed = tmp_path / "secret folder" / harmed.relative_to(reported.results)
    harmed.write_bytes(b"PAR1")
    out = tmp_path / "out"
    written(tmp_path / "secret folder" / "synthetic", table, out, rounds=[f"synthetic/{world.ROUND}", "mine/table"])
    texts = [path.read_text(encoding="utf-8") for path in out.glob("*.html")]
    assert any("gigpo.parquet: not a readable Parquet file" in text for text in nonempty(texts))
    assert [text for text in texts if "secret folder" in text] == []
    assert dead_links(out) == []


def test_a_table_of_ones_own_is_exported_without_an_experiment(reported, tmp_path):
    given = reported.tables
    made = written(given.turns, given.credits["gigpo"], given.credits["scpo"], tmp_path / "out")
    assert dead_links(tmp_path / "out") == []
    assert "gigpo and scpo on the rollouts" in "".join(path.read_text() for path in (tmp_path / "out").glob("*.html"))
    assert made.left_out == {}


def test_a_page_of_an_export_may_take_longer_than_one_that_somebody_waits_for(reported, tmp_path, monkeypatch):
    seconds, timer = set(), round_views.threading.Timer
    monkeypatch.setattr(round_views.threading, "Timer", lambda after, act: seconds.add(after) or timer(after, act))
    written(reported.tables.turns, tmp_path / "out")
    assert seconds == {600}
    Viewer(Given([reported.tables.turns])).first()
    assert seconds == {600, 10}


def test_the_learning_curves_of_an_export_are_complete(tmp_path, monkeypatch):
    from turncredit.views.viewer import records

    monkeypatch.setattr(records, "WAIT", 0.0)
    experiment = synthetic.experiment(("flat_grpo", "random_credit"), rounds=2, games=4)
    folder = synthetic.make(tmp_path / "results", experiment)
    written(folder, tmp_path / "out", rounds=["flat_grpo/seed0/round02"], count=1)
    assert "reading what is there" not in (tmp_path / "out/index.html").read_text(encoding="utf-8")


def test_an_export_replaces_its_own_folder_and_no_other(made, tmp_path):
    out = tmp_path / "out"
    for _ in range(2):
        written(made.results, out, rounds=[world.ROUND], count=1)
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.txt").write_text("x")
    with pytest.raises(UserError, match="exists and was not written by this command"):
        written(made.results, other, count=1)
    assert (other / "mine.txt").read_text() == "x"
    with pytest.raises(Absent, match="no turns of a round nothing"):
        written(made.results, other / "x", rounds=["nothing"], count=1)


def test_the_command_says_how_many_pages_of_which_kind_were_left_out(reported, tmp_path):
    done = turncredit("view", reported.results, "--export", tmp_path / "out", "--max-size", "0.3")
    assert done.returncode == 0
    pages = len(list((tmp_path / "out").glob("*.html")))
    assert done.stdout.startswith(f"{tmp_path}/out/index.html: {pages} pages, 0.")
    first, left_out = done.stderr.splitlines()
    limits = "at most 24 rollouts of each and 0.3 MB in all"
    assert re.fullmatch(rf"{re.escape(str(tmp_path))}/out: writing pages of \d+ rounds?, {limits}", first)
    assert left_out.startswith("left out, because --max-size is 0.3: pages of ")
    assert " files" in left_out


def test_done_rounds_that_an_export_lacks_are_in_its_legend_and_not_in_the_servers(reported, whole):
    exported = (whole[0] / "index.html").read_text(encoding="utf-8")
    assert "</i>done, not in this export</span>" in exported
    assert re.search(r'<span class="k done" title="round 1: done, [^"]*, not in this export">', exported)
    assert "not in this export" not in world.settled(Viewer(Given([reported.results])))
