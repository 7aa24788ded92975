"""A plain `pip install turncredit`: what works without its extras, and what says which one it needs.

`make test-light` installs the wheel into an empty environment; the other tests here hide the extras' modules from a
process that has them.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.credit import synthetic
from benchmarks.install import run as measure
from tests.audit import known_truth
from tests.results import synthetic as results
from turncredit.cli.main import COMMANDS
from turncredit.errors import EXTRAS

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
#: Modules that a plain installation lacks; scipy is for tests alone.
HIDDEN = {module for modules in EXTRAS.values() for module in modules} | {"scipy", "psutil"}
#: Runs commands, given as JSON, in this process, in which no finder knows the hidden modules.
WITHOUT = f"""
import json, sys
from importlib.machinery import PathFinder

everything = PathFinder.find_spec
PathFinder.find_spec = lambda name, *where: None if name.partition(".")[0] in {HIDDEN!r} else everything(name, *where)
from turncredit.cli.main import main
for command in json.loads(sys.argv[1]):
    sys.argv = ["turncredit", *command]
    try:
        main()
    except SystemExit as ended:
        print("STATUS", ended.code or 0, flush=True)
    else:
        print("STATUS 0", flush=True)
"""
#: Commands of a plain installation, in a folder with `material`, and what each says.
PLAIN = {
    "methods": "gigpo",
    "import chats.jsonl --out imported.parquet": "turns of 2 rollouts",
    "credit --method gigpo --turns turns.parquet --out gigpo.parquet": "turns credited with gigpo",
    "credit --method scpo --turns turns.parquet --out scpo.parquet": "turns credited with scpo",
    "credit --method random_credit --turns turns.parquet --out random.parquet": "turns credited with random_credit",
    "export turns.parquet --to atif --out trajectories --credits gigpo.parquet": "rollouts as atif",
    "export turns.parquet --to huggingface --out dataset --credits gigpo.parquet": "rollouts as huggingface",
    "judge label --turns household.parquet --out labels.parquet --env household": "labels.parquet",
    "fidelity --turns known/turns.parquet --credits known/credits.parquet --branches known/branches.parquet": "ceiling",
    "show turns.parquet": "rollout",
    "show turns.parquet g00000/g00000-0 --credits gigpo.parquet": "gigpo",
    "page --turns turns.parquet --credits gigpo.parquet --rollout g00000/g00000-0 --out page.html": "page.html",
    "view --export pages turns.parquet gigpo.parquet": "pages/index.html",
    "view --export experiment results --rollouts 2": "experiment/index.html",
    "prompt --env household": "task",
    "sql --file turns.parquet FROM/**/turns": "g00000",
    "sql --results results FROM/**/success": "flat_grpo",
    "score gigpo --rollouts 64": "gigpo",
    "env list": "household",
    "env play household": "you see",
    "where credit flat_grpo": "stage credit",
    "plan": "stages in",
    "status": "stages done",
    "init workflow": "files in workflow",
}
#: Commands that need an extra: the module that they ask for, and the extra.
NEED = {
    "run": ("snakemake", "pipeline"),
    "report results/synthetic": ("pandas", "pipeline"),
    "track results/synthetic": ("mlflow", "pipeline"),
    "check results": ("pandas", "pipeline"),
}


def material(folder: Path) -> None:
    """What the commands read."""
    turns, _ = synthetic.tables(synthetic.rows(3, 3, 6, seed=2))
    pq.write_table(turns, folder / "turns.parquet")
    household = {"group_id": ["g"], "rollout_id": ["r"], "turn": [0], "goal": ["put a mug in the fridge"]}
    said = {"action": ["go to fridge 1"], "next_observation": ["You arrive at fridge 1."], "reward": [0.0]}
    pq.write_table(pa.table({**household, **said}), folder / "household.parquet")
    (folder / "known").mkdir()
    columns = known_truth.make(groups=8, rollouts=2, turns=4)
    known_truth.write(folder / "known", columns, {"flat_grpo": columns["flat"]})
    messages = [{"role": "user", "content": "Hello?"}, {"role": "assistant", "content": "Good day."}]
    chats = [{"group_id": "g", "rollout_id": name, "reward": 1.0, "messages": messages} for name in "ab"]
    (folder / "chats.jsonl").write_text("\n".join(map(json.dumps, chats)), encoding="utf-8")
    (folder / "config.yaml").write_text("methods: [flat_grpo]\n", encoding="utf-8")
    (folder / "Snakefile").write_text("", encoding="utf-8")
    (folder / "results").mkdir()
    results.make(folder / "results", results.experiment(methods=("flat_grpo",), seeds=(0,), rounds=2, games=8))


def words(command: str) -> list[str]:
    return [word.replace("/**/", " ") for word in command.split()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("light")
    material(folder)
    return folder


@pytest.mark.slow
def test_every_command_of_a_plain_installation_works_without_the_extras(folder: Path) -> None:
    given = json.dumps([words(command) for command in PLAIN])
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, given],
        cwd=folder,
        input="",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    said = re.split(r"^STATUS (\d+)$", done.stdout, flags=re.MULTILINE)
    assert dict(zip(PLAIN, said[1::2], strict=True)) == dict.fromkeys(PLAIN, "0"), done.stderr
    for (command, expected), text in zip(PLAIN.items(), said[::2], strict=False):
        assert expected in text, command


@pytest.mark.slow
def test_a_command_that_needs_an_extra_says_which_in_one_line(folder: Path) -> None:
    for command, (module, extra) in NEED.items():
        given = json.dumps([words(command)])
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT, given], cwd=folder, capture_output=True, text=True, timeout=100, check=False
        )
        line = f"turncredit: this command needs {module}: pip install 'turncredit[{extra}]'\n"
        assert (done.stdout, done.stderr) == ("STATUS 2\n", line), command


def test_every_command_is_tried_without_the_extras() -> None:
    tried = {command.split()[0] for command in (*PLAIN, *NEED)}
    assert set(COMMANDS) - tried == {"config", "doctor", "clean"}


def test_the_extras_bring_the_modules_that_the_command_line_asks_for() -> None:
    packages = packages_distributions()
    named = {
        extra: {re.split(r"[<>=\[]", line)[0] for line in PROJECT["optional-dependencies"][extra]} for extra in EXTRAS
    }
    plain = {re.split(r"[<>=\[]", line)[0] for line in PROJECT["dependencies"]}
    for extra, modules in EXTRAS.items():
        # huggingface_hub comes with transformers.
        brought = {
            module: {name.lower() for name in packages[module]} for module in modules if module != "huggingface_hub"
        }
        assert all(names & named[extra] for names in brought.values()), extra
        assert not any(names & plain for names in brought.values())


def test_the_packages_own_requirements_are_ranges_and_only_the_lock_files_pin() -> None:
    extras = PROJECT["optional-dependencies"]
    lines = [*PROJECT["dependencies"], *extras["train"], *extras["pipeline"], *extras["all"]]
    assert [line for line in lines if "==" in line] == []
    assert "torch>=2.13,<3" in extras["train"]


@pytest.mark.light
def test_the_wheel_in_an_empty_environment_is_small_and_runs_every_plain_command(folder: Path, tmp_path: Path) -> None:
    """`make test-light`: a package index is needed."""
    installed = measure.install_wheel(tmp_path)
    assert installed.megabytes < measure.MOST_MEGABYTES
    there = subprocess.run(
        [
            installed.python,
            "-c",
            f"from importlib.util import find_spec; print([name for name in {sorted(HIDDEN)!r} if find_spec(name)])",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert there.stdout == "[]\n"
    for command, expected in PLAIN.items():
        done = subprocess.run(
            [installed.python.with_name("turncredit"), *words(command.replace("workflow", "other"))],
            cwd=folder,
            input="",
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        assert expected.replace("workflow", "other") in done.stdout, command


@pytest.mark.light
@pytest.mark.parametrize("extra", ["", "train"])
@pytest.mark.parametrize("trainer", measure.TRAINERS)
def test_it_is_resolved_beside_a_trainer_that_keeps_every_version_of_its_own(
    trainer: str, extra: str, tmp_path: Path
) -> None:
    alone, together = measure.beside(trainer, extra, tmp_path)
    assert {name: together.get(name) for name in alone} == alone
    assert "turncredit" in together
