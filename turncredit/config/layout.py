"""The layout of results: from each artifact to its path, and from each path to its artifact.

Nothing else in the project builds or parses a path below `results/<experiment>`.

    rollouts/{policy}/seed{seed}/round{round}/    the turns that a policy sampled in a round, and everything computed
                                                  from them: labels, hidden states, credit, ground truth
    runs/{method}/seed{seed}/round{round}/        what a run produced in a round: policy, updates, evaluation

Artifacts about turns are keyed by *(the policy that sampled, seed, round)*. In round 1 every run samples from the SFT
policy, so `policy` is `sft-<sampling>` (`sft-t64k8T1.0`: 64 tasks, groups of 8, temperature 1) and all methods share
those turns. From round 2 on it is the name of the run. `credits/{method}` is in the folder of the turns, whichever run
they belong to.

The key `warm_start` is a warm start: `sft` for the experiment's own agent, `sft_<name>` for one of `agents`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path

from turncredit.config import ContinuationsConfig, Experiment, RolloutConfig, stages
from turncredit.config.stages import ROLLOUTS, RUN, Artifact, artifacts
from turncredit.config.warm_starts import SFT, is_start
from turncredit.errors import UserError, nearest

SAMPLING = r"t\d+k\d+T[0-9.]+(?:s\d+)?"
_NAME = r"[A-Za-z][A-Za-z0-9_]*"
#: Warm starts. Each has a run of its name with evaluations (of seed 0, whatever the seeds are) and nothing else.
START = rf"{SFT}(?:_[A-Za-z0-9_]+)?"
#: The key `policy` of turns that methods share.
SHARED = rf"{START}-{SAMPLING}"
#: The scorer of a second pass that is a method's implicit reward model: this, then the method's name.
IMPLICIT = "implicit-"
#: The valid values of each key, as regular expressions.
KEYS: dict[str, str] = {
    "policy": rf"{SHARED}|{_NAME}",
    "method": _NAME,
    "seed": r"\d+",
    "round": r"\d\d|[1-9]\d\d",
    "split": "train|eval|demos",
    "judge": r"[a-z0-9][a-z0-9.-]*",
    "question": "role|progress|score",
    "hidden_policy": "sft|current",
    "hidden_position": "observation|action",
    "scorer": rf"sft|hindsight|gold|gold_sft|gold_deleted|{IMPLICIT}{_NAME}",
    "continuations": r"k\d+(?:b\d+)?",
    "forks": r"n\d+",
    "warm_start": START,
}


#: The folder of an LLM judge's answers, next to the experiments, which share it.
JUDGE_CACHE = "judge_cache"

#: Beside the policy of an update that stopped before its job's time limit: the state from which an attempt goes on.
UNFINISHED = "unfinished_update"
UNFINISHED_UPDATE = f"{RUN}/{UNFINISHED}"

Keys = Mapping[str, str | int | None]


def measures_beside(turns: str | Path) -> Path | None:
    """The measures of a table of turns: the file of that name in its folder, if there is one."""
    path = Path(turns).with_name(Path(artifact("measures").pattern).name)
    return path if path.exists() else None


@dataclass(frozen=True)
class Located:
    """An artifact's file: its kind and its keys (`seed` and `round` as numbers)."""

    artifact: str
    keys: dict[str, str | int]
    path: Path


def artifact(name: str) -> Artifact:
    """The kind of artifact called `name`. Raises UserError with the nearest name."""
    kinds = artifacts()
    if name not in kinds:
        raise UserError(f"unknown artifact '{name}'{nearest(name, kinds)}; choose one of {', '.join(kinds)}")
    return kinds[name]


def written(key: str, value: str | int | None) -> str:
    """A key's value as written in paths: rounds have at least two digits."""
    return f"{int(value):02d}" if key == "round" and value is not None else str(value)


def fill(pattern: str, keys: Keys) -> str:
    """`pattern` with its keys filled in. Raises UserError for a key that is missing."""
    try:
        return pattern.format_map({key: written(key, value) for key, value in keys.items() if value is not None})
    except KeyError as missing:
        raise UserError(f"{pattern}: the {missing.args[0]} is missing") from None


