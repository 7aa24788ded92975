"""A few faults of benchmarks/chaos, in the tests' own world; `make chaos` injects hundreds into a whole experiment."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from benchmarks.chaos import children, damage, faults, kills, machine, record, world
from benchmarks.chaos.faults import Baseline, Verdict
from tests import tiny
from tests.helpers import nonempty
from turncredit.data import provenance
from turncredit.errors import UserError
from turncredit.pipeline import loop
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.plan import Plan
from turncredit.policy.open import OpenPolicy

pytestmark = pytest.mark.slow

CHANGES = {"methods": ["flat_grpo"], "rounds": 1, "tracking": {"enabled": False}, "keep_policies": "all"}
TURNS = "rollouts/sft-t4k4T1.0/seed0/round01/turns.parquet"


@pytest.fixture(scope="module")
def made(request, tmp_path_factory) -> Baseline:
    """A round of one method, all of it made without a fault."""
    return _make(request.getfixturevalue("world"), tmp_path_factory.mktemp("made"))


def _make(start, folder: Path) -> Baseline:
    shutil.copytree(start.plan.results, folder / "results")
    plan = Plan(tiny.experiment(**CHANGES), folder / "results")
    # The first artifacts were written by their stages alone; here jobs do it, with metrics.
    first = [("config", JobKeys()), ("tasks", JobKeys(split="train")), ("rollout", plan.turns_at("flat_grpo", 0, 1))]
    for stage, at in first:
        for path in plan.outputs(stage, at).values():
            Path(path).unlink(missing_ok=True)
    ended = children.run(lambda: world.perform(plan, [*first, *loop.block(plan, "flat_grpo", 0, [1])]))
    assert ended.status == 0, ended.printed
    return faults.opened(folder, plan)


def step(plan: Plan, stage: str):
    """The job of a stage."""
    every = dict(loop.block(plan, "flat_grpo", 0, [1]))
    return stage, every.get(stage, plan.turns_at("flat_grpo", 0, 1))


@pytest.mark.parametrize(
    ("stage", "fault"),
    [
        ("credit", children.dies_at_rename(1, after=False)),
        ("update", children.dies_at_rename(1, after=True)),
        ("eval", children.dies_in_write(0)),
        ("rollout", children.dies_in("turncredit.rollouts.play", "Player.play")),
    ],
)
def test_a_killed_stage_is_made_again_with_the_same_bytes(made, tmp_path, stage, fault):
    assert kills.kill(made, step(made.plan, stage), "", fault=fault).inflict(tmp_path / "fault") == Verdict("same")


def test_a_killed_job_of_a_round_goes_on_with_the_same_bytes(made, tmp_path):
    how = {"fault": children.dies_at_rename(4, after=False)}
    fault = kills.kill_of_round(made, "flat_grpo", 0, [1], "", how)
    assert fault.inflict(tmp_path / "fault") == Verdict("same")


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json", "provenance.json"])
def test_a_flipped_bit_in_a_policy_is_named_by_the_job_that_reads_it(made, tmp_path, name):
    path = Path(made.plan.sft_policy(JobKeys())) / name
    at = path.stat().st_size * 2 // 3 if name != "provenance.json" else 0
    verdict = damage.flipped(made, "sft_policy", path, at, 2).inflict(tmp_path / "fault")
    assert verdict.outcome == "named"
    assert f"sft/policy/{name}: not " in verdict.printed


def test_a_flipped_bit_in_an_optimisers_state_is_named_before_it_is_used(made, tmp_path):
    folder = Path(shutil.copytree(made.plan.layout.path("policy", method="flat_grpo", seed=0, round=1), tmp_path / "p"))
    damage.flip(folder / "optimizer.safetensors", 1000, 3)
    assert OpenPolicy(folder, dtype="float32").tokenizer  # which has nothing to do with it
    with pytest.raises(UserError, match=r"p/optimizer.safetensors: not what was written there; `turncredit check"):
        provenance.verify(folder)


def test_a_policy_that_does_not_say_what_was_written_is_read(made, tmp_path):
    folder = Path(shutil.copytree(made.plan.sft_policy(JobKeys()), tmp_path / "p"))
    (folder / "provenance.json").unlink()
    assert OpenPolicy(folder, dtype="float32").tokenizer


@pytest.mark.parametrize("kind", ["metrics", "evals"])
def test_a_changed_byte_that_no_checksum_covers_is_found_by_the_check(made, tmp_path, kind):
    """Of a number in JSON, and in a table's footer: the file says nothing about it, its job's metrics do."""
    run = {"method": "flat_grpo", "seed": 0, "round": 1}
    path = Path(
        made.plan.metrics("eval", JobKeys(**run)) if kind == "metrics" else made.plan.layout.path("evals", **run)
    )
    at = path.read_bytes().index(b'"wall_s": ') + 10 if kind == "metrics" else path.stat().st_size - 9
    verdict = damage.flipped(made, "evals", path, at, 0).inflict(tmp_path / "fault")
    assert verdict.outcome == "named"
    assert path.name in verdict.printed


@pytest.mark.skipif(not machine.may_mount(), reason="needs to mount a file system")
@pytest.mark.parametrize("stage", ["credit", "update"])
def test_a_full_disk_is_one_line_that_names_the_file(made, tmp_path, stage):
    verdict = machine.on_small_disk(made, step(made.plan, stage), "", 4096).inflict(tmp_path / "fault")
    assert verdict.outcome == "named"
    assert verdict.printed.startswith(f"{stage} ")
    assert "No space left on device; free some space, or write to another disk" in verdict.printed


def test_a_limit_on_the_length_of_files_is_one_line_that_names_the_file(made, tmp_path):
    fault = children.small_files(30_000)
    verdict = machine.limited(made, step(made.plan, "update"), "full disk", "", fault).inflict(tmp_path / "fault")
    assert verdict.outcome == "named"
    assert "policy: File too large; raise the limit on the size of a file (ulimit -f)" in verdict.printed


def test_a_child_that_is_killed_says_so_and_what_it_printed():
    ended = children.run(lambda: print("so far", flush=True) or children.die())
    assert (ended.status, ended.last_line) == (-signal.SIGKILL, "so far")


def test_a_wrong_result_that_nobody_names_is_silent(made, tmp_path):
    """The harness itself: of a job that makes something else, and says nothing."""
    credit = step(made.plan, "credit")

    def makes_other_credit() -> None:
        from turncredit.pipeline.job import Job

        write = Job.write
        Job.write = lambda self, name, table: write(self, name, table.slice(1))

    verdict = machine.limited(made, credit, "", "", makes_other_credit).inflict(tmp_path / "fault")
    assert verdict.outcome == "SILENT"
    assert "credits/flat_grpo.parquet was left there and differs" in verdict.printed


def test_the_record_goes_on_behind_a_line_that_was_cut_short(tmp_path, capsys):
    lines = tmp_path / "faults.jsonl"
    row = {"name": "a | b", "kind": "a", "where": "b", "when": "c", "outcome": "same", "printed": "", "seconds": 1.0}
    lines.write_text(json.dumps(row) + "\n" + json.dumps(row)[:20])
    assert record.read(lines) == [row]
    assert record.write(record.read(lines), tmp_path) == 0
    assert "| a | 1 | 0 | 0 | 0 | 0 |" in capsys.readouterr().out
    (recorded,) = csv.DictReader((tmp_path / "faults.csv").open())
    assert recorded == {name: str(row.get(name, "")) for name in record.COLUMNS}


def test_metrics_of_another_version_have_no_hashes_and_are_read(made):
    from turncredit.data.metrics import read_metrics

    path = Path(made.plan.metrics(*step(made.plan, "credit")))
    data = json.loads(path.read_text(encoding="utf-8"))
    assert nonempty(data["files"]) == ["credits"]
    path.write_text(
        json.dumps({name: value for name, value in data.items() if name not in ("files", "hash")}), encoding="utf-8"
    )
    os.utime(path)
    assert read_metrics(path)["stage"] == "credit"
    path.write_text(json.dumps({**data, "wall_s": 1.0}), encoding="utf-8")
    with pytest.raises(UserError, match="changed since it was written"):
        read_metrics(path)
