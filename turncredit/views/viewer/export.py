"""`turncredit view --export`: pages as files that need neither server nor network, within a stated size."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from turncredit.data.files import new_folder
from turncredit.errors import UserError
from turncredit.views.pages.frame import asset
from turncredit.views.viewer import export_plan
from turncredit.views.viewer.addresses import SCRIPTS, STYLES
from turncredit.views.viewer.file_addresses import FileAddresses, Key
from turncredit.views.viewer.round_views import patient
from turncredit.views.viewer.sources import Experiments
from turncredit.views.viewer.viewer import Viewer

#: The file that says that a folder was made by this command, which may then replace it.
MARK = "turncredit-view.json"
MEGABYTE = 1_000_000
#: Seconds that the metrics of an experiment may take to be read, and the queries of a page: nobody waits for them.
PATIENCE = 600.0


class Exported(NamedTuple):
    """What was written: the number of pages and of bytes, and the pages that did not fit, by kind."""

    pages: int
    size: int
    left_out: dict[str, int]


@patient(PATIENCE)
def export(
    viewer: Viewer,
    out: Path,
    *,
    rounds: Sequence[str],
    count: int,
    megabytes: float,
    started: Callable[[int], None] | None = None,
) -> Exported:
    """Write pages, and the styles and scripts that they share, into the folder `out`.

    `rounds`: POLICY/seed0/round01 or SOURCE/POLICY/seed0/round01; by default those with ground truth, or the last of
    each run. Of each round at most `count` rollouts get a page, as for credit pages, and so do their groups and pairs;
    then there are pages that compare methods and rounds, and the numbers of the report with their files. `started` is
    told the number of rounds once it is known, before the first page is made. Raises
    UserError for a folder with other files, and if the lists alone are larger than `megabytes`.
    """
    if out.exists() and not (out.is_dir() and (not any(out.iterdir()) or (out / MARK).is_file())):
        raise UserError(f"{out}: exists and was not written by this command; give another folder")
    chosen = export_plan.rounds_of(viewer.found, rounds)
    if started is not None:
        started(len(chosen))
    experiments = [one for one in viewer.found.values() if isinstance(one, Experiments)]
    for one in experiments:
        viewer.overview(one, PATIENCE)
    lists = export_plan.lists(viewer.found, chosen)
    viewer.addresses = addresses = FileAddresses([one.folder.parent for one in experiments])
    for key, stem in (*lists, *export_plan.others(viewer, chosen, count)):
        addresses.add(key, stem)
    with new_folder(out) as folder:
        shared = sum(_write(folder / name, str(asset(name))) for name in (*STYLES, *SCRIPTS))
        size = _written(viewer, addresses, folder, megabytes * MEGABYTE - shared)
        dropped = [key for key in addresses.names if key not in size]
        if len(size) < len(lists):
            raise UserError(
                f"--max-size {megabytes:g}: the lists of rollouts alone are larger; name fewer with --round"
            )
        for key in dropped:
            del addresses.names[key]
        if dropped:  # the others may lead to them
            size = {key: _write(folder / name, _page(viewer, key)) for key, name in addresses.names.items()}
        left_out = dict(Counter(kind for kind, *_ in dropped))
        (folder / MARK).write_text(json.dumps({"pages": len(size), "left_out": left_out}))
    return Exported(len(size), shared + sum(size.values()), left_out)


def _written(viewer: Viewer, addresses: FileAddresses, folder: Path, most: float) -> dict[Key, int]:
    """Write pages, from the first on, as long as they have room; the bytes of each."""
    size: dict[Key, int] = {}
    for key, name in addresses.names.items():
        size[key] = _write(folder / name, _page(viewer, key))
        most -= size[key]
        if most < 0:
            del size[key]
            (folder / name).unlink()
            break
    return size


def _write(path: Path, text: str) -> int:
    return path.write_bytes(text.encode())


def _page(viewer: Viewer, key: Key) -> str:
    kind, *about = key
    make: dict[str, Callable[..., str]] = {
        "home": viewer.home,
        "experiment": viewer.experiment,
        "round": lambda name, round_: viewer.round(name, round_, {}),
        "group": lambda name, round_, group: viewer.group(name, round_, {"group": group}),
        "rollout": lambda name, round_, group, one: viewer.rollout(name, round_, {"group": group, "rollout": one}),
        "pair": lambda name, round_, group, left, right: viewer.pair(
            name, round_, {"group": group, "left": left, "right": right}
        ),
        "methods": lambda name, round_, a, b: viewer.compare(name, {"round": round_, "a": a, "b": b}),
        "rounds": lambda name, a, b: viewer.compare(name, {"a": a, "b": b}),
        "numbers": lambda name: viewer.trail(name, {}),
        "number": lambda name, table, row, column: viewer.trail(name, {"table": table, "row": row, "column": column}),
        "file": lambda name, path: viewer.trail(name, {"file": path}),
    }
    return make[kind](*about)
