from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

from tests import tiny
from tests.helpers import nonempty, turncredit
from tests.results import synthetic
from turncredit import __version__
from turncredit.cli import main as cli
from turncredit.data import provenance

HEAVY = ("torch", "transformers", "mlflow", "textworld", "pandas", "matplotlib", "duckdb", "pyarrow", "scipy")


def test_help_names_every_command():
    out = turncredit("--help").stdout
    for name, (_, line) in cli.COMMANDS.items():
        assert name in out
        assert line.split(".", maxsplit=1)[0][:30] in " ".join(out.split())


def test_no_command_s_line_is_cut_at_80_columns():
    lines = CliRunner().invoke(cli.app, ["--help"], terminal_width=80).output.partition("Commands:")[2].splitlines()
    assert [line for line in nonempty(lines) if line.endswith("...")] == []
    assert max(map(len, lines)) <= 80


def test_help_imports_nothing_heavy():
    code = f"""
import sys
sys.argv = ["turncredit", "--help"]
from turncredit.cli.main import main
try:
    main()
except SystemExit:
    pass
print("HEAVY", [name for name in {HEAVY!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "HEAVY []" in done.stdout


@pytest.mark.slow
def test_the_commands_that_are_typed_all_day_import_neither_torch_nor_pandas(tmp_path):
    (tmp_path / "config.yaml").write_text("methods: [gigpo]\n")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "numbers.parquet")
    commands = ("methods", "sql --file numbers.parquet FROM/**/numbers", "where credit gigpo", "plan", "status")
    code = f"""
