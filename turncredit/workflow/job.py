"""What a job's script calls: it runs one stage, says how it went, and measures it.

A script in `workflow_scripts/` is `stage.run(main, globals().get("snakemake"))` and a `main(job)` that hands the job's
files to a library function. Each job leaves `<log>.job.json` beside its log, with which the script repeats it by hand:

    python workflow_scripts/rollout.py results/household/logs/rollout/sft-t32k8T1.0-seed0.job.json
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from turncredit.config import Experiment, from_mapping
from turncredit.errors import UserError
from turncredit.workflow import watch
from turncredit.workflow.watch import write_json


@dataclass(frozen=True)
class Job:
    """One job of the pipeline. `input` and `output` are paths by name; `params` is what the rule computed.

    `threads` is how many cores the job was given, at most what its rule asked for.
    """

    stage: str
    rule: str
    config: dict[str, Any]
    input: dict[str, Any]
    output: dict[str, str]
    wildcards: dict[str, str] = field(default_factory=dict)
    params: dict[str, Any] = field(default_factory=dict)
    log: str | None = None
    threads: int = 1

    @property
    def experiment(self) -> Experiment:
        """The whole configuration."""
        return from_mapping(self.config)

    @property
    def label(self) -> str:
        """The rule and its wildcards, as people say it: `rollout flat_grpo seed0 round02`, `eval sft round01`."""
        named = {"seed": "seed{}", "round": "round{}"}
        rule = self.rule.removesuffix("_last").removesuffix("_audited").replace("_", " ")
        return " ".join([rule, *(named.get(key, "{}").format(value) for key, value in self.wildcards.items())])


def run(main: Callable[[Job], Mapping[str, float]], snakemake: Any = None) -> None:
    """Run `main` on the job that Snakemake, or the `.job.json` named on the command line, describes.

    What the stage prints goes to the job's log. Its metrics go to the output called `metrics`: wall and CPU seconds
    of the stage itself, the peak memory of its process, and what `main` returns. A mistake of the user's is one line
    on stderr and exit status 2; any other error is one line there and a traceback in the log, and status 1.
    """
    job = _from_snakemake(snakemake) if snakemake is not None else _from_file(sys.argv)
    if job.log:
        Path(job.log).parent.mkdir(parents=True, exist_ok=True)
        if snakemake is not None:
            write_json(_job_file(job.log), asdict(job))
    with _logged(job.log) as say, watch.announced(job.rule, job.label) as tell:
        _clear_leftovers(job.output.values())
        started, clock, before = time.time(), time.perf_counter(), _cpu_seconds()
        try:
            metrics = dict(main(job))
        except UserError as error:
            line, status = f"{job.label}: {error}", 2
        except Exception as error:
            traceback.print_exc()
            where = f"; the traceback is in {job.log}" if job.log else ""
            line, status = f"{job.label}: {type(error).__name__}: {error}{where}", 1
        else:
            status = 0
        if status:
            tell(error=line)
            say(line)
            sys.exit(status)
        tell(metrics=metrics)
        measured = {
            "stage": job.stage,
            "started": started,
            "wall_s": time.perf_counter() - clock,
            "cpu_s": _cpu_seconds() - before,
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
        if "metrics" in job.output:
            write_json(Path(job.output["metrics"]), {**measured, "metrics": metrics})


def _from_snakemake(snakemake: Any) -> Job:
    """A `Job` of the `snakemake` object of a script; paths and values become plain strings, lists and numbers."""
    return Job(
        stage=snakemake.params["stage"],
        rule=snakemake.rule,
        config=dict(snakemake.config),
        input={name: _plain(value) for name, value in snakemake.input.items()},
        output={name: str(value) for name, value in snakemake.output.items()},
        wildcards={name: str(value) for name, value in snakemake.wildcards.items()},
        params={name: value for name, value in snakemake.params.items() if name not in {"stage", "reads"}},
        log=str(snakemake.log[0]) if len(snakemake.log) else None,
        threads=int(snakemake.threads),
    )


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, str) else [str(part) for part in value]


def _from_file(argv: list[str]) -> Job:
    """The job that the file named on the command line describes."""
    if len(argv) != 2:
        raise SystemExit(f"usage: python {argv[0]} FILE.job.json (each job leaves one beside its log)")
    path = Path(argv[1])
    try:
        return Job(**json.loads(path.read_text()))
    except FileNotFoundError:
        raise SystemExit(f"{path}: no such file; each job leaves a .job.json beside its log") from None
    except (ValueError, TypeError) as error:
        raise SystemExit(f"{path}: not a job's description ({error})") from None


def _job_file(log: str) -> Path:
    return Path(log).with_suffix(".job.json")


@contextmanager
def _logged(log: str | None):
    """Send everything that is printed, also by libraries' native code, to `log`; yields how to reach the terminal.

    A line that `yield`ed function says goes to the terminal and to the log.
    """
    if log is None:
        yield lambda line: print(line, file=sys.stderr, flush=True)
        return
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)
        os.write(kept[1], f"{line}\n".encode())

    with open(log, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        yield say
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for target, saved in enumerate(kept, start=1):
            os.dup2(saved, target)
            os.close(saved)


def _clear_leftovers(outputs: Iterable[str]) -> None:
    """Remove what a killed job left of these outputs: files and folders under temporary names."""
    for output in map(Path, outputs):
        for left in (*output.parent.glob(f".{output.name}.*.part"), *output.parent.glob(f".{output.name}.*.old")):
            shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)


def _cpu_seconds() -> float:
    """User and system seconds of this process and of its children that have ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
