"""What is around a page: its head, style and script, the list of keys, the footer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from turncredit.data import provenance

#: The packages whose folders `templates` have the pages: the credit pages, and those of the viewer around them.
PACKAGES = ("turncredit.views.pages", "turncredit.views.viewer")


class Place(NamedTuple):
    """A step on the way from the viewer's first page to this one; the last one has no address."""

    words: str
    address: str | None


@dataclass(frozen=True)
class Frame:
    """What is around a page.

    styles, scripts   the names of the style sheets and scripts
    address           from such a name to its address; without it, they are written into the page, which then needs no
                      other file
    places            the way to this page from the viewer's first one; a page of its own has none
    notes             lines on what could not be read
    refresh           seconds after which the page's live part is fetched again; 0: it does not change
    policy            the page's content security policy; empty where a server sends it
    """

    styles: Sequence[str] = ("style.css",)
    scripts: Sequence[str] = ("script.js",)
    address: Callable[[str], str] | None = None
    places: Sequence[Place] = ()
    notes: Sequence[str] = ()
    refresh: int = 0
    policy: str = (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


#: Around a page that is a file of its own.
ON_ITS_OWN = Frame()


def render(template: str, frame: Frame, **values: Any) -> str:
    """The page `template` in its frame. Texts in `values` are escaped, unless they are `Markup`."""
    return (
        environment()
        .get_template(template)
        .render(
            frame=frame,
            style=Markup("\n").join(map(asset, frame.styles)),
            script=Markup("\n").join(map(asset, frame.scripts)),
            code=provenance.code_version(),
            **{"methods": [], "off": [], "sources": [], **values},
        )
    )


@cache
def asset(name: str) -> Markup:
    """The text of a style sheet or a script, as it stands in `templates`."""
    found = (files(package) / "templates" / name for package in PACKAGES)
    return Markup(next(path for path in found if path.is_file()).read_text(encoding="utf-8"))


@cache
def environment() -> Environment:
    """The templates. Whatever is put into them is escaped, and a value that is missing is an error."""
    return Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in PACKAGES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