def regex(pattern: str) -> str:
    """A pattern as a regular expression whose groups are named after the keys (each key once)."""
    seen: set[str] = set()
    parts = []
    for text, key in re.findall(r"([^{]*)(?:{(\w+)})?", pattern):
        parts.append(re.escape(text))
        if key in seen:
            parts.append(f"(?P={key})")
        elif key:
            seen.add(key)
            parts.append(f"(?P<{key}>{KEYS[key]})")
    return "".join(parts)


def shell_pattern(pattern: str, **values: Sequence[str | int]) -> str:
    """A pattern as the shell reads it: `{3,4}` if a key has several values, `*` if none is given."""

    def one(match: re.Match[str]) -> str:
        texts = [written(match[1], value) for value in values.get(match[1], ())]
        return "*" if not texts else texts[0] if len(texts) == 1 else "{" + ",".join(texts) + "}"

    return re.sub(r"{(\w+)}", one, pattern)


@cache
def _matcher(pattern: str) -> re.Pattern[str]:
    return re.compile(regex(pattern))


def keys_in(pattern: str, relative: str) -> dict[str, str | int] | None:
    """The keys in a path below the experiment's folder that follows `pattern`; None where it does not."""
    match = _matcher(pattern).fullmatch(relative)
    if match is None:
        return None
    return {key: int(value) if key in ("seed", "round") else value for key, value in match.groupdict().items()}


class Layout:
    """The paths of one experiment in the folder `root`; `only` limits the paths that are looked for on disk."""

    def __init__(self, root: str | Path, only: Collection[str] | None = None):
        self.root = Path(root)
        self.only = only

    def __repr__(self) -> str:
        return f"Layout({str(self.root)!r})"

    def pattern(self, name: str) -> str:
        """The path of an artifact with its keys in braces, as Snakemake takes it."""
        return f"{self.root}/{artifact(name).pattern}"

    def path(self, name: str, keys: Keys | None = None, /, **more: str | int) -> str:
        """The path of the artifact with these keys (further keys are ignored). Raises UserError for a missing one."""
        return f"{self.root}/{fill(artifact(name).pattern, {**(keys or {}), **more})}"

    def metrics(self, stage: str) -> str:
        """The pattern of the metrics file of a job of `stage`."""
        return f"{self.root}/{stages.stage(stage).metrics}"

    def log(self, stage: str) -> str:
        """The pattern of the log of a job of `stage`."""
        return f"{self.root}/{stages.stage(stage).log}"

    def locate(self, path: str | Path) -> Located | None:
        """The artifact at `path`; None if it is not an artifact of this experiment."""
        relative = self.relative(path)
        if relative is None:
            return None
        for name, kind in artifacts().items():
            keys = keys_in(kind.pattern, relative)
            if keys is not None:
                return Located(name, keys, Path(path))
        return None

    def locate_round(self, folder: str | Path) -> dict[str, str | int] | None:
        """The keys of a round's folder: policy, seed and round of turns, or method, seed and round of a run."""
        relative = self.relative(folder)
        return (keys_in(ROLLOUTS, relative) or keys_in(RUN, relative)) if relative else None

    def relative(self, path: str | Path) -> str | None:
        """A path from the experiment's folder on; None if it is not in it.

        First the path as it is written: a folder below may be a link to another disk. Then where links lead.
        """
        for real in (os.path.abspath, os.path.realpath):
            one, root = Path(real(path)), Path(real(self.root))
            if one.is_relative_to(root):
                return one.relative_to(root).as_posix()
        return None

    def find(self, name: str, **wanted: str | int) -> Iterator[Located]:
        """The artifacts of one kind that are on disk, sorted by path; `wanted` keys restrict them."""
        kind = artifact(name)
        for relative, path in self._files(shell_pattern(kind.pattern, **{key: [wanted[key]] for key in wanted})):
            keys = keys_in(kind.pattern, relative)
            matches = keys is not None and all(keys.get(key) == value for key, value in wanted.items())
            if keys is not None and matches and (self.only is None or relative in self.only):
                yield Located(name, keys, path)

    def find_metrics(self) -> Iterator[tuple[str, dict[str, str | int], Path]]:
        """(stage, keys, file) of jobs' metrics, sorted by stage and path."""
        for stage in stages.stages().values():
            pattern = stage.metrics
            for relative, path in self._files(pattern):
                keys = keys_in(pattern, relative)
                if keys is not None and (self.only is None or relative in self.only):
                    yield stage.name, keys, path

    def unplanned(self) -> list[Located]:
        """The artifacts on disk that are not among `only`, sorted by path."""
        if self.only is None:
            return []
        found = [located for name in artifacts() for located in Layout(self.root).find(name)]
        unplanned = [one for one in found if one.path.relative_to(self.root).as_posix() not in self.only]
        return sorted(unplanned, key=lambda one: str(one.path))

    def unplanned_updates(self) -> list[Path]:
        """The states of unfinished updates on disk whose policy is not among `only`, sorted by path."""
        if self.only is None:
            return []
        found = [(keys_in(UNFINISHED_UPDATE, relative), path) for relative, path in self._files(UNFINISHED_UPDATE)]
        return [path for keys, path in found if keys and fill(artifact("policy").pattern, keys) not in self.only]

    def _files(self, pattern: str) -> list[tuple[str, Path]]:
        return [
            (path.relative_to(self.root).as_posix(), path) for path in sorted(self.root.glob(shell_pattern(pattern)))
        ]


