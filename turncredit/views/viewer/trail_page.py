"""The pages from a number of the report to what it was made from, and from a file to the numbers that it is in."""

from __future__ import annotations

from typing import Any

from turncredit.config.stages import artifacts
from turncredit.errors import UserError
from turncredit.views.pages.frame import Place, render
from turncredit.views.viewer import trail
from turncredit.views.viewer.context import Context, Query


def page(context: Context, name: str, query: Query) -> str:
    """A number of the report, an artifact, or all numbers, with what they were made from. Raises UserError."""
    layout = context.given.experiment(name).layout
    places = [*context.above(name), Place("numbers of the report", context.addresses.trail(name))]
    values: dict[str, Any] = dict.fromkeys(("number", "now", "run_link", "words", "names", "listed", "search"))
    values |= {"levels": [], "heading": "", "rows": []}
    notes: list[str] = []
    if "file" in query:
        one = trail.located(layout, query["file"])
        title = query["file"]
        values |= {"levels": trail.lineage(layout, [one]), "heading": "Numbers of the report made from it"}
        values["listed"] = trail.read_from(layout, title)
        if artifacts()[one.artifact].schema is not None:
            try:
                values["names"], values["rows"] = trail.rows_of(one)
            except UserError as error:
                notes.append(str(error))
    elif "table" in query:
        number = trail.number(layout, *(query.get(key, "") for key in trail.NUMBER))
        title = f"{number.row}: {number.heading}"
        files, words = trail.files_of(layout, number.path)
        at = {key: getattr(number, key) for key in trail.NUMBER}
        values |= {"number": number, "levels": trail.lineage(layout, files), "words": words}
        values["value"] = f"{number.text} ({number.interval})" if number.interval else number.text
        values["run_link"] = context.addresses.trail(name, {**at, "run": "1"}) if context.addresses.live else None
        try:
            values["now"] = trail.asked_now(layout, number) if "run" in query else None
        except UserError as error:
            notes.append(str(error))
    else:
        title, search = "Numbers of the report", query.get("text", "").strip()
        every = [one for one in trail.numbers(layout) if search.lower() in _searched(one)]
        values |= {"listed": every, "search": search, "heading": "Numbers"}
        places = places[:-1]
    return render(
        "trail.html.j2",
        context.frame([*places, Place(title, None)], notes),
        title=title,
        live=context.addresses.live,
        file_link=lambda path: context.addresses.trail(name, {"file": path}),
        round_link=lambda round_: context.addresses.round(name, round_),
        number_link=lambda one: context.addresses.trail(name, {key: getattr(one, key) for key in trail.NUMBER}),
        searched=_searched,
        **values,
    )


def _searched(number: trail.Number) -> str:
    """What a number is found by: its names in the report and in the table `summary`."""
    return " ".join((number.title, number.row, number.heading, number.table, number.column)).lower()