import sys
import turncredit.pipeline.run
print("HEAVY run 0", [name for name in ("pydantic", "pyarrow", *{HEAVY!r}) if name in sys.modules])
from turncredit.cli.main import main
for command in {commands!r}:
    sys.argv = ["turncredit", *command.split()]
    try:
        main()
    except SystemExit as ended:
        heavy = {{*{HEAVY!r}}} - {{"duckdb", "pyarrow"}}
        print("\\nHEAVY", command, ended.code, [name for name in heavy if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True, cwd=tmp_path
    )
    said = [line for line in done.stdout.splitlines() if line.startswith("HEAVY ")]
    assert said == [f"HEAVY {command} 0 []" for command in ("run", *commands)]


def test_every_command_has_the_same_plain_help_under_both_options():
    groups = {"env": ["list", "serve", "household"], "judge": ["label", "agreement", "roles"]}
    every = [(name, *rest) for name in cli.COMMANDS for rest in ([], *([part] for part in groups.get(name, [])))]
    for words in nonempty(every):
        short, long = (CliRunner().invoke(cli.app, [*words, option]) for option in ("-h", "--help"))
        assert (short.exit_code, short.output) == (0, long.output), words
        assert re.match(rf"Usage: (root|turncredit) {' '.join(words)} ", short.output), words
        assert not set(short.output) & set("╭│╰"), words


def test_the_version_is_printed_with_the_commit_in_a_checkout():
    commit = r"\+[0-9a-f]{12}(\.dirty)?" if (tiny.ROOT / ".git").exists() else ""
    assert re.fullmatch(rf"turncredit {re.escape(__version__)}{commit}\n", turncredit("--version").stdout)


def test_the_command_runs_as_a_module_too():
    done = subprocess.run([sys.executable, "-m", "turncredit", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == turncredit("--version").stdout


def test_the_version_of_an_installation_from_a_repository_has_its_commit(tmp_path, monkeypatch):
    class Installed:
        def read_text(self, _: str) -> str:
            return json.dumps(
                {"url": "https://host/x.git", "vcs_info": {"vcs": "git", "commit_id": "0123456789abcdef"}}
            )

    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "turncredit" / "provenance.py"))
    monkeypatch.setattr(provenance.importlib.metadata, "distribution", lambda _: Installed())
    assert provenance.code_version.__wrapped__() == f"{__version__}+0123456789ab"


def test_a_mistake_is_one_line_on_stderr_and_exit_2(tmp_path):
    words = ("sql", "select 1 from evals", "--results", str(tmp_path / "nowhere"))
    code = "from turncredit.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"turncredit: {tmp_path}/nowhere: no such folder")


def test_an_unknown_command_names_the_nearest():
    assert "'report'" in turncredit("repotr").stderr


def test_a_command_whose_part_is_not_installed_says_so_and_leaves_the_others_alone(monkeypatch):
    monkeypatch.setitem(cli.COMMANDS, "env", ("turncredit.no_such_part.cli:app", "gone"))
    with pytest.raises(cli.UserError, match="'env' is not part of this installation"):
        cli._load("env")
    assert cli._load("sql").name == "sql"


def test_an_import_error_inside_a_part_is_not_hidden(monkeypatch, tmp_path):
    (tmp_path / "broken_part.py").write_text("import no_such_library\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(cli.COMMANDS, "env", ("broken_part:app", "broken"))
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        cli._load("env")


def test_config_prints_an_experiment_whose_data_are_not_here_and_warns(tmp_path):
    (tmp_path / "a.yaml").write_text("env: {household: {source: real, data_root: nowhere}}\nrounds: 3\n")
    (tmp_path / "b.yaml").write_text("rounds: 5\nrollout: {tasks: 4}\n")
    done = turncredit("config", "a.yaml", "b.yaml", "--json", cwd=tmp_path)
    data = json.loads(done.stdout)
    assert (data["rounds"], data["rollout"]["tasks"], data["rollout"]["group_size"]) == (5, 4, 8)
    assert done.stderr.startswith("turncredit: warning: no folder nowhere/json_2.1.1")
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)


def test_config_shows_what_snakemake_would_run_and_the_file_of_each_value(tmp_path):
    (tmp_path / "config.yaml").write_text("experiment: mine\nrounds: 3\nrollout: {tasks: 4}\nmethods: [rloo]\n")
    (tmp_path / "more.yaml").write_text("rounds: 5\ndefine:\n  twice: {base: gigpo, params: {norm: mean}}\n")
    done = turncredit("config", "more.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert {"experiment: mine  # config.yaml", "rounds: 5  # more.yaml", "methods: [rloo]  # config.yaml"} <= set(lines)
    assert {"  tasks: 4  # config.yaml", "  group_size: 8", "      norm: mean  # more.yaml"} <= set(lines)
    assert yaml.safe_load(done.stdout) == json.loads(turncredit("config", "more.yaml", "--json", cwd=tmp_path).stdout)
    assert turncredit("config", cwd=tmp_path).stdout.count("# config.yaml") == 4


def test_configuration_files_follow_one_option_as_in_snakemake(tmp_path):
    (tmp_path / "config.yaml").write_text("experiment: mine\n")
    (tmp_path / "a.yaml").write_text("rounds: 3\n")
    (tmp_path / "b.yaml").write_text("methods: [rloo]\nseeds: [0, 1]\n")
    for command in (["plan"], ["status"], ["where", "credit", "rloo", "--round", "3"]):
        together = turncredit(*command, "--configfile", "a.yaml", "b.yaml", "--results", "r", cwd=tmp_path)
        apart = turncredit(*command, "--configfile", "a.yaml", "--configfile", "b.yaml", "--results", "r", cwd=tmp_path)
        assert together.returncode == 0, together.stderr
        assert together.stdout == apart.stdout
    assert turncredit("where", "--configfile", "a.yaml", "b.yaml", "credit", "rloo", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("rollout: {group_sice: 4}", "unknown key 'rollout.group_sice' (did you mean 'group_size'?)"),
        ("methods: [gigppo]", "methods: unknown method 'gigppo' (did you mean 'gigpo'?)"),
        ("rounds: 1\nrounds: 2", "line 2: the key 'rounds' is given twice, first in line 1; remove one of the two"),
    ],
)
def test_config_refuses_what_snakemake_would_refuse_in_one_line_with_status_2(tmp_path, text, line):
    (tmp_path / "a.yaml").write_text(text)
    done = turncredit("config", "a.yaml", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("turncredit: ")
    assert line in done.stderr


def test_run_in_a_folder_without_a_workflow_says_how_to_get_one(tmp_path):
    done = turncredit("run", "--cores", "1", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"turncredit: no Snakefile in this folder ({tmp_path})")
    assert "`turncredit init DIR`" in done.stderr


def test_the_help_of_run_names_the_options_of_snakemake_that_matter():
    lines = CliRunner().invoke(cli.app, ["run", "--help"], terminal_width=80).output.splitlines()
    named = {words[0] for line in lines if (words := line.split()) and words[0].startswith("-")}
    assert {"--cores", "--configfile", "--config", "-n", "--keep-going", "--profile"} <= named


@pytest.mark.parametrize("words", [["check"], ["check", "results"], ["sql", "select 1"]], ids=" ".join)
def test_a_command_about_results_looks_in_results_and_advises_no_option_that_it_lacks(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = set(re.findall(r"--\w+", CliRunner().invoke(cli.app, [words[0], "--help"]).output))
    for there in (False, True):
        if there:
            Path("results").mkdir()
        error = CliRunner().invoke(cli.app, words).exception
        assert str(error).startswith("results: no ")
        assert set(re.findall(r"--\w+", str(error))) <= options


@pytest.mark.slow
def test_report_makes_the_page_and_prints_the_table(tmp_path):
    config = synthetic.experiment(methods=["flat_grpo"], seeds=[0], rounds=1, games=6)
    folder = synthetic.make(tmp_path, config, turns=False)
    done = turncredit("report", str(folder))
    assert done.returncode == 0, done.stderr
    assert "flat_grpo" in done.stdout
    assert done.stdout.endswith(f"report: {folder}/report/index.html\n")
    assert (folder / "report/index.html").exists()


@pytest.mark.slow
def test_report_on_a_folder_without_results_leaves_no_file(tmp_path):
    done = turncredit("report", str(tmp_path), "--out", str(tmp_path / "out"))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert not (tmp_path / "out").exists()


def test_single_keys_follow_one_option_and_override_the_files_as_in_snakemake(tmp_path):
    (tmp_path / "config.yaml").write_text("experiment: mine\nrounds: 3\nmethods: [rloo]\n")
    keys = ("--config", "rounds=2", "seeds=[0, 1]", "update={lr: 0.5}")
    done = turncredit("config", *keys, "--json", cwd=tmp_path)
    data = json.loads(done.stdout)
    assert (data["rounds"], data["seeds"], data["update"]["lr"]) == (2, [0, 1], 0.5)
    assert "rounds: 2  # --config rounds=2" in turncredit("config", *keys, cwd=tmp_path).stdout
    for command in (["plan"], ["status"]):
        assert turncredit(*command, *keys, cwd=tmp_path).stdout != turncredit(*command, cwd=tmp_path).stdout
    assert "round 2" in turncredit("where", "credit", "rloo", "--round", "2", *keys, cwd=tmp_path).stdout
    assert turncredit("status", "--config", "rounds", cwd=tmp_path).stderr.startswith(
        "turncredit: --config rounds: write key="
    )


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("run --cores 0", "--cores 0: "),
        ("run --cores -1", "--cores -1: "),
        ("run --cores 1 a.yaml", "a.yaml: give a configuration as an option, --configfile a.yaml"),
        ("status --results done", "--results done: this is an experiment's folder; give the one above it (.)"),
    ],
)
def test_what_snakemake_would_misread_is_refused_in_one_line(tmp_path, words, line):
    (tmp_path / "config.yaml").write_text("experiment: mine\n")
    (tmp_path / "a.yaml").write_text("rounds: 2\n")
    (tmp_path / "Snakefile").touch()
    (tmp_path / "done").mkdir()
    (tmp_path / "done/config.json").write_text("{}")
    done = turncredit(*words.split(), cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith(f"turncredit: {line}")


def test_a_query_may_begin_with_a_comment(tmp_path):
    (tmp_path / "results/new").mkdir(parents=True)
    (tmp_path / "results/new/config.json").write_text("{}")
    done = turncredit(
        "sql", "-- how many?\nSELECT count(*) AS evaluations FROM evals", "--format", "csv", "--all", cwd=tmp_path
    )
    assert (done.returncode, done.stdout.split()) == (0, ["evaluations", "0"]), done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["-n", "--config", "rounds=3", "methods=[flat_grpo]", "--", "runs"],
        ["--configfile", "mine.yaml", "--", "runs", "audit"],
        ["--", "--", "runs"],
        ["runs", "--cores", "2"],
    ],
)
def test_run_passes_all_of_its_arguments_on_in_their_order(arguments, monkeypatch, tmp_path):
    """Also the `--` before targets, without which they would be taken for more configuration."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Snakefile").touch()
    for name in ("config.yaml", "mine.yaml"):
        (tmp_path / name).write_text("rounds: 2")
    passed = []
    monkeypatch.setattr("turncredit.pipeline.run.main", lambda given: passed.extend(given) or 0)
    assert CliRunner().invoke(cli.app, ["run", *arguments]).exit_code == 0
    assert passed == arguments
