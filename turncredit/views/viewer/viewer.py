"""The pages, each made from its artifacts when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from markupsafe import Markup

from turncredit.config import Experiment
from turncredit.config.layout import named_round, of_sft, round_name
from turncredit.config.stages import artifacts
from turncredit.errors import UserError
from turncredit.views.pages import draw
from turncredit.views.pages.build import Pages, columns, render_group, render_pair, render_rollout
from turncredit.views.pages.choose import pairs
from turncredit.views.pages.data import Book
from turncredit.views.pages.formats import one_line, plain
from turncredit.views.pages.frame import Frame, Place, render
from turncredit.views.viewer import activity, compare, rollouts, sources, trail
from turncredit.views.viewer.activity import Activity
from turncredit.views.viewer.addresses import SCRIPTS, STYLES, Addresses
from turncredit.views.viewer.books import Shelf, computable, methods_of, with_credit
from turncredit.views.viewer.charts import Chart, chart
from turncredit.views.viewer.records import Cell, Overview, Records
from turncredit.views.viewer.rollouts import Filter, Listed, Page
from turncredit.views.viewer.sources import Absent, Experiments, Source, experiment_called, method_of
from turncredit.views.viewer.tokens import tokens_of

#: Seconds after which an experiment's page asks for what is new.
REFRESH = 5
Query = Mapping[str, str]


@dataclass
class Viewer:
    """What is looked at, the addresses of its pages, and what Snakemake does (`activity_of` an experiment's folder)."""

    found: dict[str, Source]
    addresses: Addresses = field(default_factory=Addresses)
    activity_of: Callable[[Path], Activity] = lambda _: activity.NOTHING
    _shelf: Shelf = field(default_factory=Shelf)
    _records: dict[str, Records] = field(default_factory=dict)

    # ------------------------------------------------------------------ pages

    def home(self) -> str:
        """The experiments and tables."""
        entries = []
        for name, source in self.found.items():
            if isinstance(source, Experiments):
                entries.append((name, self.addresses.experiment(name), str(source.folder), "experiment"))
            else:
                link = self.addresses.round(name, sources.TABLE)
                entries.append((name, link, str(source.about.turns), "table of turns"))
        return render("home.html.j2", self._frame([Place("turncredit", None)]), entries=entries)

    def experiment(self, name: str) -> str:
        """An experiment: its learning curves, and its runs round by round. Raises UserError."""
        source = experiment_called(self.found, name)
        overview = self.overview(source)
        doing = self.activity_of(source.folder)
        experiment = overview.experiment
        frame = self._frame([*self._home(), Place(name, None)], refresh=REFRESH if self.addresses.live else 0)
        done = sum(cell.state == "done" for cells in overview.runs.values() for cell in cells)
        return render(
            "experiment.html.j2",
            frame,
            name=name,
            facts=self._facts(experiment, overview, doing, done),
            charts=_charts(overview),
            grid=self._grid(name, overview, doing),
            rounds=experiment.rounds,
            failed=doing.failed,
            collapsed=[str(one) for one in overview.collapsed],
            complete=overview.complete,
            compare=self.addresses.compare(name),
            trail=self.addresses.trail(name) if source.layout.path("summary") else None,
        )

    def round(self, name: str, round_: str, query: Query) -> str:
        """The rollouts of a round as a list. Raises UserError."""
        source = sources.source(self.found, name)
        method = query.get("method") or self._own_method(round_)
        files = source.files(round_, method)
        wanted = Filter.of(query)
        number = max(0, int(query["page"]) - 1) if query.get("page", "").isdigit() else 0
        page = rollouts.listed(files, wanted, page=number, method=method, size=self.page_size)
        method = method if method in page.methods else next(iter(page.methods), None)
        link = self._round_links(name, round_, wanted, method)
        title = self._round_words(name, round_)
        return render(
            "round.html.j2",
            self._frame([*self._above(name), Place(title, None)], page.problems),
            title=title,
            rows=[self._row(name, round_, one, page, wanted, method) for one in page.rows],
            page=page,
            wanted=wanted,
            method=method,
            number=number,
            pages=max(1, -(-page.total // self.page_size)),
            sort_link=lambda key: link(sort=f"-{key}" if wanted.sort == key else key, page=""),
            page_link=lambda at: link(page=str(at + 1) if at else ""),
            plain_link=self.addresses.round(name, round_, {"method": method or ""}),
            live=self.addresses.live,
            compare=self._compare_methods(name, round_, page.methods, method),
            around=self._rounds_around(name, round_),
            percent=lambda share: "–" if share is None else f"{100 * share:.0f}%",
            number_of=lambda value: "–" if value is None else plain(value),
            ground_truth="truth" in page.scales,
            stop_word="rollout",
        )

    def group(self, name: str, round_: str, query: Query) -> str:
        """The siblings of a group, side by side. Raises UserError."""
        pages, rollout, _ = self._pages(name, round_, query)
        group = int(pages.book.turns.group_R[rollout])
        places = [*self._above(name), self._round_place(name, round_), Place(f"group {query.get('group', '')}", None)]
        pages = replace(pages, frame=replace(pages.frame, places=places))
        return render_group(pages, group, {"prev": None, "next": None})

    def rollout(self, name: str, round_: str, query: Query) -> str:
        """One rollout turn by turn. Raises UserError."""
        also = [one for one in query.get("also", "").split(",") if one]
        pages, rollout, experiment = self._pages(name, round_, query, also)
        group, called = pages.book.ids_R[rollout]
        wanted = Filter.of(query)
        files = sources.source(self.found, name).files(round_, query.get("method") or self._own_method(round_))
        chosen = self.addresses.chosen(name, round_)
        near = (
            rollouts.neighbours(files, wanted, group, called, query.get("method"))
            if chosen is None
            else rollouts.among(chosen, (group, called))
        )
        keep = {**wanted.query, "also": ",".join(also), "method": query.get("method", "")}

        def link(at: tuple[str, str] | None) -> str | None:
            return self.addresses.rollout(name, round_, at[0], at[1], keep) if at else None

        first = int(pages.book.turns.group_R[rollout])
        links = {"prev": link(near.before) if near else None, "next": link(near.after) if near else None}
        where = f"{called} ({near.place} of {near.total})" if near else called
        places = [
            *self._above(name),
            self._round_place(name, round_, keep),
            Place(f"group {group}", pages.group_files.get(first)),
            Place(where, None),
        ]
        pages = replace(pages, frame=replace(pages.frame, places=places))
        return render_rollout(
            pages,
            rollout,
            links,
            template="view_rollout.html.j2",
            tokens=tokens_of(pages.book, rollout, self._tokenizer(name, experiment, round_)),
            add=self._more_methods(name, round_, pages.book, rollout, keep, also),
        )

    def pair(self, name: str, round_: str, query: Query) -> str:
        """Two siblings side by side, the failure on the left. Raises UserError."""
        pages, left, _ = self._pages(name, round_, {**query, "rollout": query.get("left", "")})
        right = _numbered(pages.book, query.get("group", ""), query.get("right", ""))
        places = [
            *self._above(name),
            self._round_place(name, round_),
            Place(f"group {query.get('group', '')}", pages.group_files.get(int(pages.book.turns.group_R[left]))),
            Place("two rollouts", None),
        ]
        pages = replace(pages, frame=replace(pages.frame, places=places))
        return render_pair(pages, (left, right), {"prev": None, "next": None})

    def compare(self, name: str, query: Query) -> str:
        """Two methods on the rollouts of a round, or two rounds of runs. Raises UserError."""
        return self._methods(name, query) if "round" in query else self._rounds(name, query)

    def trail(self, name: str, query: Query) -> str:
        """A number of the report, an artifact, or all numbers, with what they were made from. Raises UserError."""
        layout = experiment_called(self.found, name).layout
        places = [*self._above(name), Place("numbers of the report", self.addresses.trail(name))]
        values: dict[str, Any] = dict.fromkeys(("number", "now", "run_link", "words", "names", "listed", "search"))
        values |= {"levels": [], "heading": "", "rows": []}
        if "file" in query:
            one = trail.located(layout, query["file"])
            title = query["file"]
            values |= {"levels": trail.lineage(layout, [one]), "heading": "Numbers of the report made from it"}
            values["listed"] = trail.read_from(layout, title)
            if artifacts()[one.artifact].schema is not None:
                values["names"], values["rows"] = trail.rows_of(one)
        elif "table" in query:
            number = trail.number(layout, *(query.get(key, "") for key in trail.NUMBER))
            title = f"{number.row}: {number.column}"
            files, words = trail.files_of(layout, number.path)
            at = {key: getattr(number, key) for key in trail.NUMBER}
            values |= {"number": number, "levels": trail.lineage(layout, files), "words": words}
            values["value"] = _with_interval(number)
            values["run_link"] = self.addresses.trail(name, {**at, "run": "1"}) if self.addresses.live else None
            values["now"] = trail.asked_now(layout, number.sql) if "run" in query else None
        else:
            title, search = "Numbers of the report", query.get("text", "").strip()
            every = [one for one in trail.numbers(layout) if search.lower() in " ".join(one[:3]).lower()]
            values |= {"listed": every, "search": search, "heading": "Numbers"}
            places = places[:-1]
        return render(
            "trail.html.j2",
            self._frame([*places, Place(title, None)]),
            title=title,
            file_link=lambda path: self.addresses.trail(name, {"file": path}),
            round_link=lambda round_: self.addresses.round(name, round_),
            number_link=lambda one: self.addresses.trail(name, {key: getattr(one, key) for key in trail.NUMBER}),
            text_of=lambda value: "–" if value is None else f"{value:.4g}".replace("-", "−"),
            **values,
        )

    def problem(self, line: str, title: str = "This page cannot be shown") -> str:
        """A page that says what is wrong."""
        return render(
            "problem.html.j2", self._frame(self._home() or [Place("turncredit", None)]), title=title, line=line
        )

    # ------------------------------------------------------------------ pieces

    @property
    def page_size(self) -> int:
        """Rollouts on a page of the list; files cannot be asked for the next one."""
        return rollouts.PAGE if self.addresses.live else 10_000

    def overview(self, source: Experiments) -> Overview:
        """How far an experiment's runs are."""
        return self._records.setdefault(source.name, Records(source)).overview()

    def _methods(self, name: str, query: Query) -> str:
        round_ = query["round"]
        files = sources.source(self.found, name).files(round_)
        names = rollouts.credited(files)
        a, b = (query.get(key) or next(iter(names[at:]), "") for at, key in enumerate("ab"))
        found = compare.methods(files, a, b)
        link = self.addresses.rollout
        return self._compared(
            name,
            f"{a} and {b} on the rollouts of {self._round_words(name, round_)}",
            [self._round_place(name, round_)],
            found.problems,
            {"a": a, "b": b, "round": round_, "choices": names, "found": found, "truth": files.branches is not None},
            turn_link=lambda row: f"{link(name, round_, row.group, row.rollout, {'method': a})}#t{row.turn}",
        )

    def _rounds(self, name: str, query: Query) -> str:
        source = experiment_called(self.found, name)
        runs = self.overview(source).runs
        turns_of = {
            round_name(method, seed, cell.round): cell.turns
            for (method, seed), cells in runs.items()
            for cell in cells
            if cell.state != "missing"
        }
        options = list(turns_of)
        if len(options) < 2:
            raise Absent(f"{name}: there are not yet two rounds to compare")
        a, b = (query.get(key) or usual for key, usual in zip("ab", _two_of(options), strict=True))
        for one in (a, b):
            if one not in turns_of:
                raise Absent(f"{one}: not a round of a run that has rollouts")
        tasks, common = compare.rounds(source.files(turns_of[a]), source.files(turns_of[b]))
        one, other = named_round(a), named_round(b)
        games = compare.evaluated(source.layout, one, other) if one and other else None
        differ = games.differ if games else []
        better = [sum(row[2] > row[3] for row in differ), sum(row[2] < row[3] for row in differ)]
        return self._compared(
            name,
            f"{a} and {b}",
            [],
            [],
            {"a": a, "b": b, "options": options, "tasks": tasks, "common": common, "games": games, "better": better},
            group_link=lambda one, group: self.addresses.group(name, turns_of[one], group),
        )

    def _compared(
        self, name: str, title: str, places: list[Place], notes: list[str], values: dict[str, Any], **links: Any
    ) -> str:
        given = {"choices": None, "found": None, "tasks": None, "games": None, "truth": False, "options": []}
        experiment = isinstance(self.found.get(name), Experiments)
        return render(
            "compare.html.j2",
            self._frame([*self._above(name), *places, Place("compare", None)], notes),
            title=title,
            live=self.addresses.live,
            other_link=self.addresses.compare(name) if experiment and "round" in values else None,
            other_words="two rounds instead",
            **{**given, "round": "", **values},
            **{"turn_link": None, "group_link": None, **links},
        )

    def _frame(self, places: list[Place], notes: list[str] | None = None, refresh: int = 0) -> Frame:
        return Frame(STYLES, SCRIPTS, self.addresses.asset, places, notes or [], refresh)

    def _home(self) -> list[Place]:
        return [Place("turncredit", self.addresses.home())] if len(self.found) > 1 else []

    def _above(self, name: str) -> list[Place]:
        """The way to a source's rounds; that of a table is the table's own page."""
        if isinstance(self.found.get(name), Experiments):
            return [*self._home(), Place(name, self.addresses.experiment(name))]
        return self._home()

    def _round_words(self, name: str, round_: str) -> str:
        if round_ == sources.TABLE:
            return name
        policy, seed, number = round_.split("/")
        seed, number = seed.removeprefix("seed"), f"{int(number.removeprefix('round'))}"
        if of_sft(policy):
            return f"{policy.partition('-')[0]} policy, seed {seed}, round {number}"
        return f"{policy}, seed {seed}, round {number}"

    def _round_place(self, name: str, round_: str, query: Query | None = None) -> Place:
        return Place(self._round_words(name, round_), self.addresses.round(name, round_, query))

    def _own_method(self, round_: str) -> str | None:
        return None if round_ == sources.TABLE else method_of(round_)

    def _facts(self, experiment: Experiment, overview: Overview, doing: Activity, done: int) -> list[str]:
        total = sum(len(cells) for cells in overview.runs.values())
        facts = [f"{done:,} of {total:,} rounds done", f"{len(experiment.trained())} methods"]
        facts += [f"{len(experiment.seeds)} seeds", f"{experiment.rounds} rounds"]
        running = sum(work.state == "running" for work in doing.works)
        facts += [f"{running} running"] if running else []
        facts += [f"{len(doing.failed)} failed"] if doing.failed else []
        return facts

    def _grid(self, name: str, overview: Overview, doing: Activity) -> list[dict[str, Any]]:
        """A row for each run: its name, and its rounds as links."""
        at_work = {(work.who, work.seed, work.round): work for work in doing.works}
        failed = {(one.who, one.seed, one.round) for one in doing.failed}
        collapsed = {(one.method, one.seed, one.round) for one in overview.collapsed}
        rows = []
        for (method, seed), cells in overview.runs.items():
            texts, behind = [], False  # a job of several rounds is at the first of them that is not done
            for cell in cells:
                at = (method, seed, cell.round)
                work = at_work.get(at) or at_work.get((cell.turns.split("/")[0], seed, cell.round))
                doing_it = "queued" if behind else work.state if work else ""
                behind = behind or bool(work and cell.state != "done")
                state = "failed" if at in failed else doing_it if work else cell.state
                texts.append(self._cell(name, method, cell, state, at in collapsed, work.stage if work else ""))
            known = [cell for cell in cells if cell.evaluated is not None]
            rows.append(
                {
                    "method": method,
                    "seed": seed,
                    "again": bool(rows) and rows[-1]["method"] == method,
                    "done": sum(cell.state == "done" for cell in cells),
                    "success": f"{100 * (known[-1].evaluated or 0):.0f}%" if known else "",
                    "cells": Markup("").join(texts),
                }
            )
        return rows

    def _cell(self, name: str, method: str, cell: Cell, state: str, collapsed: bool, stage: str) -> Markup:
        words = [f"round {cell.round}: {stage + ' ' if stage else ''}{state}"]
        words += [f"training {100 * cell.training:.0f}%"] if cell.training is not None else []
        words += [f"held out {100 * cell.evaluated:.0f}%"] if cell.evaluated is not None else []
        words += ["ground truth"] if cell.branched else []
        words += ["collapsed"] if collapsed else []
        classes = " ".join([state, *(["truth"] if cell.branched else []), *(["collapsed"] if collapsed else [])])
        level = cell.evaluated if cell.evaluated is not None else cell.training
        share = f"{level:.2f}" if level is not None else "0"
        address = self.addresses.round(name, cell.turns, {"method": method}) if cell.state != "missing" else None
        if address is None:
            return Markup('<span class="k {}" title="{}"></span>').format(classes, ", ".join(words))
        return Markup('<a class="k {}" href="{}" title="{}" style="--s:{}"></a>').format(
            classes, address, ", ".join(words), share
        )

    def _round_links(self, name: str, round_: str, wanted: Filter, method: str | None) -> Callable[..., str | None]:
        def link(**changes: str) -> str | None:
            return self.addresses.round(name, round_, {**wanted.query, "method": method or "", **changes})

        return link

    def _row(
        self, name: str, round_: str, one: Listed, page: Page, wanted: Filter, method: str | None
    ) -> dict[str, Any]:
        longest = max(other.turns for other in page.rows)
        pictures: dict[str, Markup | None] = {"credit": None, "truth": None}
        for what, x_T in (("credit", one.credit), ("truth", one.truth)):
            if x_T is not None:
                label = f"credit by {method}" if what == "credit" else "A*"
                pictures[what] = draw.strip(x_T, page.scales[what], width=longest, label=f"{label} of each turn")
        query = {**wanted.query, "method": method or ""}
        return {
            "one": one,
            "goal": one_line(one.goal),
            "name": one_line(one.rollout),
            "link": self.addresses.rollout(name, round_, one.group, one.rollout, query),
            "group": self.addresses.group(name, round_, one.group),
            "pictures": pictures,
        }

    def _compare_methods(self, name: str, round_: str, methods: list[str], method: str | None) -> str | None:
        others = [one for one in methods if one != method]
        if not others or method is None:
            return None
        return self.addresses.compare(name, {"round": round_, "a": method, "b": others[0]})

    def _rounds_around(self, name: str, round_: str) -> dict[str, str | None]:
        """The round before and the one after, of the same run."""
        found: dict[str, str | None] = {"prev": None, "next": None}
        if round_ == sources.TABLE:
            return found
        policy, seed, number = round_.split("/")
        source = sources.source(self.found, name)
        for rel, step in (("prev", -1), ("next", 1)):
            other = f"{policy}/{seed}/round{int(number.removeprefix('round')) + step:02d}"
            with suppress(UserError):
                source.files(other)
                found[rel] = self.addresses.round(name, other)
        return found

    def _pages(
        self, name: str, round_: str, query: Query, also: list[str] | None = None
    ) -> tuple[Pages, int, Experiment | None]:
        """What the pages of a rollout (or the first of a group) have, its number in the book, and the experiment."""
        source = sources.source(self.found, name)
        method = query.get("method") or self._own_method(round_)
        group = query.get("group", "")
        opened = self._shelf.open(source.files(round_, method), group)
        book, problems = with_credit(opened.book, also or [])
        problems = [*opened.problems, *problems]
        if opened.part:
            problems.append(
                f"This table is large, so only the group {group} was read: colours and methods that compare with the "
                "whole batch refer to this group."
            )
        rollout = _numbered(book, group, query.get("rollout"))
        experiment = source.config() if isinstance(source, Experiments) else None
        ranks, order, off = columns(book, also[0] if also else method)
        siblings = book.siblings(rollout).tolist()
        keep = {**Filter.of(query).query, "method": query.get("method", ""), "also": ",".join(also or [])}
        address = self.addresses
        pages = Pages(
            book=book,
            order=order,
            off=off,
            methods=methods_of(book, experiment),
            ranks=ranks,
            rollout_files=_given(
                {r: address.rollout(name, round_, book.ids_R[r][0], book.ids_R[r][1], keep) for r in siblings}
            ),
            group_files=_given({int(book.turns.group_R[rollout]): address.group(name, round_, group)}),
            pair_files=_given(
                {
                    (a, b): address.pair(name, round_, group, book.ids_R[a][1], book.ids_R[b][1])
                    for a, b in pairs(book, siblings if query.get("rollout") is None else [rollout])
                }
            ),
            index=address.round(name, round_, {**Filter.of(query).query, "method": query.get("method", "")}),
            frame=self._frame([], problems),
        )
        return pages, rollout, experiment

    def _more_methods(
        self, name: str, round_: str, book: Book, rollout: int, keep: Query, also: list[str]
    ) -> dict[str, Any] | None:
        """The methods whose credit can be computed here, with what a form has to send to see one."""
        if not self.addresses.live:
            return None
        group, called = book.ids_R[rollout]
        given = {key: value for key, value in keep.items() if value and key != "also"}
        return {
            "methods": computable(book),
            "hidden": {"group": group, "rollout": called, **given},
            "also": also,
            "action": (self.addresses.rollout(name, round_, "", "") or "").partition("?")[0],
        }

    def _tokenizer(self, name: str, experiment: Experiment | None, round_: str) -> Path | None:
        source = self.found[name]
        if experiment is None or not isinstance(source, Experiments):
            return None
        start = experiment.start_of(round_.partition("/")[0])
        return next((one.path for one in source.layout.find("base", warm_start=start)), None)


def _given(links: Mapping[Any, str | None]) -> dict[Any, str]:
    return {key: link for key, link in links.items() if link is not None}


def _numbered(book: Book, group: str, rollout: str | None) -> int:
    """The number of a rollout in the book, or of the first of its group. Raises Absent."""
    for number, ids in enumerate(book.ids_R):
        if ids[0] == group and rollout in (None, ids[1]):
            return number
    what = f"rollout {rollout} in group {group}" if rollout else f"group {group}"
    raise Absent(f"{book.turns.where}: there is no {what}")


def _two_of(rounds: list[str]) -> tuple[str, str]:
    """The rounds that are compared at first: two methods in the last round that both have, where tasks are the same."""
    first_of: dict[str, dict[str, str]] = {}  # round -> method -> the name of its first seed's
    for one in rounds:
        first_of.setdefault(one.rpartition("/")[2], {}).setdefault(one.partition("/")[0], one)
    both = [list(of.values()) for _, of in sorted(first_of.items(), key=lambda item: (len(item[0]), item[0]))]
    one, other, *_ = next((names for names in reversed(both) if len(names) > 1), [rounds[0], rounds[-1]])
    return one, other


def _with_interval(number: trail.Number) -> str:
    """A number with its interval and unit, in words."""
    value = "none" if number.value is None else f"{number.value:.4g}"
    ends = "" if number.low is None or number.high is None else f" ({number.low:.4g} to {number.high:.4g})"
    return f"{value}{ends} {number.unit}".replace("-", "−")


def _charts(overview: Overview) -> list[Chart]:
    """Success on held-out games and in training, by round."""
    found = []
    for title, what in (("Success on held-out games", "evaluated"), ("Success of training rollouts", "training")):
        points: dict[str, dict[int, list[float]]] = {}
        for (method, _), cells in overview.runs.items():
            for cell in cells:
                if (value := getattr(cell, what)) is not None:
                    points.setdefault(method, {}).setdefault(cell.round, []).append(value)
        methods = list(dict.fromkeys(method for method, _ in overview.runs))
        marks = overview.starts if what == "evaluated" else {}
        drawn = chart(title, points, overview.experiment.rounds, marks, methods)
        found += [drawn] if drawn else []
    return found
