"""The experiments in a results folder: their configurations, their runs, and which run needs which job."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from turncredit.config import Experiment, from_mapping
from turncredit.config.layout import (
    IMPLICIT,
    JUDGE_CACHE,
    Layout,
    artifact,
    continuations_name,
    forks_name,
    of_sft,
    sampled_by,
)
from turncredit.config.loading import AUDIT, SHARED
from turncredit.config.stages import stages_in
from turncredit.config.warm_starts import is_start
from turncredit.credit.parts.configured import continuations_of, forks_of
from turncredit.errors import UserError


def experiment_folders(results: str | Path, *, or_cache: bool = False) -> list[Path]:
    """The experiments' folders: `results` itself if it is one, otherwise the ones directly below it.

    `or_cache`: none are needed where the folder has the judge's cache, of labels that were made without an experiment.
    Raises UserError if the folder does not exist, or contains no experiment.
    """
    results = Path(results)
    if not results.is_dir():
        raise UserError(f"{results}: no such folder; run an experiment first, or give the folder of its results")
    name = artifact("config").pattern
    folders = [results] if (results / name).exists() else sorted(path.parent for path in results.glob(f"*/{name}"))
    if not folders and not (or_cache and (results / JUDGE_CACHE).is_dir()):
        raise UserError(f"{results}: no experiment here (no */{name}); run one, or give the folder that has one")
    return folders


def layouts_below(
    results: str | Path, make_layout: Callable[[Path], Layout] = Layout, *, or_cache: bool = False
) -> list[Layout]:
    """The layouts of the experiments in `results`, in the order of `experiment_folders`, which says what it raises.

    `make_layout` makes the layout of an experiment's folder, which says which of its artifacts are seen.
    """
    return [make_layout(folder.resolve()) for folder in experiment_folders(results, or_cache=or_cache)]


def experiment_of(path: str | Path) -> Path | None:
    """The experiment's folder that contains `path`, as it is written or where links lead; None if there is none."""
    name = artifact("config").pattern
    above = (*Path(os.path.abspath(path)).parents, *Path(path).resolve().parents)
    return next((folder for folder in above if (folder / name).exists()), None)


def read_config(folder: str | Path) -> Experiment:
    """The resolved configuration that an experiment's folder was made with. Raises UserError if there is none."""
    path = Path(Layout(folder).path("config"))
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(
            f"{folder}: not an experiment's folder (no {path.name}); give that of an experiment that has been run"
        ) from None
    except ValueError as error:
        raise UserError(f"{path}: not valid JSON ({error}); delete it and run again") from None
    if not isinstance(data, dict):
        raise UserError(f"{path}: not a configuration, but a {type(data).__name__}; delete it and run again")
    return from_mapping(data, str(path))


class RunRound(NamedTuple):
    """A round of a run that has begun, and the key `policy` of the turns that it learned from."""

    method: str
    seed: int
    round: int
    policy: str


#: Stages that play from states of rollouts for some methods, with the key that tells what is played.
PLAYED_FOR = {"continuations": "continuations", "forks": "forks"}


def played_for(experiment: Experiment) -> dict[tuple[str, str], list[str]]:
    """The runs that need continuations or forks of their rollouts, by stage and by the key of what is played."""
    methods: dict[tuple[str, str], list[str]] = {}
    for name in dict.fromkeys(name for name, _ in experiment.runs()):
        try:
            continuations, forks = continuations_of(experiment, name), forks_of(experiment, name)
        except UserError:  # results can outlive the file or the package of a method
            continue
        if continuations is not None:
            methods.setdefault(("continuations", continuations_name(continuations)), []).append(name)
        if forks is not None:
            methods.setdefault(("forks", forks_name(forks)), []).append(name)
    return methods


def run_rounds(layout: Layout, experiment: Experiment) -> list[RunRound]:
    """The rounds of all runs on disk, sorted.

    From round 2 on a run samples turns of its own. A run of the configuration has begun its first round once its method
    has credited the SFT policy's turns, any other once that round is updated or evaluated, because methods that are
    only compared credit these turns, too.
    """
    begun = {
        (str(located.keys["method"]), int(located.keys["seed"]), int(located.keys["round"]))
        for name in ("updates", "evals")
        for located in layout.find(name)
    }
    for located in layout.find("turns"):
        policy, seed, round_ = str(located.keys["policy"]), int(located.keys["seed"]), int(located.keys["round"])
        if not of_sft(policy):
            begun.add((policy, seed, round_))
    for method, seed in experiment.runs():
        policy = sampled_by(experiment, method, 1)
        if Path(layout.path("credits", policy=policy, method=method, seed=seed, round=1)).exists():
            begun.add((method, seed, 1))
    return [
        RunRound(method, seed, round_, sampled_by(experiment, method, round_))
        for method, seed, round_ in sorted(begun)
        if not is_start(method)
    ]


def paid_by(
    stage: str,
    keys: Mapping[str, str | int],
    rounds: Collection[RunRound],
    played: Mapping[tuple[str, str], Sequence[str]] | None = None,
) -> str:
    """Who needs the output of a job of `stage`: the method of its run, `shared`, or `audit`.

    A method's credit belongs to its run if the run learned from those turns, and to the audit otherwise. So do
    continuations and forks (`played_for`), which runs share if several learn from these turns.
    """
    if stage in {one.name for one in stages_in("audit")}:
        return AUDIT
    if stage in PLAYED_FOR:
        at = (int(keys["seed"]), int(keys["round"]), str(keys["policy"]))
        alike = (played or {}).get((stage, str(keys[PLAYED_FOR[stage]])), ())
        readers = [name for name in alike if RunRound(name, *at) in rounds]
        return AUDIT if not readers else readers[0] if len(readers) == 1 else SHARED
    method, policy = keys.get("method"), keys.get("policy")
    if str(keys.get("scorer", "")).startswith(IMPLICIT):
        method = str(keys["scorer"]).removeprefix(IMPLICIT)
    if method is None:
        return SHARED if policy is None or of_sft(str(policy)) else str(policy)
    if policy is None:
        return SHARED if is_start(str(method)) else str(method)
    own = RunRound(str(method), int(keys["seed"]), int(keys["round"]), str(policy)) in rounds
    return str(method) if own else AUDIT
