"""The pictures of docs/view.md, from an experiment's results.

python -m tests.viewer.pictures results/household docs/images [--round sft-t64k8T1.0/seed0/round01]
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tests.pages.browser import Browser, find
from tests.viewer.serving import TOKEN, served
from turncredit.cli.view import activity_of
from turncredit.credit.parts.baselines import BASELINE, NOT_COMPARED
from turncredit.views.viewer import rollouts, trail
from turncredit.views.viewer.addresses import Addresses
from turncredit.views.viewer.given import Given
from turncredit.views.viewer.rollouts import Filter
from turncredit.views.viewer.viewer import Viewer

WIDTH, HEIGHT = 1280, 860


def main(
    results: Annotated[Path, typer.Argument(help="An experiment's folder.")],
    out: Annotated[Path, typer.Argument(help="Where the pictures go.")],
    round_: Annotated[str | None, typer.Option("--round", help="By default the first with ground truth.")] = None,
) -> None:
    """Write view_PAGE.png for each page of the viewer."""
    viewer = Viewer(Given([results]), activity_of=activity_of)
    name = results.resolve().name
    source = viewer.given.experiment(name)
    viewer.overview(source, wait=60)
    if round_ is None:
        keys = next(source.layout.find("branches")).keys
        round_ = f"{keys['policy']}/seed{keys['seed']}/round{int(keys['round']):02d}"
    files = source.files(round_)
    won = rollouts.listed(files, Filter(sort="truth", outcome="won")).rows
    lost = {one.group: one.rollout for one in rollouts.listed(files, Filter(outcome="lost"), size=rollouts.ALL).rows}
    first = next((one for one in won if one.group in lost), won[0])
    methods = rollouts.credited(files)
    compared = next(one for one in methods if one not in NOT_COMPARED)
    number = next(
        one
        for one in trail.numbers(source.layout)
        if (one.row, one.column) == (compared, "minus_baseline") and trail.files_of(source.layout, one.path)[0]
    )
    address = Addresses()
    pages = {
        "experiment": address.experiment(name),
        "round": address.round(name, round_, {"sort": "truth", "text": "microwave"}),
        "rollout": address.rollout(name, round_, first.group, first.rollout),
        "group": address.group(name, round_, first.group),
        "pair": address.pair(name, round_, first.group, lost.get(first.group, first.rollout), first.rollout),
        "compare": address.compare(name, {"round": round_, "a": BASELINE, "b": compared}),
        "trail": address.trail(name, {key: getattr(number, key) for key in trail.NUMBER} | {"run": "1"}),
    }
    program = find()
    if program is None:
        raise SystemExit("no Chromium here (apt install chromium, or set CHROMIUM)")
    with served(viewer) as server, Browser(program) as browser:
        browser.look(width=WIDTH, height=HEIGHT)
        browser.visit(f"{server.address}/?token={TOKEN}", loads=2)
        for page, path in pages.items():
            browser.visit(f"{server.address}{path}")
            browser.picture(out / f"view_{page}.png", whole=False)
            print(out / f"view_{page}.png")


if __name__ == "__main__":
    typer.run(main)
