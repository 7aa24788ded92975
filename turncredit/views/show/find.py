"""The files of the turns to show: a Parquet file, a round's folder, or the name of a round in any experiment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from turncredit.config.layout import Layout, named_round, of_sft, round_name, sampled_by
from turncredit.errors import UserError, nearest
from turncredit.views.experiments import experiment_of, layouts_below, read_config, run_rounds

#: keys of an artifact that is there
Keys = dict[str, str | int]


@dataclass(frozen=True)
class Files:
    """The turns to show, and the files about them.

    They are credits, the run's own method first; labels; ground truth; the outputs of credit models.
    """

    turns: Path
    credits: list[Path]
    labels: list[Path]
    branches: Path | None
    values: list[Path] = field(default_factory=list)


def find(what: str, results: Path, make_layout: Callable[[Path], Layout] = Layout) -> Files:
    """Resolve `what`: a Parquet file, a round's folder, or METHOD/seedK/roundRR in any experiment below `results`.

    A name must be that of a round that its experiment's layout (`make_layout`) sees, and of one experiment (else
    EXPERIMENT/METHOD/seedK/roundRR); a path may be that of any round. Raises UserError with the rounds that it could
    be, or the nearest one that exists.
    """
    path = Path(what)
    if path.is_file() or path.is_dir():
        return _at(path, make_layout)
    layouts = layouts_below(results, make_layout) if results.is_dir() else []
    matches = [
        (layout, keys)
        for layout in layouts
        if (keys := _called(layout, what.removeprefix(f"{layout.root.name}/"))) is not None
    ]
    if len(matches) > 1:
        names = ", ".join(f"{layout.root.name}/{what}" for layout, _ in matches)
        raise UserError(f"{what}: several experiments below {results} have this round; name one of {names}")
    if matches:
        return of_round(*matches[0])
    names = [name for layout in layouts for name in _rounds(layout)]
    if not names:
        none = f"no experiment in {results} has a round yet" if layouts else f"there is no experiment in {results}"
        raise UserError(f"{what}: neither a file nor a folder, and {none}")
    hint = nearest(what, names) or f"; there are {len(names)} rounds in {results}, such as flat_grpo/seed0/round01"
    raise UserError(f"{what}: neither a file, nor a folder, nor a run's round{hint}")


def _called(layout: Layout, name: str) -> Keys | None:
    """The keys of the round called METHOD/seedK/roundRR, or POLICY/... for turns of the SFT policy."""
    parts = named_round(name)
    if parts is None:
        return None
    who, seed, round_ = parts
    policy = who if of_sft(who) else sampled_by(read_config(layout.root), who, round_)
    keys: Keys = {"policy": policy, "method": who, "seed": seed, "round": round_}
    return keys if _has(layout, keys) else None


def _has(layout: Layout, keys: Keys) -> bool:
    """Whether a layout has this round. Round 1's turns are shared: they belong to every method that credited them."""
    of = {name: keys[name] for name in ("policy", "seed", "round")}
    method = keys.get("method", keys["policy"])
    files = layout.find("turns", **of) if method == keys["policy"] else layout.find("credits", **of, method=method)
    return next(files, None) is not None


def _rounds(layout: Layout) -> Iterator[str]:
    """The names of an experiment's rounds."""
    for row in run_rounds(layout, read_config(layout.root)):
        yield round_name(row.method, row.seed, row.round)
    for located in layout.find("turns", round=1):
        yield round_name(str(located.keys["policy"]), int(located.keys["seed"]), 1)


def _at(path: Path, make_layout: Callable[[Path], Layout]) -> Files:
    """The turns of a file or a folder, with the other tables about them in an experiment's folder."""
    root = experiment_of(path)
    if root is not None:
        layout, experiment = make_layout(root), read_config(root)
        located = layout.locate(path)
        keys: Keys | None = located.keys if located and located.artifact == "turns" else layout.locate_round(path)
        if keys is not None:
            if "policy" not in keys:
                method, round_ = str(keys["method"]), int(keys["round"])
                keys = {**keys, "policy": sampled_by(experiment, method, round_)}
            # A path that the configuration knows nothing of was meant all the same.
            return of_round(layout if _has(layout, keys) else Layout(root), keys)
    if path.is_dir():
        raise UserError(f"{path}: not the folder of a round; give a Parquet file or the round of a run")
    return Files(path, [], [], None)


def of_round(layout: Layout, keys: Keys) -> Files:
    """The turns of a round and the files about them; `keys` are the turns' own and, for a run's round, its method."""
    turns = Path(layout.path("turns", keys))
    if not turns.exists():
        raise UserError(f"{turns}: no turns of this round yet; give a Parquet file or another round")
    of = {name: keys[name] for name in ("policy", "seed", "round")}
    own = keys.get("method", keys["policy"])
    credits = sorted(layout.find("credits", **of), key=lambda file: (file.keys["method"] != own, str(file.path)))
    branches = next(layout.find("branches", **of), None)
    return Files(
        turns,
        [file.path for file in credits],
        [file.path for file in layout.find("labels", **of)],
        branches.path if branches else None,
        [file.path for file in layout.find("values", **of)],
    )
