"""A round's page: its rollouts as a list that sorts and filters."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from markupsafe import Markup

from turncredit.errors import UserError
from turncredit.views.pages import draw
from turncredit.views.pages.formats import one_line, plain
from turncredit.views.pages.frame import Place, render
from turncredit.views.viewer import rollouts, sources
from turncredit.views.viewer.context import Context, Query
from turncredit.views.viewer.rollouts import Filter, Listed, Page

#: How the columns of the list are set.
KINDS = {"turns": "num", "invalid": "num", "return": "num", "credit": "strips", "truth": "strips"}


def page(context: Context, name: str, round_: str, query: Query) -> str:
    """The rollouts of a round as a list. Raises UserError."""
    source = context.given.source(name)
    method = query.get("method") or context.own_method(round_)
    files = source.files(round_, method)
    wanted = Filter.of(query)
    live = context.addresses.live
    size = rollouts.PAGE if live else rollouts.ALL
    number = int(query["page"]) - 1 if re.fullmatch(r"[1-9]\d{0,8}", query.get("page", "")) else 0
    page = rollouts.listed(files, wanted, page=number, method=method, size=size)
    if not page.rows and page.total:  # the list has become shorter
        number = (page.total - 1) // size
        page = rollouts.listed(files, wanted, page=number, method=method, size=size)
    method = method if method in page.methods else next(iter(page.methods), None)
    texts = None if live else rollouts.texts(files)
    link = _round_links(context, name, round_, wanted, method)
    title = context.round_words(name, round_)
    longest = max((one.turns for one in page.rows), default=0)
    return render(
        "round.html.j2",
        context.frame([*context.above(name), Place(title, None)], page.problems),
        title=title,
        columns=_columns(page, method),
        kinds=KINDS,
        sorts=rollouts.SORTS,
        rows=[
            {
                **_row(context, name, round_, one, page, wanted, method, longest),
                "data": _data(one, texts) if texts else {},
            }
            for one in page.rows
        ],
        page=page,
        wanted=wanted,
        method=method,
        number=number,
        pages=max(1, -(-page.total // size)),
        sort_link=lambda key: link(sort=f"-{key}" if page.sort == key else key, page=""),
        truth_link=link(sort="truth", page=""),
        page_link=lambda at: link(page=str(at + 1) if at else ""),
        plain_link=context.addresses.round(name, round_, {"method": method or ""}),
        live=live,
        compare=_compare_methods(context, name, round_, page.methods, method),
        around=_rounds_around(context, name, round_),
        percent=lambda share: "–" if share is None else f"{100 * share:.0f}%",
        number_of=lambda value: "–" if value is None else plain(value),
        ground_truth="truth" in page.scales,
        stop_word="rollout",
    )


def _columns(page: Page, method: str | None) -> dict[str, str]:
    """The columns of the list: what each is sorted by, and its heading."""
    return {
        "success": "success",
        "rollout": "rollout",
        **({"family": "family"} if page.families else {}),
        "turns": "turns",
        **({"invalid": "invalid"} if "valid" in page.columns else {}),
        "return": "return",
        **({"credit": f"credit of {method}"} if method else {}),
        **({"truth": "A*"} if "truth" in page.scales else {}),
    }


def _data(one: Listed, texts: Mapping[tuple[str, str], str]) -> dict[str, str | int | float]:
    """What a script sorts and filters a rollout by, where no server does; empty where there is none."""
    values: dict[str, str | int | float | None] = {
        "order": one.order,
        "success": int(one.success),
        "rollout": f"{one.group} {one.rollout}",
        "family": one.family,
        "turns": one.turns,
        "invalid": one.invalid,
        "return": one.result,
        "credit": _largest(one.credit),
        "truth": _largest(one.truth),
        "text": f"{one.goal} {one.rollout} {texts.get((one.group, one.rollout), '')}".lower(),
    }
    return {name: "" if value is None else value for name, value in values.items()}


def _largest(x_T: np.ndarray | None) -> float | None:
    """The largest size of a rollout's credit; None without any."""
    if x_T is None or np.isnan(x_T).all():
        return None
    return float(np.nanmax(np.abs(x_T)))


def _round_links(
    context: Context, name: str, round_: str, wanted: Filter, method: str | None
) -> Callable[..., str | None]:
    def link(**changes: str) -> str | None:
        return context.addresses.round(name, round_, {**wanted.query, "method": method or "", **changes})

    return link


def _row(
    context: Context, name: str, round_: str, one: Listed, page: Page, wanted: Filter, method: str | None, longest: int
) -> dict[str, Any]:
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
        "link": context.addresses.rollout(name, round_, one.group, one.rollout, query),
        "group": context.addresses.group(name, round_, one.group),
        "pictures": pictures,
    }


def _compare_methods(context: Context, name: str, round_: str, methods: list[str], method: str | None) -> str | None:
    others = [one for one in methods if one != method]
    if not others or method is None:
        return None
    return context.addresses.compare(name, {"round": round_, "a": method, "b": others[0]})


def _rounds_around(context: Context, name: str, round_: str) -> dict[str, str | None]:
    """The round before and the one after, of the same run."""
    found: dict[str, str | None] = {"prev": None, "next": None}
    if round_ == sources.TABLE:
        return found
    policy, seed, number = round_.split("/")
    source = context.given.source(name)
    for rel, step in (("prev", -1), ("next", 1)):
        other = f"{policy}/{seed}/round{int(number.removeprefix('round')) + step:02d}"
        with suppress(UserError):
            source.files(other)
            found[rel] = context.addresses.round(name, other)
    return found
