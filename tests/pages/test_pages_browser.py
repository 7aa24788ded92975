"""The credit pages as a reader has them: in a browser, with a keyboard, on a phone, in the dark, on paper."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import spearmanr

from tests.helpers import nonempty
from tests.pages import pages_world
from tests.pages.browser import Browser, find
from tests.pages.test_pages import make_pages
from turncredit.credit.parts.text_similarity import lexical
from turncredit.data import tables
from turncredit.views.pages.build import page
from turncredit.views.pages.data import read_book

PROGRAM = find()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="no Chromium here (apt install chromium, or set CHROMIUM)"),
]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return pages_world.make(tmp_path_factory.mktemp("shown"))


@pytest.fixture(scope="module")
def book(world):
    return read_book(**world.given())


@pytest.fixture(scope="module")
def folder(world, tmp_path_factory):
    out = tmp_path_factory.mktemp("shown") / "pages"
    make_pages(world, out, count=12)
    return out


@pytest.fixture(scope="module")
def browser():
    with Browser(PROGRAM) as found:
        yield found


@pytest.fixture
def desk(browser):
    browser.look(width=1280)
    return browser


@pytest.fixture(scope="module")
def alone(book, tmp_path_factory):
    """rollout -> a page of its own, each with every table."""
    out = tmp_path_factory.mktemp("alone")
    files = {}
    for rollout in range(book.turns.rollouts):
        files[rollout] = out / f"{rollout}.html"
        page(book, rollout, against=None, out=files[rollout])
    return files


def to_number(text: str) -> float:
    return float(text.replace("−", "-"))


def same(text: str, value: float) -> bool:
    """Whether the text is the number, rounded to as many places as it shows, and at least two."""
    if value == 0:
        return text == "0"
    places = len(text.partition(".")[2])
    signed = text[0] == ("−" if value < 0 else "+")
    return signed and places >= 2 and abs(to_number(text) - value) <= 0.5 * 10.0**-places + 1e-12


CELLS = """[...document.querySelectorAll('article.turn')].map(turn => ({
    turn: Number(turn.id.slice(1)),
    cells: [...turn.querySelectorAll('.cell')].map(cell => ({
        name: cell.querySelector('.nm').textContent.trim(),
        text: [...cell.childNodes].filter(node => node.nodeType === 3).map(node => node.textContent).join('').trim(),
        error: cell.querySelector('small')?.textContent.trim() ?? '',
        kind: cell.className,
        bar: (box => [box.left, box.right])(cell.querySelector('i').getBoundingClientRect()),
        middle: cell.getBoundingClientRect().left + cell.getBoundingClientRect().width / 2,
        shown: cell.offsetParent !== null})),
    parts: Object.fromEntries([...turn.querySelectorAll('.parts p')].filter(part => part.className).map(part => [
        part.querySelector('b').textContent,
        Object.fromEntries([...part.querySelectorAll('span')].map(span => [
            span.firstChild.textContent.trim(), span.querySelector('i').textContent]))])),
    star: turn.querySelector('.star')?.textContent.trim() ?? '',
    text: turn.querySelector('.what').textContent}))"""


def test_no_page_has_a_script_error_or_asks_for_anything(desk, folder):
    for path in nonempty(folder.glob("*.html")):
        desk.open(path)
        for key in ("j", "j", "k", "o", "m", "m", "m", "?"):
            desk.press(key)
        assert desk.errors == [], path.name
        assert desk.requests == [path.resolve().as_uri()]


def test_every_number_of_a_turn_is_that_of_its_table(desk, alone, book):
    for rollout, path in alone.items():
        desk.open(path)
        turns = desk.js(CELLS)
        assert [turn["turn"] for turn in turns] == list(range(int(book.turns.length_R[rollout])))
        for turn, row in zip(turns, book.rows(rollout).tolist(), strict=True):
            by_name = {cell["name"]: cell for cell in turn["cells"]}
            assert set(by_name) == {"A*", *book.credits}
            for name, credit in book.credits.items():
                assert same(by_name[name]["text"], credit.advantage_N[row]), (name, row)
                for part, x_N in credit.components.items():
                    shown = turn["parts"][name][part]
                    value = np.nan if shown == "–" else to_number(shown)
                    assert value == pytest.approx(x_N[row], rel=1e-3, nan_ok=True)
            if book.truth.branched_N[row]:
                assert same(by_name["A*"]["text"], book.truth.advantage_N[row])
                assert to_number(by_name["A*"]["error"][2:]) == pytest.approx(book.truth.se_N[row], abs=0.005)
            else:
                assert by_name["A*"]["text"] == "·"


def test_signs_are_told_by_place_and_not_by_colour_alone(desk, alone, book):
    desk.open(alone[0])
    desk.press("m")
    seen = set()
    for turn, row in zip(desk.js(CELLS), book.rows(0).tolist(), strict=True):
        for cell in turn["cells"]:
            left, right = cell["bar"]
            if not cell["shown"] or cell["name"] == "A*" or right - left < 1:
                continue
            positive = book.credits[cell["name"]].advantage_N[row] > 0
            beyond = left - cell["middle"] if positive else cell["middle"] - right
            assert beyond >= -1
            seen.add(positive)
    assert seen == {True, False}


def test_the_turns_of_largest_and_smallest_true_advantage_are_starred(desk, alone, book):
    for rollout, path in alone.items():
        desk.open(path)
        stars = {turn["turn"]: turn["star"] for turn in desk.js(CELLS) if turn["star"]}
        rows = book.branched(rollout)
        true, turn_N = book.truth.advantage_N[rows], book.turns.turn_N[rows]
        wanted = {}
        if true.max() > 0:
            wanted[int(turn_N[true.argmax()])] = "★ most useful"
        if true.min() < 0:
            wanted[int(turn_N[true.argmin()])] = "★ most harmful"
        assert stars == wanted


def test_agreement_shown_beside_a_strip_is_spearmans_within_the_rollout(desk, alone, book):
    for rollout, path in alone.items():
        desk.open(path)
        lanes = desk.js(
            "[...document.querySelectorAll('.lanes .score[class*=\" c\"]')].map(score => "
            "[score.previousElementSibling.previousElementSibling.textContent, score.firstChild.textContent.trim()])"
        )
        rows = book.branched(rollout)
        assert {name for name, _ in lanes} == set(book.credits)
        for name, shown in lanes:
            credit = book.credits[name].advantage_N[rows]
            if np.ptp(credit) == 0:
                assert shown == "∅"
            else:
                assert same(shown, spearmanr(credit, book.truth.advantage_N[rows]).statistic)


def test_texts_that_try_to_be_markup_are_read_as_text(desk, alone, book):
    rollout = next(number for number, (_, name) in enumerate(book.ids_R) if "evil" in name)
    desk.open(alone[rollout])
    assert desk.js("document.querySelector('h1').textContent") == pages_world.EVIL
    text = desk.js("document.body.innerText")
    assert text.count("<img src=x onerror=") >= 3
    assert desk.js("document.images.length") == 0
    assert "caught" not in desk.js("document.title").replace("='caught'", "")
    assert desk.errors == []


def test_keys_walk_turns_toggle_methods_open_parts_and_help(desk, folder):
    index = folder / "index.html"
    first = desk_link(desk, index)
    desk.open(folder / first)
    now = "document.querySelector('article.now')?.id"
    seen = []
    for key in ("j", "j", "j", "k"):
        desk.press(key)
        seen.append(desk.js(now))
    assert seen == ["t0", "t1", "t2", "t1"]
    assert desk.js("document.activeElement.id") == "t1"
    left = "parseFloat(document.querySelector('[data-cursor]').style.left)"
    assert desk.js(left) == pytest.approx(100 / desk.js("document.querySelectorAll('article.turn').length"), abs=0.01)
    desk.press("o")
    assert desk.js("document.querySelector('article.now details').open") is True
    columns = "[...document.querySelectorAll('.turn:first-of-type .cells .cell')].filter(c => c.offsetParent).length"
    counts = []
    for _ in range(3):
        desk.press("m")
        counts.append(desk.js(columns))
    assert counts == [1 + len(pages_world.METHOD_NAMES), 1, 7]
    desk.press("?")
    assert desk.js("document.getElementById('help').open") is True
    desk.press("?")
    assert desk.js("document.getElementById('help').open") is False
    desk.press("ArrowRight")
    desk.wait_for("Page.loadEventFired")
    second = desk.js("location.pathname.split('/').pop()")
    assert second != first
    desk.press("ArrowLeft")
    desk.wait_for("Page.loadEventFired")
    assert desk.js("location.pathname.split('/').pop()") == first
    assert desk.errors == []


def desk_link(desk, index):
    desk.open(index)
    return desk.js("document.querySelector('a[rel=next]').getAttribute('href')")


def test_the_chosen_methods_stay_chosen_on_the_next_page(desk, folder):
    desk.open(folder / desk_link(desk, folder / "index.html"))
    desk.js("localStorage.clear()")
    box = "document.querySelector('.controls input[name=random_credit]')"
    before = desk.js(f"{box}.checked")
    desk.js(f"{box}.click()")
    desk.press("ArrowRight")
    desk.wait_for("Page.loadEventFired")
    assert desk.js(f"{box}.checked") is not before
    desk.js("localStorage.clear()")


@pytest.mark.parametrize("width", [360, 768])
def test_no_page_scrolls_sideways_on_a_narrow_screen(browser, folder, width):
    browser.look(width=width, height=800)
    for path in nonempty(folder.glob("*.html")):
        browser.open(path)
        browser.press("m")
        assert browser.js("document.documentElement.scrollWidth") <= width, path.name


def test_on_paper_nothing_lies_beyond_the_page(browser, folder):
    browser.look(width=718, media="print")  # A4, with a browser's margins
    browser.open(folder / "index.html")
    browser.js("localStorage.clear()")  # the columns of the tests before
    for path in nonempty(folder.glob("*.html")):
        browser.open(path)
        assert browser.js("document.querySelector('main').scrollWidth") <= 718, path.name
        inside = "[...document.querySelectorAll('.scroll > table')].every((one) => one.offsetWidth <= 718)"
        assert browser.js(inside), path.name


def test_dark_light_and_paper_differ_in_their_colours(browser, folder):
    page = folder / "index.html"
    found = {}
    for dark, media in ((False, ""), (True, ""), (True, "print")):
        browser.look(width=1280, dark=dark, media=media)
        browser.open(page)
        found[dark, media] = browser.js("getComputedStyle(document.body).backgroundColor")
    assert found[False, ""] == found[True, "print"] == "rgb(255, 255, 255)"
    assert found[True, ""] != "rgb(255, 255, 255)"


def luminance(colour: list[float]) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("dark", [False, True])
def test_numbers_stand_out_from_the_strongest_colours(browser, alone, dark):
    browser.look(width=1280, dark=dark)
    browser.open(alone[0])
    browser.press("m")
    # A canvas turns any colour into bytes.
    pairs = browser.js(
        """(() => {
        const context = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
        const bytes = colour => { context.fillStyle = colour; context.fillRect(0, 0, 1, 1);
            return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3); };
        return [...document.querySelectorAll('.turn .cell.pos, .turn .cell.neg')].map(cell =>
            [bytes(getComputedStyle(cell).color), bytes(getComputedStyle(cell).backgroundColor)]); })()"""
    )
    assert pairs
    for ink, ground in pairs:
        high, low = sorted((luminance([c / 255 for c in colour]) for colour in (ink, ground)), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 4.5


def test_the_pair_page_shows_scpos_similarities_and_credited_turns(desk, folder, book):
    table = tables.read(pages_source(book))
    action, got = table.column("action").to_pylist(), table.column("next_observation").to_pylist()
    text = {
        (rollout, turn): f"{a}\n{o}"
        for rollout, turn, a, o in zip(
            table["rollout_id"].to_pylist(), table["turn"].to_pylist(), action, got, strict=True
        )
    }
    seen = 0
    for path in nonempty(folder.glob("pair-*.html")):
        desk.open(path)
        left, right = desk.js("[...document.querySelectorAll('.split .head a')].map(a => a.textContent)")
        titles = desk.js("[...document.querySelectorAll('.heatmap g rect title')].map(t => t.textContent)")
        for title in titles:
            failed, reference, shown = re.fullmatch(r"turn (\d+) and (\d+): ([\d.]+)", title).groups()
            failed, reference, shown = int(failed), int(reference), float(shown)
            pair = pa.array([text[right, reference], text[left, failed]])
            score = lexical(pair, [(np.array([0]), np.array([1]))])[0][0, 0]
            assert shown == pytest.approx(score, abs=0.005)
            seen += 1
        number = next(n for n, (_, name) in enumerate(book.ids_R) if name == left)
        rows = book.rows(number)
        won = [r for r in book.siblings(number) if book.success_R[r]]
        reference = max(
            won, key=lambda r: (book.turns.length_R[r], -r)
        )  # SCPO's; beside another success there is no walk
        walked = book.ids_R[reference][1] == right
        credited = (book.credits["scpo"].components["scpo_reference"][rows] >= 0) & walked
        steps = desk.js("[...document.querySelectorAll('.steps li')].map(li => li.textContent)")
        assert len(steps) == credited.sum()
        shown = sorted(to_number(step.rsplit(" ", 1)[1]) for step in steps)
        credit = book.credits["scpo"].components["scpo_credit"][rows][credited]
        assert shown == pytest.approx(sorted(credit), abs=0.005)
    assert seen


def pages_source(book):
    return book.sources["turns"]


def test_the_group_page_lists_every_sibling_with_its_outcome_and_length(desk, folder, book):
    for path in nonempty(folder.glob("group-*.html")):
        desk.open(path)
        heads = desk.js("[...document.querySelectorAll('.sibling h3')].map(h => h.innerText)")
        group = int(book.turns.group_R[next(n for n, (_, name) in enumerate(book.ids_R) if name in heads[0])])
        members = [n for n in range(book.turns.rollouts) if book.turns.group_R[n] == group]
        assert len(heads) == len(members)
        for number in members:
            name = book.ids_R[number][1]
            head = next(head for head in heads if f" {name} " in head)
            assert head.startswith("✓" if book.success_R[number] else "✗")
            assert f"{book.turns.length_R[number]} turns" in head


def test_the_index_puts_first_what_methods_disagree_on(desk, folder, book):
    desk.open(folder / "index.html")
    links = desk.js(
        "[...document.querySelectorAll('.rollouts tr[data-stop]')]"
        ".map(row => row.querySelector('a').getAttribute('href'))"
    )
    rollout_of = {re.sub("[^a-z0-9]+", "-", name) + ".html": number for number, (_, name) in enumerate(book.ids_R)}
    assert {rollout_of[link] for link in links} == set(range(book.turns.rollouts))
    scaled = [np.clip(credit.advantage_N / credit.scale, -1, 1) for credit in book.credits.values()]
    apart_N = np.stack(scaled).std(axis=0)
    order = [float(apart_N[book.rows(rollout_of[link])].mean()) for link in links]
    assert order == pytest.approx(sorted(order, reverse=True))
