"""`turncredit plan`: an estimate of an experiment's memory, disk and GPU hours, before anything runs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from turncredit.cli.configured import ConfigfileOption, ConfigOption, ResultsOption, plans_of
from turncredit.config import ResourceConfig
from turncredit.config.experiment import ROUNDS
from turncredit.config.stages import stages
from turncredit.data.counts import number_of
from turncredit.errors import UserError
from turncredit.pipeline import loop, resources
from turncredit.pipeline.all_jobs import every_job
from turncredit.pipeline.blocks import resource_of_block
from turncredit.pipeline.checks import check_installed
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.learned_models import shapes
from turncredit.pipeline.loop import Step
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.resources.assumed import REQUEST

#: A job of rounds that asks for more than this many times its estimate, or the least time of a job, is warned of.
TOO_LONG = 10
#: Which units of bytes are printed.
UNITS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6))


def plan(
    configfile: ConfigfileOption = None, config: ConfigOption = None, results: ResultsOption = Path("results")
) -> None:
    """Print an experiment's jobs, the memory of each stage, the disk it needs and the GPU hours it takes: an estimate.

    Example: turncredit plan --configfile config/paper/has.yaml
    """
    plans: list[Plan] = []
    for plan in plans_of(configfile, results, config, installed=False):
        if plans:
            print()
        print("\n".join(lines_of(plan)), flush=True)
        plans.append(plan)
    if len(plans) > 1 and (together := at_once(plans)):
        print(f"\nall {len(plans)} experiments: {together}")
    if any(_on_gpus(plan) for plan in plans):
        print(f"\n{resources.ASSUMED}" if len(plans) > 1 else resources.ASSUMED)


def _on_gpus(plan: Plan) -> bool:
    return any(plan.experiment.gpus(stage) for stage in {stage for stage, _ in every_job(plan)})


def lines_of(plan: Plan) -> list[str]:
    """What `turncredit plan` prints of an experiment, but for what it assumes of GPUs."""
    experiment, jobs = plan.experiment, every_job(plan)
    count = Counter(stage for stage, _ in jobs)
    submitted = submitted_jobs(plan, jobs)
    hours = gpu_hours(plan, submitted)
    sizes = {"method": len(experiment.trained()), "seed": len(experiment.seeds), "round": experiment.rounds}
    runs = " x ".join(f"{count} {what}{'s' if count > 1 else ''}" for what, count in sizes.items())
    lines = [
        f"{experiment.experiment}: {runs}, {len(jobs):,} stages in {len(submitted):,} jobs "
        f"(granularity: {experiment.granularity})",
        "",
        f"{'stage':<19}{'times':>7}{'GPUs':>6}{'main memory':>14}{'minutes asked':>15}{'GPU hours':>11}  "
        "what the policy takes",
    ]
    for stage in (stage for stage in stages() if count[stage]):
        asked = resources.resource(plan, stage)
        parts = {name: size for name, size in resources.need(plan, stage).model.items() if size >= 1e6}
        where = "GPU memory" if asked.gpu else "main memory"
        breakdown = f"{size_of(sum(parts.values()))} of {where}: " + ", ".join(
            f"{name} {size_of(parts[name])}" for name in parts
        )
        time = f"{hours[stage]:,.1f}" if hours[stage] else ""
        nodes = experiment.nodes(stage)
        lines.append(f"{_asked(stage, count[stage], asked, nodes)}{time:>11}  {breakdown if parts else ''}".rstrip())
    lines += rounds_line(submitted)
    if experiment.policy.train_nodes > 1:
        lines.append("GPUs: nodes x GPUs of each; main memory is that of each node")
    lines += ["", *disk_lines(plan)]
    if _on_gpus(plan):
        lines.append(f"GPU hours: about {sum(hours.values()):,.0f}, of one A100-80GB")
    if together := at_once([plan]):
        lines.append(together)
    if shapes(experiment) is None:
        lines.append(
            f"The sizes of policy.source '{experiment.policy.source}' are not known here, so memory is a guess; "
            "download its config.json, or give mem_mb in resources"
        )
    try:
        check_installed(experiment)
    except UserError as error:
        lines.append(f"warning: {error}")
    lines += [
        f"warning: {line}"
        for look in (resources.fits, resources.in_time)
        for stage in stages()
        if count[stage] and (line := look(plan, stage))
    ]
    lines += [f"warning: {line}" for line in rounds_time(plan)]
    return lines


def _asked(what: str, times: int, asked: ResourceConfig, nodes: int) -> str:
    """How often something runs, and what it asks for each time."""
    memory, gpus = size_of(1e6 * (asked.mem_mb or 0)), asked.gpu or ""
    return f"{what:<19}{times:>7,}{f'{nodes} x {gpus}' if nodes > 1 else gpus:>6}{memory:>14}{asked.runtime or 0:>15,}"


class Training(NamedTuple):
    """What the runs of an experiment can use at once: GPUs, and the hours of the longest run on them."""

    gpus: int
    hours: float


def at_once(plans: Sequence[Plan]) -> str:
    """A line about the GPUs that the runs of these experiments can use at once; empty without GPUs or an estimate."""
    each = [training(plan) for plan in plans]
    gpus, hours = sum(one.gpus for one in each), max(one.hours for one in each)
    if not gpus or not all(one.hours for one in each if one.gpus):
        return ""
    runs = sum(len(plan.experiment.runs()) for plan in plans)
    time = f"{hours:,.0f}" if hours >= 10 else f"{hours:.1f}"
    parallel = f"{gpus:,} GPU{'s' * (gpus > 1)} at once ({runs:,} run{'s' * (runs > 1)} in parallel)"
    return f"training uses at most {parallel}, and takes at least {time} hours with all of them"


@lru_cache(maxsize=64)
def training(plan: Plan) -> Training:
    """The GPUs of all runs in parallel, and the hours from the warm start to the end of the longest run.

    The jobs of a run follow one another. If each stage is a job, only rollouts and updates count, which always do;
    evaluations may run beside them. Audits do not count.
    """
    experiment = plan.experiment
    seed, gpus, seconds = experiment.seeds[0], 0, 0.0
    for method in experiment.trained():
        jobs = _jobs_in_turn(plan, method, seed)
        gpus += len(experiment.seeds) * max((held for held, _ in jobs), default=0)
        seconds = max(seconds, sum(time for _, time in jobs))
    start = resources.gpu_seconds(plan, "sft", JobKeys()) if experiment.sft.epochs else 0.0
    return Training(gpus, (start + seconds) / 3600)


def _jobs_in_turn(plan: Plan, method: str, seed: int) -> list[tuple[int, float]]:
    """(GPUs, seconds on them) of the jobs of a run, of which each waits for the one before."""
    experiment = plan.experiment
    first = loop.one_round(plan, method, seed, 1)
    shared = [step for step in first if step[0] == "rollout" and loop.is_shared(step[1])]
    jobs = []
    if experiment.granularity == "stage":
        of_rounds = [[step] for step in loop.run(plan, method, seed) if step[0] in ("rollout", "update")]
    else:
        jobs += [(experiment.all_gpus(stage), resources.gpu_seconds(plan, stage, at)) for stage, at in shared]
        of_rounds = [loop.block(plan, method, seed, rounds) for rounds in experiment.blocks()]
    joint = [ROUNDS] if experiment.granularity != "stage" else []
    for steps in of_rounds:
        together = [*dict(steps), *joint]
        held = max(map(experiment.gpus, together)) * max(map(experiment.nodes, together))
        jobs.append((held, sum(resources.gpu_seconds_in_turn(plan, steps))))
    return jobs


class Submitted(NamedTuple):
    """A job as Snakemake submits it: its stages, what it asks for, and the rounds if it runs whole ones."""

    stages: list[Step]
    asked: ResourceConfig
    rounds: range | None = None
    nodes: int = 1

    @property
    def gpus(self) -> int:
        """The GPUs that it holds while it runs, of all of its nodes."""
        return self.nodes * (self.asked.gpu or 0)


def submitted_jobs(plan: Plan, steps: list[Step]) -> list[Submitted]:
    """The jobs that Snakemake runs for these stages: with granularity `round` or `run` one runs many of them."""
    experiment, blocks = plan.experiment, []
    if experiment.granularity != "stage":
        of_block = cache(lambda method, block: resource_of_block(plan, method, experiment.seeds[0], block))
        blocks = [
            Submitted(loop.block(plan, method, seed, block), of_block(method, block), block, experiment.nodes(ROUNDS))
            for method, seed in experiment.runs()
            for block in experiment.blocks()
        ]
    inside = {step for block in blocks for step in block.stages}
    asked = cache(lambda stage: resources.resource(plan, stage))
    others = [step for step in steps if step not in inside]
    return [*blocks, *(Submitted([step], asked(step[0]), nodes=experiment.nodes(step[0])) for step in others)]


def rounds_line(jobs: list[Submitted]) -> list[str]:
    """A line about the jobs of whole rounds: the most that any of them asks for; none if there are no such jobs."""
    of_rounds = [job for job in jobs if job.rounds]
    if not of_rounds:
        return []

    def most(name: str) -> int:
        return max(getattr(job.asked, name) or 0 for job in of_rounds)

    rounds = max(len(job.rounds or ()) for job in of_rounds)
    asked = ResourceConfig(gpu=most("gpu"), mem_mb=most("mem_mb"), runtime=most("runtime"))
    return [_asked(f"jobs of {number_of(rounds, 'round')}", len(of_rounds), asked, of_rounds[0].nodes)]


def rounds_time(plan: Plan) -> list[str]:
    """A line if the longest job of rounds asks for less time than is estimated or far more; none without estimate."""
    experiment = plan.experiment
    if experiment.granularity == "stage":
        return []
    seed = experiment.seeds[0]
    every = [(method, rounds) for method in experiment.trained() for rounds in experiment.blocks()]
    takes = {(method, rounds): _minutes(plan, loop.block(plan, method, seed, rounds)) for method, rounds in every}
    method, rounds = max(takes, key=lambda job: takes[job])
    minutes = takes[method, rounds]
    asked = resource_of_block(plan, method, seed, rounds).runtime or 0
    if not minutes or minutes <= asked <= TOO_LONG * max(minutes, REQUEST.least_minutes):
        return []
    return [
        f"a job of {number_of(len(rounds), 'round')} takes about {minutes:,.0f} minutes on its GPU and asks "
        f"for {asked:,}; set resources.rounds.runtime"
    ]


def _minutes(plan: Plan, steps: list[Step]) -> float:
    """Minutes that one job of these stages takes on its GPU; 0 if a stage that reads a policy or a judge runs elsewhere
    or is of unknown size."""
    seconds = resources.gpu_seconds_in_turn(plan, steps)
    estimated = resources.ordered(dict(steps))
    known = all(time for (stage, _), time in zip(steps, seconds, strict=True) if stage in estimated)
    return sum(seconds) / 60 if known else 0.0


def gpu_hours(plan: Plan, jobs: list[Submitted]) -> dict[str, float]:
    """GPU hours of these jobs by stage. Stages in one process share its start, and each holds all of its GPUs."""
    hours: defaultdict[str, float] = defaultdict(float)
    for job in jobs:
        for (stage, _), seconds in zip(job.stages, resources.gpu_seconds_in_turn(plan, job.stages), strict=True):
            if plan.experiment.gpus(stage):
                hours[stage] += job.gpus * seconds / 3600
    return hours


def disk_lines(plan: Plan) -> list[str]:
    """How much disk the results take, by what they are."""
    sizes = resources.disk(plan)
    if not sizes:
        return []
    parts = ", ".join(f"{what} {size_of(size)}" for what, size in sizes.items() if size >= 1e6)
    lines = [f"disk: {size_of(sum(sizes.values()))} at most: {parts}"]
    if plan.experiment.keep_policies == "all":
        last = Plan(plan.experiment.model_copy(update={"keep_policies": "last"}), plan.results)
        lines[0] += f"; with keep_policies: last {size_of(sum(resources.disk(last).values()))}"
    return lines


def size_of(size: float) -> str:
    """A number of bytes in a readable unit."""
    unit, of = next(((unit, of) for unit, of in UNITS if size >= of), UNITS[-1])
    number = size / of
    return f"{number:,.0f} {unit}" if number >= 10 or unit == "MB" else f"{number:.1f} {unit}"