def sampling_name(rollout: RolloutConfig) -> str:
    """The name of sampling settings: `t32k8T1.0` is 32 tasks, groups of 8, temperature 1; `s64`: 64 slots."""
    slots = "" if rollout.slots == RolloutConfig.model_fields["slots"].default else f"s{rollout.slots}"
    temperature = f"{Decimal(str(rollout.temperature)):f}"  # 0.00001, and not 1e-05
    return f"t{rollout.tasks}k{rollout.group_size}T{temperature}{slots}"


def sampling_words(name: str) -> str:
    """The settings behind a `sampling_name` as a heading has them: `32 tasks x 8 rollouts, temperature 1.0`."""
    found = re.fullmatch(r"t(\d+)k(\d+)T([\d.]+)(?:s(\d+))?", name)
    if found is None:
        return name
    tasks, size, temperature, slots = found.groups()
    return f"{tasks} tasks x {size} rollouts, temperature {temperature}{f', {slots} slots' if slots else ''}"


def continuations_name(settings: ContinuationsConfig) -> str:
    """The name of continuations: `k9` is 9 from each state, `k9b20000` at most 9 within about 20,000 turns."""
    budget = "" if settings.budget_turns is None else f"b{settings.budget_turns}"
    return f"k{settings.per_state}{budget}"


def named_continuations(name: str) -> ContinuationsConfig:
    """The settings behind a `continuations_name`."""
    per_state, _, budget = name.removeprefix("k").partition("b")
    return ContinuationsConfig(per_state=int(per_state), budget_turns=int(budget) if budget else None)


def forks_name(per_task: int) -> str:
    """The name of forks: `n16` is 16 of each task."""
    return f"n{per_task}"


def named_forks(name: str) -> int:
    """The number of forks behind a `forks_name`."""
    return int(name.removeprefix("n"))


def sampled_by(experiment: Experiment, method: str, round: int) -> str:
    """The key `policy` of the turns that the run of `method` learns from in `round`."""
    if round > 1:
        return method
    section = experiment.section_for(method, "rollout")
    assert isinstance(section, RolloutConfig)
    return f"{experiment.start_of(method)}-{sampling_name(section)}"


def of_sft(policy: str) -> bool:
    """Whether turns with this key `policy` were sampled by an SFT policy."""
    start, dash, _ = policy.partition("-")
    return bool(dash) and is_start(start)


def round_name(who: str, seed: int, round: int) -> str:
    """The short name of a round: of the run of a method, or of the turns that a policy sampled."""
    return f"{who}/seed{seed}/round{round:02d}"


def named_round(name: str) -> tuple[str, int, int] | None:
    """Policy, seed and round of a `round_name`; None for any other name."""
    keys = keys_in("{policy}/seed{seed}/round{round}", name)
    return None if keys is None else (str(keys["policy"]), int(keys["seed"]), int(keys["round"]))


def sampler_id(policy: str, seed: int, round: int) -> str:
    """The name, in tables, of the policy that sampled turns: the warm start in round 1, then the run's round before."""
    return policy.partition("-")[0] if of_sft(policy) else round_name(policy, seed, round - 1)


def layout_of(experiment: Experiment, results: str | Path = "results") -> Layout:
    """The layout of an experiment below the folder `results`."""
    return Layout(Path(results) / experiment.experiment)
