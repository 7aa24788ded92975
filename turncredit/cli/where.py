"""`turncredit where`: which files a stage reads and writes, and which stage wrote a file."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
import yaml

from turncredit.cli.configured import ConfigfileOption, ConfigOption, ResultsOption, plan_of
from turncredit.config.judge import judge_name
from turncredit.config.layout import KEYS, of_sft
from turncredit.config.stages import made_by, stages
from turncredit.config.warm_starts import SFT, is_start
from turncredit.data import provenance
from turncredit.errors import UserError, nearest
from turncredit.pipeline import loop
from turncredit.pipeline.all_jobs import maker, step_of
from turncredit.pipeline.job import JobKeys, named_paths
from turncredit.pipeline.loop import Step
from turncredit.pipeline.plan import Plan
from turncredit.views.experiments import experiment_of, read_config

#: Keys with few values, which identify the key that a word is for.
CHOICES = {
    key: [word for word in KEYS[key].split("|") if word.isalpha()]
    for key in ("split", "question", "hidden_policy", "hidden_position", "scorer")
}


def where(
    artifact: Annotated[str, typer.Argument(help="A stage (credit), an artifact (credits), or a path in the results.")],
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="KEY", help="A method; train or eval; a question for the judge; ...")
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="The policy that sampled the rollouts; by default the method's own run.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The run's seed.")] = 0,
    round: Annotated[int, typer.Option(min=1, help="The round.")] = 1,
    configfile: ConfigfileOption = None,
    config: ConfigOption = None,
    results: ResultsOption = Path("results"),
) -> None:
    """Show the files that a stage reads and writes, its slice of the configuration and its log.

    For a path, show this for the stage that wrote it. Example: turncredit where credit gigpo --seed 0 --round 1
    """
    stage_of = {**made_by(), **{stage: stage for stage in stages()}}
    if artifact not in stage_of and ("/" in artifact or Path(artifact).exists()):
        plan, stage, at = of_path(Path(artifact), configfile, results, config)
    else:
        if artifact not in stage_of:
            raise UserError(
                f"unknown stage or artifact '{artifact}'{nearest(artifact, stage_of)}; choose one of the stages "
                f"{', '.join(stages())}, or of the artifacts {', '.join(sorted({*made_by()} - {*stages()}))}"
            )
        plan, stage = plan_of(configfile, results, config, installed=False), stage_of[artifact]
        at = at_of(plan, stage, keys or [], policy, seed, round)
    print("\n".join(lines_of(plan, stage, at)))


def stage_keys(stage: str) -> list[str]:
    """The keys that identify a job of a stage."""
    return list(dict.fromkeys(re.findall(r"{(\w+)}", stages()[stage].metrics)))


def at_of(plan: Plan, stage: str, words: Sequence[str], policy: str | None, seed: int, round: int) -> JobKeys:
    """The keys of the job of `stage` that `words` describe. Raises UserError for one that is missing or unknown.

    Without `policy`, turns are those of the method's own run.
    """
    names = stage_keys(stage)
    keys: dict[str, str | int] = {"warm_start": SFT} if "warm_start" in names and not words else {}
    for word in words:
        keys[_key(plan, stage, names, word, keys)] = word
    method = str(keys.get("method", ""))
    for start in (method, str(keys.get("warm_start", ""))):
        if is_start(start):
            plan.experiment.agent_of(start)
    if is_start(method) and (stage == "eval" or "method" not in names):
        seed = 0 if stage == "eval" else seed  # evaluated once, for all seeds
    elif method:
        plan.method(method)
    keys |= {"seed": seed, "round": round}
    if "policy" in names:
        if policy is None and not method and round > 1:
            raise UserError(f"{stage}: round {round} has rollouts of several policies; name a method, or give --policy")
        keys["policy"] = policy or plan.turns_at(method or SFT, seed, round).policy
        if of_sft(str(keys["policy"])):
            plan.sampling(str(keys["policy"]))
        else:
            plan.method(str(keys["policy"]))
        turns = JobKeys(policy=str(keys["policy"]), seed=seed, round=round)
        plan.sampler(turns)
        found = plan.keys_for(stage, turns, method) if method and not is_start(method) else None
        told_by_method = {*names} - {*CHOICES, "policy", "seed", "round", "judge"}
        if told_by_method and method and not is_start(method) and not stages()[stage].needed(plan, method):
            raise UserError(
                f"{stage}: the method '{method}' does not need it, so there is no such job; name a method that does"
            )
        keys = {**({} if found is None else found.keys), **keys}
        if stage == "label":
            keys.setdefault("judge", judge_name(plan.experiment.judge))
    elif policy is not None:
        raise UserError(f"{stage}: --policy does not apply to this stage; leave it out")
    missing = next((key for key in names if key not in keys), None)
    if missing:
        choices = CHOICES.get(missing) or [name for name, _ in dict.fromkeys(plan.experiment.runs())]
        raise UserError(f"{stage}: the {missing} is missing; give one, such as {', '.join(dict.fromkeys(choices))}")
    return JobKeys.of({key: str(keys[key]) for key in names})


def _key(plan: Plan, stage: str, names: Sequence[str], word: str, keys: Mapping[str, object]) -> str:
    """Which key of a stage `word` is a value of."""
    for key, choices in CHOICES.items():
        if key in names and word in choices and key not in keys:
            return key
    if "judge" in names and word == judge_name(plan.experiment.judge):
        return "judge"
    for key in ("continuations", "forks"):
        if key in names and re.fullmatch(KEYS[key], word):
            return key
    if "warm_start" in names and is_start(word):
        return "warm_start"
    if ("method" in names or "policy" in names) and "method" not in keys:
        return "method"
    raise UserError(f"{stage}: '{word}' is not one of its keys ({', '.join(names) or 'it has none'}); leave it out")


def of_path(
    path: Path, configfile: Sequence[Path] | None, results: Path, config: Sequence[str] | None = None
) -> tuple[Plan, str, JobKeys]:
    """The plan, stage and keys behind a path of an artifact, of something in it, of a job's metrics or of its log.

    The configuration is the one in the experiment's folder, if no other is given.
    """
    folder = None if configfile or config else experiment_of(path)
    if folder:
        shown = folder if path.is_absolute() else Path(os.path.relpath(folder))
        plan = Plan(read_config(folder), shown.parent)
        if plan.layout.root.name != folder.name:
            raise UserError(
                f"{folder}: has results of the experiment {plan.layout.root.name}; rename the folder to match"
            )
    else:
        plan = plan_of(configfile, results, config, installed=False)
    below = plan.layout.relative(path)
    if below is None:
        raise UserError(
            f"{path}: not below {plan.layout.root}, the results of this configuration; give another with --configfile"
        )
    relative = Path(below)
    for candidate in (relative, *relative.parents):  # files in a folder that a stage makes
        if step := step_of(candidate.as_posix()):
            return plan, *step
    raise UserError(f"{path}: no stage writes this; `turncredit where STAGE` lists the artifacts of a stage")


def lines_of(plan: Plan, stage: str, at: JobKeys) -> list[str]:
    """A stage's inputs, outputs, metrics, log and slice of the configuration, and the job of rounds that runs it."""
    metrics, log = plan.metrics(stage, at), plan.log(stage, at)
    job = plan.job(stage, at)
    inputs = [(name, path) for name in job.input for path in job.paths(name)]
    records = [("metrics", metrics), ("log", log)]
    blocks = {"reads": inputs, "writes": list(plan.outputs(stage, at).items()), "records": records}
    width = max(len(name) for block in blocks.values() for name, _ in block) + 1
    keys = ", ".join(f"{key} {value}" for key, value in at.keys.items())
    lines = [f"stage {stage}" + (f": {keys}" if keys else "")]
    if joint := loop.block_of(plan, stage, at):
        method, block = joint
        span = f"round {block[0]}" if len(block) == 1 else f"rounds {block[0]} to {block[-1]}"
        granularity = plan.experiment.granularity
        lines.append(f"runs in the job of {span} of {method}, seed {at.seed} (granularity: {granularity})")
    for title, block in blocks.items():
        lines += ["", title if block else f"{title} nothing"]
        lines += [f"  {name + ':':<{width}} {_file_state(plan, path):<7} {path}" for name, path in block]
    config = yaml.safe_dump(plan.slice(stage, at).model_dump(mode="json"), sort_keys=False, default_flow_style=None)
    return [*lines, "", "its slice of the configuration", *(f"  {line}" for line in config.splitlines())]


def _file_state(plan: Plan, path: str) -> str:
    """Whether a file exists, and whether its job had the settings, and read the user's own files, as they are now."""
    if not os.path.exists(path):
        return "missing"
    step = maker(plan, path) if plan.layout.locate(path) else None
    made_by = provenance.made_from(path) if step else None
    if not step or not made_by:
        return "exists"
    other = made_by.get("config_hash") != provenance.config_hash(plan.settings(*step))
    return "stale" if other or _reads_changed_file(plan, step, made_by.get("inputs") or {}) else "exists"


def _reads_changed_file(plan: Plan, step: Step, hashes: Mapping[str, str]) -> bool:
    """Whether a user's own file (of a method, an environment, an agent) is no longer what the job has read."""
    read = named_paths(plan.inputs(*step))
    own = {name: path for name, path in read.items() if name in hashes and maker(plan, path) is None}
    return any(not os.path.exists(path) or provenance.file_hash(path) != hashes[name] for name, path in own.items())
