"""`turncredit run [SNAKEMAKE OPTIONS]`: Snakemake with live progress.

On a terminal: a progress bar over all jobs with the remaining time, the running jobs and their progress, and a line for
each finished evaluation. Elsewhere: plain lines. At the end, the report's table and the artifacts' paths.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from turncredit.data.process_lifetime import end_with_parent
from turncredit.data.yaml_files import CONFIG, read_entry, read_mapping
from turncredit.errors import UserError
from turncredit.pipeline import live_progress, locks
from turncredit.pipeline.machine import SNAKEMAKE

#: The rule of jobs of several rounds.
ROUNDS = "rounds"
#: Seconds per job in the default experiment on one core, if not about `USUAL`. Only their ratios matter, and only until
#: jobs of the rule have ended. Rules that are not named are displayed like all others.
TYPICAL = {
    "tasks": 4.0, "demos": 3.0, "sft": 40.0, "rollout": 4.0, "eval": 5.0, "report": 3.0, "track": 3.0,
}  # fmt: skip
USUAL = 1.0
#: Seconds of finished jobs after which measured times count as much as `TYPICAL`.
PATIENCE = 10.0
#: The share of a job's work from which on it says how long the job takes: the first steps are slow.
EARLY = 0.05
#: Rules whose jobs run one after another, whatever the number of cores.
ALONE = ("tasks", "demos", "base", "sft")
#: Rules whose jobs get a line when they end. Rounds have many jobs; their evaluations show their progress.
SHOWN = (*ALONE, "report", "track")
#: The exit status after Ctrl-C, as of any program in a shell, and seconds until Snakemake is told more firmly.
INTERRUPTED, STOP_WITHIN = 130, 5.0
#: How this program's lines begin in what Snakemake prints.
OURS = "turncredit: "
#: What Snakemake says where another one works, and before its first jobs.
LOCKED, BEGUN = "Directory cannot be locked", "Select jobs to execute"
#: What Snakemake says where nothing but a job failed.
JOB_FAILED = "At least one job did not complete successfully."
#: Snakemake's options for a configuration's files and for its single keys.
CONFIGFILE, SINGLE_KEYS = ("--configfile", "--configfiles"), ("--config", "-C")
#: Options with which Snakemake runs no job: what it prints is the answer.
ANSWERED = {
    "--dry-run", "--dryrun", "--unlock", "--touch", "--version", "--lint", "--list-rules", "--list",
    "--list-target-rules", "--lt", "--dag", "--rulegraph", "--filegraph", "--d3dag", "--summary", "--lu",
    "--detailed-summary", "--report", "--cleanup-metadata", "--cm", "--cleanup-shadow", "--archive",
    "--delete-all-output", "--delete-temp-output", "--list-changes", "--lc", "--list-input-changes", "--li",
    "--list-params-changes", "--lp", "--list-untracked", "--list-conda-envs", "--conda-create-envs-only",
    "--conda-cleanup-envs", "--container-cleanup-images", "--containerize", "--generate-unit-tests", "--export-cwl",
    "--draft-notebook", "--edit-notebook", "--print-compilation",
}  # fmt: skip
#: The letters of such options. They may follow others without a value, and be followed by any: `-np`, `-nc4`.
ANSWERED_LETTERS = re.compile(r"-[pkFfa]*[ntlvSD].*")
#: The targets of the Snakefile, which are no stages.
TARGETS = {"all", "runs", "audit"}
#: Options whose value is a file in YAML and no configuration.
OTHER_FILES = ("--slurm-partition-config",)
#: Seconds between plain lines without a terminal.
QUIET_FOR = 20.0


@dataclass
class State:
    """The state of the run: planned jobs by rule, ended and running jobs, lines of `ended.jsonl` that were read.

    seen    bytes of Snakemake's output that were read
    said    lines of this program in it, such as warnings, which were shown
    """

    cores: int
    wanted: Counter[str] = field(default_factory=Counter)
    ended: list[dict[str, Any]] = field(default_factory=list)
    read: int = 0
    seen: int = 0
    said: list[str] = field(default_factory=list)
    running: list[dict[str, Any]] = field(default_factory=list)
    plan: dict[str, Any] = field(default_factory=dict)
    begun: float = field(default_factory=time.time)

    @property
    def total(self) -> int:
        """Jobs of this run."""
        return sum(self.wanted.values())

    @property
    def units(self) -> str:
        """What is counted: jobs, or the stages that they run."""
        return "stages" if self.plan.get("in_rounds") else "jobs"

    @property
    def done(self) -> list[dict[str, Any]]:
        """The jobs that have ended well: neither failed nor killed."""
        return [job for job in self.ended if "error" not in job and not job.get("stopped")]

    @property
    def killed(self) -> bool:
        """Whether a job was killed, or interrupted, and no later attempt has ended well."""
        done = {job["label"] for job in self.done}
        return any(job.get("stopped") and job["label"] not in done for job in self.ended)

    def seconds_left(self) -> float | None:
        """An estimate from the times of jobs so far, running ones among them; None before the plan is known."""
        if not self.wanted:
            return None
        ended, took = Counter(), Counter()
        for job in self.done:
            ended[job["rule"]] += 1
            took[job["rule"]] += job["ended"] - job["started"]
        usual = sum(TYPICAL.get(rule, USUAL) * count for rule, count in ended.items())
        spent = float(sum(took.values()))
        for job in self.running:
            # A large policy shows in the first long job, the warm start, long before that ends.
            if job.get("share", 0.0) >= EARLY:
                expected = job["share"] * TYPICAL.get(job["rule"], USUAL)
                usual += expected
                spent += max(expected, time.time() - job["started"])
        # A few short jobs say little about the speed of long ones.
        pace = (spent + PATIENCE) / (usual + PATIENCE)
        each = {
            rule: took[rule] / ended[rule] if ended[rule] else TYPICAL.get(rule, USUAL) * pace for rule in self.wanted
        }
        running = [(job, time.time() - job["started"]) for job in self.running if job["rule"] in each]
        for job, elapsed in running:
            if not ended[job["rule"]]:
                share = job.get("share", 0.0)
                each[job["rule"]] = max(each[job["rule"]], elapsed / share if share >= EARLY else elapsed)
        left = {rule: each[rule] * max(0, count - ended[rule]) for rule, count in self.wanted.items()}
        for job, elapsed in running:
            left[job["rule"]] += seconds_to_go(each[job["rule"]], elapsed, job.get("share", 0.0)) - each[job["rule"]]
        alone = sum(max(0.0, left.get(rule, 0.0)) for rule in ALONE)
        rest = sum(max(0.0, seconds) for rule, seconds in left.items() if rule not in ALONE)
        return alone + rest / max(1, min(self.cores, self.plan.get("runs", 1)))

    def outside_share(self) -> float:
        """The share of the time so far in which no stage ran."""
        covered, until = 0.0, self.begun
        for job in sorted(self.ended, key=lambda job: job["started"]):
            covered += max(0.0, job["ended"] - max(until, job["started"]))
            until = max(until, job["ended"])
        return 1 - covered / max(time.time() - self.begun, 1e-9)


def seconds_to_go(usual: float, elapsed: float, share: float) -> float:
    """How long a running job still takes, which usually takes `usual` seconds and has done `share` of its work.

    One that is late needs as long for the rest as it did so far, or a quarter more if it reports no progress.
    """
    if share >= EARLY:
        return (1 - share) * max(usual, elapsed / share)
    return max(usual - elapsed, elapsed / 4)


def main(arguments: list[str]) -> int:
    """Run Snakemake with `arguments` and show progress; returns its exit status, 130 if it was interrupted.

    What runs no job, such as a dry run, is left to Snakemake.
    """
    check_configuration(arguments)
    if any(one.partition("=")[0] in ANSWERED or ANSWERED_LETTERS.fullmatch(one) for one in arguments):
        return subprocess.run([*SNAKEMAKE, *arguments], check=False).returncode
    with tempfile.TemporaryDirectory(prefix="turncredit-watch-") as name:
        folder = Path(name)
        with (folder / "output").open("w", encoding="utf-8") as output:
            process = subprocess.Popen(
                [*SNAKEMAKE, *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, live_progress.VARIABLE: name},
                # SIGKILL: told to end, it would wait for its jobs and keep the folder locked.
                preexec_fn=partial(end_with_parent, signal.SIGKILL),  # noqa: PLW1509 (this process has one thread)
            )
        state = State(cores=_number(arguments, "--cores", "-c", "--jobs", "-j") or os.cpu_count() or 1)
        console = Console(highlight=False)
        try:
            (_follow_live if console.is_terminal else _follow_plain)(process, folder, state, console)
        except KeyboardInterrupt:
            console.print("Stopping: running jobs are cancelled; run the same command to resume.")
            _stop(process)
            return INTERRUPTED
        status = process.returncode
        return _finish(status if status >= 0 else 128 - status, folder, state, console)


def check_configuration(arguments: list[str]) -> list[dict[str, Any]]:
    """The keys and values of the default configuration, of the files given, and of single entries. Raises UserError."""
    files = values_of(arguments, *CONFIGFILE)
    read = [read_mapping(path) for path in files]
    read += [read_entry(entry) for entry in values_of(arguments, *SINGLE_KEYS)]
    cores = _number(arguments, "--cores", "-c")
    if cores is not None and cores < 1:
        raise UserError(f"--cores {cores}: give a number of cores from 1, or all")
    for name in set(arguments) - {*files, *values_of(arguments, *OTHER_FILES)[:1]}:
        if name.endswith((".yaml", ".yml")) and Path(name).is_file():
            raise UserError(f"{name}: give a configuration as an option, --configfile {name}")
    if Path(CONFIG).exists() and not {"-s", "--snakefile", "-d", "--directory"} & set(arguments):
        read.append(read_mapping(CONFIG))
    return read


def values_of(arguments: list[str], *options: str) -> list[str]:
    """The values of options that take several: those after one of them, up to the next option."""
    return _taken_apart(arguments, options)[0]


def with_keys(arguments: list[str], *entries: str) -> list[str]:
    """Snakemake's `arguments` with one option for all entries of `--config`, these included, where it takes no other
    argument for an entry. Of several such options Snakemake reads only the last.
    """
    ends = arguments.index("--") if "--" in arguments else len(arguments)
    options = sum(argument.partition("=")[0] in SINGLE_KEYS for argument in arguments[:ends])
    if options <= 1 and not entries:
        return arguments
    own, rest = _taken_apart(arguments[:ends], SINGLE_KEYS)
    before = next((at for at, argument in enumerate(rest) if argument.startswith("-")), len(rest))
    return [*rest[:before], SINGLE_KEYS[0], *own, *entries, *rest[before:], *arguments[ends:]]


def _taken_apart(arguments: list[str], options: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """The values of these options, which take all arguments up to the next option, and the other arguments."""
    values, rest, taking = [], [], False
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name in options:
            taking = True
            values += [value] if equals else []
        elif taking and not argument.startswith("-"):
            values.append(argument)
        else:
            taking = False
            rest.append(argument)
    return values, rest


def _stop(process: subprocess.Popen) -> None:
    """Wait until Snakemake has cancelled its jobs. Ctrl-C reaches it too; a signal to this process alone does not."""
    for number in (None, signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            process.send_signal(number)
        try:
            process.wait(timeout=STOP_WITHIN)
            return
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            continue
    process.wait()


def _number(arguments: list[str], *options: str) -> int | None:
    """The number given to one of `options`: after it, after `=`, or at once. None if there is none, or a word."""
    match = re.search(rf"(?:^| )(?:{'|'.join(options)})[ =]?(-?\d+)", " ".join(arguments))
    return int(match.group(1)) if match else None


def look(folder: Path, state: State) -> list[dict[str, Any]]:
    """Update `state` from the files in `folder`; returns the jobs that have ended since the last call."""
    if not state.wanted:
        state.wanted = wanted_jobs(printed(folder))
    if not state.plan and (folder / "plan.json").exists():
        state.plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    if state.plan and ROUNDS in state.wanted:
        state.wanted = with_stages_of_rounds(state.wanted, state.plan.get("in_rounds", {}))
    state.running, killed = [], []
    for path in folder.glob("*.job"):
        try:
            job = json.loads(path.read_text(encoding="utf-8"))
            at = json.loads(path.with_suffix(".progress").read_text(encoding="utf-8"))
            job["share"] = at["done"] / max(1, at["total"])
        except FileNotFoundError:
            if not path.exists():
                continue  # it has just ended
        if live_progress.left_by(path):
            killed.append({**job, "ended": time.time(), "stopped": True})
            path.unlink()
            path.with_suffix(".progress").unlink(missing_ok=True)
        else:
            state.running.append(job)
    file = folder / "ended.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    new = [*(json.loads(line) for line in lines[state.read :]), *killed]
    state.read = len(lines)
    state.ended.extend(new)
    return new


def printed(folder: Path) -> str:
    """What Snakemake has printed so far, in which jobs and their paths may be in any encoding."""
    return (folder / "output").read_text(encoding="utf-8", errors="replace")


def new_lines(folder: Path, state: State) -> list[str]:
    """The lines to show since the last call: this program's own in Snakemake's output, and those of ended jobs."""
    with (folder / "output").open("rb") as output:
        output.seek(state.seen)
        whole = output.read().rpartition(b"\n")[0]
    state.seen += len(whole)
    own = [line for line in whole.decode(errors="replace").splitlines() if line.startswith(OURS)]
    state.said += own
    return [*own, *(line for job in look(folder, state) if (line := line_of(job)))]


def wanted_jobs(output: str) -> Counter[str]:
    """Jobs by rule, from the table `Job stats` that Snakemake prints before it starts; empty until then."""
    _, heading, table = output.partition("Job stats:\n")
    rows = re.findall(r"^(\w+)\s+(\d+)$", table.partition("\n\n")[0], re.MULTILINE)
    if not heading or not any(name == "total" for name, _ in rows):
        return Counter()
    return Counter({name: int(count) for name, count in rows if name not in {"total", *TARGETS}})


def with_stages_of_rounds(wanted: Counter[str], in_rounds: Mapping[str, float]) -> Counter[str]:
    """The jobs by rule with the stages of jobs of several rounds in place of these: each stage announces itself."""
    jobs = wanted[ROUNDS]
    stages = Counter({stage: round(jobs * number) for stage, number in in_rounds.items()})
    return Counter({rule: count for rule, count in wanted.items() if rule != ROUNDS}) + stages


def line_of(job: dict[str, Any]) -> str | None:
    """The line printed for a job that has ended; None for jobs without one."""
    seconds = job["ended"] - job["started"]
    if "error" in job:
        return f"failed: {job['error']}"
    if job.get("stopped"):
        return f"killed: {job['label']} after {seconds:.0f} s"
    if "warning" in job:
        return str(job["warning"])
    success = {name: value for name, value in job.get("metrics", {}).items() if name.startswith("success_")}
    if job["label"].startswith("eval ") and success:
        rates = "  ".join(f"{name.removeprefix('success_')} {value:.3f}" for name, value in success.items())
        return f"{job['label'].removeprefix('eval '):<40} success  {rates}"
    return f"{job['label']:<40} {seconds:.1f} s" if job["rule"] in SHOWN else None


def _clock(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"about {seconds:.0f} s left"


def _follow_live(process: subprocess.Popen, folder: Path, state: State, console: Console) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(30), TextColumn("{task.fields[note]}"))
    with Progress(*columns, console=console, transient=True) as bars:
        whole = bars.add_task("starting", total=None, note="")
        shown: dict[str, Any] = {}
        while process.poll() is None:
            for line in new_lines(folder, state):
                bars.console.print(line, markup=False)
            if state.total:
                note = f"{len(state.done)} of {state.total} {state.units}, {_clock(state.seconds_left())}"
                bars.update(whole, description="all", total=state.total, completed=len(state.done), note=note)
            labels = {job["label"]: job for job in state.running}
            for label in [label for label in shown if label not in labels]:
                bars.remove_task(shown.pop(label))
            for label, job in labels.items():
                if label not in shown:
                    shown[label] = bars.add_task(label, total=None, note="")
                note = f"{time.time() - job['started']:.0f} s"
                bars.update(
                    shown[label], total=1.0 if "share" in job else None, completed=job.get("share", 0), note=note
                )
            time.sleep(0.2)


def _follow_plain(process: subprocess.Popen, folder: Path, state: State, console: Console) -> None:
    printed = time.monotonic()
    while process.poll() is None:
        for line in new_lines(folder, state):
            console.print(line, markup=False, soft_wrap=True)
            printed = time.monotonic()
        if state.total and time.monotonic() - printed > QUIET_FOR:
            now = [job["label"] + (f" {job['share']:.0%}" if "share" in job else "") for job in state.running]
            note = f"... {len(state.done)} of {state.total} {state.units}, {_clock(state.seconds_left())}"
            note += f"; now: {', '.join(now)}" if now else ""
            console.print(note, markup=False, soft_wrap=True)
            printed = time.monotonic()
        time.sleep(0.2)


def _finish(status: int, folder: Path, state: State, console: Console) -> int:
    """Print the result of the run: the table and the paths of report and artifacts, or the errors."""
    for line in new_lines(folder, state):
        console.print(line, markup=False, soft_wrap=True)
    output = printed(folder)
    if status:
        own = [] if state.ended else mistakes_in(output)
        killed = JOB_FAILED in output and state.killed
        rest = [] if killed or any("error" in job for job in state.ended) else output.splitlines()[-25:]
        for line in (line for line in own or rest if line not in state.said):
            console.print(line, markup=False, soft_wrap=True)
        if killed:
            way_on = "A killed job cannot say why; often memory was short. Run the same command to resume."
            console.print(way_on, markup=False, soft_wrap=True)
        if not own:
            console.print("Snakemake's full log is the newest file in .snakemake/log.", markup=False)
        return status
    if not state.plan:  # an option with which it did not even read the Snakefile
        console.print(output, end="", markup=False, soft_wrap=True)
        return status
    took = time.time() - state.begun
    outside = f", {state.outside_share():.0%} of it outside of jobs" if state.ended else " (nothing was left to do)"
    results = Path(os.path.relpath(state.plan["results"]))  # from here: Snakemake may run in another --directory
    page = results / "report" / "index.html"
    # Of jobs for other targets, a report that stands there says nothing.
    reported = page.exists() and (not state.ended or any(job["rule"] == "report" for job in state.ended))
    if reported:
        from turncredit.pipeline import expected_artifacts
        from turncredit.views.report.report import print_table

        print_table(results, expected_artifacts.current)
    console.print(f"\nTook {took // 60:.0f} min {took % 60:.0f} s{outside}.", markup=False)
    console.print("".join(f"{line}\n" for line in _gone(results)), end="", markup=False, soft_wrap=True)
    if reported:
        console.print(f"report     {page.resolve()}", markup=False, soft_wrap=True)
    console.print(f"artifacts  {results.resolve()}", markup=False, soft_wrap=True)
    return 0


def mistakes_in(output: str) -> list[str]:
    """The mistakes for which Snakemake began no job, a line each; empty if none is known.

    Once jobs have begun, this program's lines are notes, and none is the reason for a failure.
    """
    if BEGUN in output:
        return []
    lines = [line for line in output.splitlines() if line.startswith(OURS)]
    if LOCKED in output and (other := locks.holder(Path(".snakemake"))) is not None:
        host, process = other
        if host == socket.gethostname():
            return [f"turncredit: another run works in this folder (process {process} on {host}); wait until it ends"]
        return [
            f"turncredit: another run has locked this folder (process {process} on {host}), and whether it still works "
            "cannot be seen from here; wait until it ends, or, if it has, run: snakemake --unlock"
        ]
    if "InputFunctionException" in output:  # of a path that was asked for
        lines += [f"turncredit: {message}" for message in re.findall(r"^ +UserError: (.+)$", output, re.MULTILINE)]
    return [*lines, *map(_not_made, re.findall(r"^No rule to produce (\S+)", output, re.MULTILINE))]


def _not_made(target: str) -> str:
    """A line about a target, or a rule to be run again, that Snakemake does not know."""
    from turncredit.config.stages import stages

    if target in stages():
        return (
            f"turncredit: no rule runs {target} alone: with granularity round or run it is a part of jobs of the rule "
            f"{ROUNDS}, which skip what is there; to repeat it, remove its outputs (`turncredit where {target}`)"
        )
    return f"turncredit: no stage makes {target}; `turncredit where STAGE` prints the paths of a stage"


def _gone(results: Path) -> list[str]:
    """A line on artifacts that are gone although others were made from them: Snakemake does not look for these."""
    # The plan and the statistics behind it take a second to import, which no run should wait for before it starts.
    from turncredit.pipeline import integrity
    from turncredit.pipeline.expected_artifacts import plan_of

    try:
        missing = integrity.missing_from(plan_of(results))
    except UserError:
        return []
    if not missing:
        return []
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    return [
        f"missing    {missing[0].path}{more}: {missing[0].why}; turncredit check --repair {results}, then this "
        "command, make it again"
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
