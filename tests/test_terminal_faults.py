"""Interrupts, closed pipes and full disks end a command without a traceback; `sql` answers queries and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.processes import alive, wait_for
from turncredit.errors import UserError
from turncredit.pipeline import run
from turncredit.views import sql

COMMAND = [sys.executable, "-c", "from turncredit.cli.main import main; main()"]


@pytest.mark.slow
@pytest.mark.parametrize("format", ["table", "csv", "json"])
def test_a_reader_that_has_gone_is_no_error(format, finished):
    arguments = ["sql", "select * from turns", "--results", str(finished), "--all", "--format", format]
    process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    _, said = process.communicate(timeout=60)
    assert said == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_a_full_disk_is_one_line():
    with open("/dev/full", "w", encoding="utf-8") as full:
        made = subprocess.run([*COMMAND, "methods"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert made.returncode == 2
    assert made.stderr.splitlines()[0].startswith("turncredit: No space left on device; free some space")
    assert "Traceback" not in made.stderr


def test_a_path_that_no_disk_holds_is_one_line(tmp_path):
    words = ["credit", "--method", "gigpo", "--turns", "a.parquet", "--out", f"{'x' * 300}.parquet"]
    made = subprocess.run([*COMMAND, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert made.returncode == 2
    assert made.stderr.endswith("File name too long; give a shorter path\n")
    assert made.stderr.count("\n") == 1


def test_output_that_is_closed_from_the_start_is_no_error(finished):
    words = ["sql", "select 1 from runs", "--results", str(finished), "--all"]
    closed = ["sh", "-c", 'exec "$@" >&-', "sh"]
    made = subprocess.run([*closed, *COMMAND, *words], stderr=subprocess.PIPE, text=True, check=False)
    assert (made.returncode, made.stderr) == (0, "")


@pytest.mark.parametrize(
    "query",
    [
        "copy (select 1) to '{folder}/made.csv'",
        "copy (select 1) to '{folder}/made.parquet' (format parquet)",
        "attach '{folder}/made.db'",
        "export database '{folder}/made'",
        "create table made as select 1",
        "install httpfs",
        "load httpfs",
        "set enable_external_access = true",
        "select 1; copy (select 1) to '{folder}/made.csv'",
        "from read_text('{folder}/secret.txt')",
        "select * from read_csv('{folder}/secret.txt')",
        "select * from '{folder}/secret.txt'",
        "from glob('{folder}/*')",
        "from read_text('{results}/../secret.txt')",
        "select * from read_csv('http://127.0.0.1:1/a.csv')",
    ],
)
def test_a_query_reads_the_results_and_nothing_else(query, finished, tmp_path):
    (tmp_path / "secret.txt").write_text("a secret\n")
    with pytest.raises(UserError) as caught:
        sql.answer(query.format(folder=tmp_path, results=finished), finished)
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["secret.txt"]


@pytest.mark.parametrize("query", ["select count(*) from turns", "from runs", "describe turns", "explain select 1"])
def test_queries_that_read_are_answered(query, finished):
    assert sql.answer(query, finished).num_rows > 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--configfile", "missing.yaml"], "missing.yaml: cannot read this configuration file"),
        (["--configfile", "fine.yaml", "empty.yaml"], "empty.yaml: this configuration file is empty"),
        (["--configfile=broken.yaml"], "broken.yaml: line 2: not valid YAML"),
        (["--configfiles", "twice.yaml", "--cores", "1"], "twice.yaml: line 2: the key 'a' is given twice"),
        (["--config", "rounds"], "--config rounds: write key=value"),
        (["--config", "rounds=3", "update.lr=0.1"], "--config 'update={lr: 0.1}'"),
        (["--config", "a:b=c"], "'a:b' is no key"),
        (["--config", "=3"], "'' is no key"),
        (["-C", "policy.scratch.hidden=8"], "--config 'policy={scratch: {hidden: 8}}'"),
        ([], "config.yaml: line 2: the key 'a' is given twice"),
    ],
)
def test_a_configuration_that_snakemake_would_trip_over_is_refused_in_one_line(arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = {"fine": "a: 1\n", "empty": "", "broken": "a: [1\n", "twice": "a: 1\na: 2\n", "config": "a: 1\na: 2\n"}
    for name, text in texts.items():
        Path(f"{name}.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        run.main(arguments)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


#: A run whose Snakemake says something and then takes long, as one that has been told to stop.
# SIGINT is ignored by what a shell without job control starts in the background, tests too.
SLOW = """
import signal, subprocess, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from turncredit.pipeline import run
run.STOP_WITHIN = 0.5
program = "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('a dump', flush=True)"
program += f"; open('pid', 'w').write(str(__import__('os').getpid())); time.sleep(60)"
start = subprocess.Popen
run.subprocess.Popen = lambda command, **options: start([sys.executable, "-c", program], **options)
print("ready", flush=True)
sys.exit(run.main(["--cores", "1"]))
"""


def begun(folder):
    """The process of `SLOW` in `folder`, whose Snakemake has begun."""
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    assert wait_for(lambda: (folder / "pid").exists() and (folder / "pid").read_text())
    return process


def test_ctrl_c_ends_a_run_with_status_130_and_nothing_of_snakemakes(tmp_path):
    process = begun(tmp_path)
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert said == "Stopping: running jobs are cancelled; run the same command to resume.\n"
    assert errors == ""


def test_a_run_that_is_killed_leaves_no_snakemake_that_keeps_the_folder_locked(tmp_path):
    process = begun(tmp_path)
    process.kill()
    process.wait(timeout=30)
    assert wait_for(lambda: not alive(int((tmp_path / "pid").read_text())), 5)
