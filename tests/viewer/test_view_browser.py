"""The viewer as a reader has it: in a browser, by keyboard alone, on a phone, in the dark."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.helpers import nonempty
from tests.pages.browser import Browser, find
from tests.results import synthetic
from tests.viewer import world
from tests.viewer.serving import TOKEN, served
from turncredit.views.pages.formats import one_line
from turncredit.views.viewer import experiment_page, records, rollouts
from turncredit.views.viewer import given as given_module
from turncredit.views.viewer import viewer as viewer_module
from turncredit.views.viewer.addresses import SCRIPTS, STYLES
from turncredit.views.viewer.export import export
from turncredit.views.viewer.given import Given
from turncredit.views.viewer.rollouts import Filter
from turncredit.views.viewer.viewer import Viewer

PROGRAM = find()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="no Chromium here (apt install chromium, or set CHROMIUM)"),
]

IDS = f"group={quote(world.EVIL_GROUP)}&rollout={quote(world.EVIL_ROLLOUT)}"
PAGES = {
    "experiment": "/experiment/synthetic",
    "round": f"/round/synthetic/{world.ROUND}?sort=credit",
    "nothing found": f"/round/synthetic/{world.ROUND}?text=nowhere&where=nonsense+%3E",
    "rollout": f"/rollout/synthetic/{world.ROUND}?{IDS}&also=rloo",
    "group": f"/group/synthetic/{world.ROUND}?group=game-1",
    "pair": f"/pair/synthetic/{world.ROUND}?group=game-1&left=game-1%230&right=game-1%231",
    "methods": f"/compare/synthetic?round={world.ROUND}&a=gigpo&b=scpo",
    "rounds": "/compare/synthetic?a=flat_grpo/seed0/round01&b=random_credit/seed0/round03",
    "numbers": "/trail/synthetic",
    "number": "/trail/synthetic?table=final&row=flat_grpo&column=final&run=1",
    "file": f"/trail/synthetic?file=rollouts/{world.ROUND}/turns.parquet",
    "problem": "/experiment/synthetic2",
}
#: Texts with letters or digits whose colour is too near that of what is behind them (WCAG 2.2, 1.4.3: 4.5 to 1, large
#: ones 3 to 1). Pictures behind a text are left out.
PALE = """(() => {
    const numbers = (text) => {
        const found = text.match(/[\\d.e-]+/g).map(Number);
        const of = text.startsWith('color(srgb') ? found.slice(0, 3).map(x => 255 * x) : found.slice(0, 3);
        return [...of, found.length > 3 ? found[3] : 1];
    };
    const light = (rgb) => {
        const [r, g, b] = rgb.map(x => x / 255).map(x => x <= .04045 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4);
        return .2126 * r + .7152 * g + .0722 * b;
    };
    const behind = (node) => {
        for (let at = node; at; at = at.parentElement) {
            const style = getComputedStyle(at);
            if (style.backgroundImage !== 'none') return null;
            const [r, g, b, a] = numbers(style.backgroundColor);
            if (a > .99) return [r, g, b];
            if (a > .01) return null;
        }
        return numbers(getComputedStyle(document.documentElement).backgroundColor).slice(0, 3);
    };
    const found = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const text = walker.currentNode, node = text.parentElement;
        const said = /[\\p{L}\\p{N}]/u.test(text.data) && !node.closest('script, style, option, svg');
        if (!said || !node.checkVisibility()) continue;
        const back = behind(node), style = getComputedStyle(node);
        if (!back) continue;
        const one = light(numbers(style.color).slice(0, 3)), two = light(back);
        const ratio = (Math.max(one, two) + .05) / (Math.min(one, two) + .05);
        const size = parseFloat(style.fontSize), bold = Number(style.fontWeight) >= 700;
        const large = size >= 24 || (size >= 18.66 && bold), least = large ? 3 : 4.5;
        if (ratio < least - .01) found.push([text.data.trim().slice(0, 40), node.className, ratio.toFixed(2)]);
    }
    return found;
})()"""
UNNAMED = """[...document.querySelectorAll('a, button, input:not([type=hidden]), select, [role=region]')].filter(one =>
    one.checkVisibility() && !(one.innerText || '').trim() && !one.ariaLabel && !one.title
    && !(one.labels && one.labels.length)).map(one => one.outerHTML.slice(0, 120))"""


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """SYNTHETIC results with a report."""
    return world.reported(tmp_path_factory.mktemp("browsed"))


@pytest.fixture(scope="module")
def server(shown):
    viewer = Viewer(Given([shown.results]))
    viewer.overview(viewer.given.experiment("synthetic"))
    with served(viewer) as found:
        yield found


@pytest.fixture(scope="module")
def browser(server):
    with Browser(PROGRAM) as found:
        found.visit(f"{server.address}/?token={TOKEN}", loads=2)
        yield found


def type_key(browser: Browser, key: str, code: int, text: str = "") -> None:
    """Press a key so that the browser itself acts on it: Tab, Enter."""
    given = {"key": key, "code": key, "windowsVirtualKeyCode": code, **({"text": text} if text else {})}
    browser.call("Input.dispatchKeyEvent", type="keyDown", **given)
    browser.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=code)


def enter(browser: Browser) -> None:
    """Press Enter and wait for the page that it leads to."""
    browser._events.clear()
    type_key(browser, "Enter", 13, "\r")
    browser.wait_for("Page.loadEventFired")


def follow(browser: Browser, key: str) -> None:
    """Press a key that leads to another page."""
    browser._events.clear()
    browser.press(key)
    browser.wait_for("Page.loadEventFired")


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False), (390, True)])
def test_every_page_has_no_error_fits_and_can_be_read(browser, server, width, dark):
    browser.look(width=width, dark=dark)
    for name, path in PAGES.items():
        browser.visit(server.address + path)
        expected = [] if name != "problem" else ["404 (Not Found)"]
        assert [re.sub(r".*status of ", "", error) for error in browser.errors] == expected, name
        assert all(request.startswith((server.address, "data:")) for request in nonempty(browser.requests)), name
        assert browser.js("document.documentElement.scrollWidth") <= width, name
        assert browser.js(PALE) == [], name
        assert browser.js(UNNAMED) == [], name
        assert browser.js("document.title") != "caught", name
        assert browser.js("document.querySelectorAll('h1').length") == 1, name


@pytest.mark.parametrize("page", ["methods", "rounds"])
def test_numbers_that_are_compared_have_their_names_where_the_heads_of_columns_are_hidden(browser, server, page):
    browser.look(width=390)
    address = PAGES[page].replace("round01", "round03")
    browser.visit(server.address + address)
    sides = browser.js("[...document.querySelectorAll('.filter select')].map(one => one.value)")
    names = browser.js("""[...document.querySelectorAll('.list tbody tr')].map(row =>
        [...row.cells].map(one => getComputedStyle(one, '::before').content).filter(text => text !== 'none'))""")
    assert not browser.js("document.querySelector('.list thead').checkVisibility()")
    for row in nonempty(names):
        assert [name.replace('"', "").replace("\\", "").strip() for name in row][:2] == sides


def test_from_an_experiment_to_a_turn_and_back_by_keyboard_alone(browser, server):
    browser.look(width=1280)
    browser.visit(server.address + PAGES["experiment"])
    for _ in range(30):
        type_key(browser, "Tab", 9)
        if browser.js("document.activeElement.matches('[data-run]')"):
            break
    assert browser.js("document.activeElement.ariaLabel").startswith("flat_grpo, seed 0")
    for key in ("ArrowDown", "ArrowUp", "ArrowRight", "ArrowRight"):
        browser.press(key)
    assert "round 2" in browser.js("document.activeElement.title")
    enter(browser)
    assert browser.js("document.querySelector('h1').innerText") == "flat_grpo, seed 0, round 2"
    browser.press("/")
    assert browser.js("document.activeElement.name") == "text"
    browser.call("Input.insertText", text="fridge")
    enter(browser)
    assert "text=fridge" in browser.js("location.search")
    assert "where=" not in browser.js("location.search")
    browser.press("j")
    browser.press("j")
    second = browser.js("document.activeElement.querySelector('a').innerText")
    follow(browser, "Enter")
    assert browser.js("document.querySelector('h1').innerText") == second
    assert "(2 of " in browser.js("document.querySelector('[aria-current]').innerText")
    follow(browser, "ArrowLeft")
    assert "(1 of " in browser.js("document.querySelector('[aria-current]').innerText")
    browser.press("j")
    assert browser.js("document.activeElement.id") == "t0"
    browser.press("o")
    assert browser.js("document.activeElement.querySelector('details').open")
    follow(browser, "g")
    assert browser.js("document.querySelectorAll('.aligned').length") == 1
    follow(browser, "u")
    assert "text=fridge" in browser.js("location.search") or browser.js("location.pathname").startswith("/round/")
    browser.press("?")
    assert browser.js("document.getElementById('help').open")
    assert browser.errors == []


def test_a_tooltip_has_the_log_probability_of_every_token(browser, server):
    browser.visit(server.address + PAGES["rollout"])
    titles = browser.js("[...document.querySelectorAll('.tokens .response span')].map(one => one.title)")
    assert len(titles) == 9
    assert set(titles) == {"log-probability −0.500, probability 0.607"}


def test_the_curves_grow_while_the_page_is_open(own, monkeypatch):
    monkeypatch.setattr(experiment_page, "REFRESH", 1)
    monkeypatch.setattr(records, "AGAIN", -1e9)
    made, viewer = own
    source = viewer.given.experiment("synthetic")
    with served(viewer) as server, Browser(PROGRAM) as browser:
        while not viewer.overview(source).complete:
            pass
        browser.visit(f"{server.address}/experiment/synthetic?token={TOKEN}", loads=2)
        points = "document.querySelectorAll('.k.done').length"
        before = browser.js(points)
        keys = {"policy": "random_credit", "method": "random_credit", "seed": 1, "round": 3}
        synthetic._turns(made.layout, made.experiment, keys)
        world.record(made.layout, "rollout", keys, **world.sampled(Path(made.layout.path("turns", keys))))
        world.record(made.layout, "update", keys, entropy=1.0)
        grown = f"""new Promise(done => {{
            const look = () => {points} > {before} ? done({points}) : setTimeout(look, 50);
            setTimeout(() => done(-1), 60000); look(); }})"""
        assert browser.js(grown) == before + 1
        assert browser.errors == []


def comes(browser: Browser, condition: str) -> bool:
    """Whether a condition in JavaScript holds within a minute."""
    return browser.js(
        f"""new Promise(done => {{
            const look = () => {condition} ? done(true) : setTimeout(look, 50);
            setTimeout(() => done(false), 60000); look(); }})"""
    )


def test_what_begins_and_what_is_gone_is_said_on_open_pages(own, monkeypatch):
    monkeypatch.setattr(experiment_page, "REFRESH", 1)
    monkeypatch.setattr(viewer_module, "REFRESH", 1)
    monkeypatch.setattr(given_module, "AGAIN", -1.0)
    made, viewer = own
    second = made.results / "second"
    shutil.copytree(made.folder, second)
    line = "document.querySelector('#stale')"
    with served(viewer) as server, Browser(PROGRAM) as browser:
        browser.visit(f"{server.address}/?token={TOKEN}", loads=2)
        assert browser.js("document.querySelectorAll('.entries li').length") == 2
        shutil.copytree(made.folder, made.results / "third")
        assert comes(browser, "document.querySelectorAll('.entries li').length === 3")
        browser.press("j")
        assert browser.js("document.activeElement.innerText").startswith("second")
        shutil.rmtree(made.results / "third")
        assert comes(browser, "document.querySelector('#live .problem')?.innerText.startsWith('third: ')")
        browser.visit(f"{server.address}/experiment/second")
        second.rename(made.results / ".away")
        assert comes(browser, f"{line}?.innerText.includes('is gone; its pages are back when it is')")
        (made.results / ".away").rename(second)
        assert comes(browser, f"!{line}")
        config = second / "config.json"
        whole = config.read_text()
        config.write_text(whole[:40])
        assert comes(browser, f"{line}?.innerText.includes('config.json: not valid JSON')")
        config.write_text(whole)
        assert comes(browser, f"!{line}")
    assert made.folder.is_dir()


def test_a_page_says_when_the_viewer_has_ended(own, monkeypatch):
    monkeypatch.setattr(experiment_page, "REFRESH", 1)
    with Browser(PROGRAM) as browser:
        with served(own[1]) as server:
            browser.visit(f"{server.address}/experiment/synthetic?token={TOKEN}", loads=2)
        assert comes(browser, "document.querySelector('#stale')?.innerText.startsWith('The viewer has ended.')")
        assert browser.js("document.querySelectorAll('[data-run]').length") == 4


@pytest.fixture(scope="module")
def exported(shown, tmp_path_factory):
    """An export of two rounds, and its pages by kind."""
    out = tmp_path_factory.mktemp("exported") / "pages"
    viewer = Viewer(Given([shown.results]))
    export(viewer, out, rounds=[world.ROUND, "random_credit/seed0/round02"], count=3, megabytes=50)
    pages: dict[str, Path] = {}
    for (kind, *_), name in viewer.addresses.names.items():
        pages.setdefault(kind, out / name)
    return pages


@pytest.mark.parametrize(("width", "dark"), [(1280, True), (390, False)])
def test_exported_pages_work_as_files(exported, browser, width, dark):
    browser.look(width=width, dark=dark)
    kinds = {"experiment", "round", "group", "rollout", "pair", "methods", "rounds", "numbers", "number", "file"}
    assert exported.keys() == kinds
    for kind, path in exported.items():
        browser.open(path)
        assert browser.errors == [], kind
        beside = {path.with_name(name).resolve().as_uri() for name in (path.name, *STYLES, *SCRIPTS)}
        assert {*browser.requests} == beside, kind
        assert browser.js("document.documentElement.scrollWidth") <= width, kind
        assert browser.js(PALE) == [], kind
        assert browser.js(UNNAMED) == [], kind
        browser.press("j")
        assert browser.js("document.querySelectorAll('.now').length") >= (kind not in ("experiment", "number")), kind


ROWS = "[...document.querySelectorAll('table.list tbody tr')].map(row => row.querySelector('.what .muted').innerText)"


def test_the_list_of_an_export_sorts_and_filters_as_the_viewer_does(shown, exported, browser):
    source = Given([shown.results]).experiment("synthetic")
    files = source.files(world.ROUND, "flat_grpo")

    def wanted(**given: str) -> list[str]:
        listed = rollouts.listed(files, Filter(**given), method="flat_grpo").rows
        return [one_line(one.rollout) for one in listed]

    def fill(**given: str) -> None:
        for name, value in given.items():
            browser.js(f"document.querySelector('.filter').elements.{name}.value = '{value}'")
        browser.js("document.querySelector('.filter [name=text]').dispatchEvent(new Event('input', {bubbles: true}))")

    browser.look(width=1280)
    browser.open(exported["round"])
    assert browser.js(ROWS) == wanted()
    assert wanted() != wanted(sort="order")
    for sort in nonempty(name for name in rollouts.SORTS if name != "order"):
        for given in ({"sort": sort}, {"sort": f"-{sort}", "outcome": "lost"}):
            fill(**{"outcome": "", **given})
            assert browser.js(ROWS) == wanted(**given), given
    acted = "rollout_id IN (SELECT rollout_id FROM turns WHERE contains(lower(concat_ws(' ', goal, action)), 'fridge'))"
    family = browser.js("document.querySelector('.filter [name=family]').options[1].value")
    for given, same in (
        ({"shortest": "6"}, {"shortest": "6"}),
        ({"longest": "6"}, {"longest": "6"}),
        ({"invalid": "20"}, {"invalid": "20"}),
        ({"family": family}, {"family": family}),
        ({"text": "FRIDGE"}, {"where": acted}),
        ({"text": "game-1#"}, {"where": "rollout_id LIKE 'game-1#%'"}),
    ):
        fill(sort="order", outcome="", **given)
        kept = browser.js(ROWS)
        assert nonempty(kept) == wanted(sort="order", **same), given
        count = f"{len(kept)} of 12 rollouts" if len(kept) < 12 else "12 rollouts"
        assert browser.js("document.querySelector('[data-count]').innerText") == count
        fill(**dict.fromkeys(given, ""))
    assert browser.errors == []


def test_the_list_of_an_export_is_used_by_keyboard_and_its_address_keeps_the_filter(exported, browser):
    browser.look(width=1280)
    browser.open(exported["round"])
    browser.press("/")
    browser.call("Input.insertText", text="game-1")
    type_key(browser, "Enter", 13, "\r")
    kept = browser.js(ROWS)
    assert len(kept) == 4
    browser.js("document.querySelector('[data-sort=turns]').focus()")
    type_key(browser, "Enter", 13, "\r")
    assert browser.js("document.querySelector('[aria-sort]').ariaSort") == "descending"
    assert browser.js("location.hash") == "#text=game-1&sort=turns"
    assert sorted(browser.js(ROWS)) == sorted(kept)
    ordered = browser.js(ROWS)
    browser.js("document.activeElement.blur()")
    browser.press("j")
    browser.press("j")
    assert browser.js("document.activeElement.querySelector('.what .muted').innerText") == ordered[1]
    browser.open(exported["round"], fragment="#text=game-1&sort=turns")
    assert browser.js(ROWS) == ordered
    browser.js("document.querySelector('button[type=reset]').click()")
    assert browser.js(f"new Promise(done => setTimeout(() => done({ROWS}.length), 50))") == 12
    browser.open(exported["numbers"])
    browser.press("/")
    browser.call("Input.insertText", text="random_credit")
    assert browser.js("document.querySelectorAll('tbody tr').length") > 0
    assert browser.js(
        "[...document.querySelectorAll('tbody tr')].every(row => row.innerText.includes('random_credit'))"
    )
    nothing = "document.querySelector('[data-nothing]').checkVisibility()"
    assert not browser.js(nothing)
    browser.call("Input.insertText", text=" nowhere")
    assert browser.js(nothing)
    assert browser.errors == []
