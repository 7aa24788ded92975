"""The documentation says what is: its links lead somewhere, its commands, options and examples exist and run."""

from __future__ import annotations

import inspect
import json
import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pytest
import typer
import yaml
from typer.testing import CliRunner

from tests.docs import own_rollouts, pages
from tests.docs.pages import PAGES, ROOT, Block, Command
from tests.helpers import nonempty
from tests.importers import files
from tests.results import synthetic
from turncredit import config
from turncredit.audit.invariants import CHECKS
from turncredit.cli import main as cli
from turncredit.config.layout import Layout
from turncredit.credit.parts.configured import configured_method
from turncredit.data import tables
from turncredit.data.turns import SideTable, Turns, cell_stats
from turncredit.stats import intervals
from turncredit.views import sql
from turncredit.views.collect import collect
from turncredit.views.report.summary import summarise

COMMANDS = pages.commands()
QUERIES = [c for c in COMMANDS if c.words[:2] == ("turncredit", "sql") and len(c.words) > 2 and "..." not in c.words[2]]
#: Options of other programs, and configuration files of the reader's own, that pages name.
FOREIGN_OPTIONS = {"--reasoning-parser", "--structured-outputs-config", "--gpus", "--gres", "--qos"}  # vLLM's, sbatch's
PLACEHOLDERS = {"config/mine.yaml", "config/NAME.yaml"}
TARGETS = set(re.findall(r"^([\w-]+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with all kinds of tables, in a folder of its own."""
    folder = tmp_path_factory.mktemp("documented") / "results"
    experiment = synthetic.experiment(rounds=3, games=4, experiment="household")
    synthetic.audit(synthetic.make(folder, experiment), experiment)
    cache = tables.schema("judge_cache").empty_table()
    tables.write(cache, folder / "judge_cache" / "model.parquet", "judge_cache", synthetic.MADE_BY)
    return folder


@pytest.mark.parametrize("page", PAGES, ids=pages.name)
def test_every_link_and_image_of_a_page_leads_to_a_file_and_a_heading(page: Path) -> None:
    for link in pages.links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in pages.anchors(target), f"{link}: the headings are {pages.anchors(target)}"


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    """`make docs` fails otherwise."""
    text = (ROOT / "mkdocs.yml").read_text()
    for page in nonempty(page for page in PAGES if page.name != "README.md" or page.parent != ROOT):
        assert re.search(rf"[ :]{pages.name(page).removeprefix('docs/')}$", text, re.MULTILINE), page


@pytest.mark.parametrize("name", re.findall(r"<!-- turns of (\S+) -->", own_rollouts.PAGE.read_text(encoding="utf-8")))
def test_the_json_of_an_example_becomes_the_table_that_the_page_shows(name: str) -> None:
    page = own_rollouts.PAGE.read_text(encoding="utf-8")
    assert own_rollouts.turns_of(page, name) in page


def test_the_page_of_audits_lists_every_invariant() -> None:
    page = (ROOT / "docs/audit.md").read_text(encoding="utf-8")
    table = page[page.index("| about | what holds |") : page.index("[invariants.py]")]
    listed = re.findall(r"`(\w+)`", table)
    assert sorted(listed) == sorted([*CHECKS, "logprobs", "equal_steps"])


def test_the_pages_have_commands_of_every_program() -> None:
    """So that the tests below are not empty: a page in another form would hide its commands from them."""
    for program in pages.PROGRAMS:
        assert sum(command.words[0] == program for command in COMMANDS) >= 5, program


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_a_documented_command_exists_with_its_options(command: Command) -> None:
    program, *words = command.words
    if program == "make":
        assert {word for word in words if not re.match(r"-|[A-Z_]+=", word)} <= TARGETS
    elif program == "snakemake":
        assert set(_options(words)) <= _snakemake_options()
    else:
        found, rest = _find(command.words[1:])
        of_snakemake = found.context_settings.get("ignore_unknown_options")
        assert of_snakemake or set(_options(rest)) <= _known(found)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=pages.name)
def test_options_and_configuration_files_that_a_page_names_exist(page: Path) -> None:
    known = _snakemake_options() | FOREIGN_OPTIONS
    for script in ROOT.glob("benchmarks/**/*.py"):
        known |= set(re.findall(r"--\w[\w-]*", script.read_text()))
    for name in cli.COMMANDS:
        for part in _all_commands(cli._load(name)):
            known |= _known(part)
    options = {name for code in pages.inline_code(page) if re.match(r"--\w", code) for name in _options(code.split())}
    assert options - known == set()
    files = set(re.findall(r"(?<![\w/.])config/[\w./-]+\.yaml\b", page.read_text(encoding="utf-8"))) - PLACEHOLDERS
    assert [path for path in sorted(files) if not (ROOT / path).is_file()] == []


@pytest.mark.parametrize("block", pages.blocks("sql"), ids=str)
def test_a_documented_query_runs_on_results(block: Block, results: Path) -> None:
    queries = [part for part in block.text.split(";") if part.strip()]
    assert queries
    for query in queries:
        assert sql.answer(query, results).column_names


@pytest.mark.parametrize("command", QUERIES, ids=str)
def test_a_query_on_the_command_line_runs_on_results(
    command: Command, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(results.parent)
    assert sql.answer(command.words[2], results).column_names


@pytest.fixture(scope="module")
def household(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SYNTHETIC results of an experiment with the name, the rounds and the evaluations of the default one."""
    default = config.load([ROOT / "config.yaml"])
    modes = [mode.model_dump() for mode in default.eval.modes]
    own = {
        "experiment": default.experiment,
        "eval": {"games": 6, "every": default.eval.every, "modes": modes},
        "tasks": {"train": 64, "eval": 24},
    }
    folder = tmp_path_factory.mktemp("default") / "results"
    return synthetic.make(folder, synthetic.experiment(rounds=default.rounds, games=6, **own), turns=False)


def test_the_query_of_the_readme_gives_the_final_success_of_the_report(household: Path) -> None:
    """Over all modes and rounds it would give another ranking."""
    (command,) = (command for command in QUERIES if command.page == "README.md")
    assert command.words[3:] == ("--results", "results/household")
    final = summarise(collect(household)).sections["final"][0].rows
    found = {row["method"]: row["avg(success)"] for row in sql.answer(command.words[2], household).to_pylist()}
    assert found == {method: pytest.approx(row["final"].value) for method, row in final.items()}
    assert len(found) == 5


#: Commands of the pages that no test runs here: how they begin (a letter stands for any word), and why.
ELSEWHERE = {
    "turncredit run": "runs Snakemake for minutes; tests/pipeline runs it",
    "turncredit doctor": "asks the cluster's scheduler; tests/workflow/test_preflight.py runs it",
    "turncredit judge label --turns turns.parquet --judge llm": "needs a server with a language model",
    "turncredit judge label --turns logs.parquet --judge llm": "needs one; tests/judges/test_decisive.py runs it",
    "turncredit judge decisive --turns logs.parquet --labels": "reads what the line above it makes",
    "turncredit env serve": "serves until it is interrupted; tests/integrations runs it",
    "turncredit view results": "serves until it is interrupted; tests/viewer runs it",
    "turncredit view turns.parquet": "serves until it is interrupted; tests/viewer runs it",
    "turncredit env scienceworld": "needs Java; tests/envs/test_scienceworld_java.py runs it",
    "turncredit env searchqa play": "waits for a player",
    "turncredit env baselines webshop --settings": "reads WebShop's files, which are not part of the project",
    "turncredit env sokoban play": "waits for a player",
    "turncredit env virtualhome play": "waits for a player",
    "turncredit env desk play": "waits for a player",
    "turncredit env webshop play": "waits for a player",
    "turncredit check": "compares artifacts with their provenance, which synthetic ones lack; tests/workflow runs it",
    "turncredit show valid_turns": "shows the results of the run above it",
    "turncredit score --all": "scores for minutes; tests/audit/test_leaderboard.py runs it",
    "turncredit report": "draws for ten seconds; tests/report and tests/test_cli.py run it",
}
#: Names that stand for the reader's own on the pages, and what they are in the test.
OWN_NAMES = {
    "GROUP/ROLLOUT": "train-3-0/train-3-0#0",
    "ROLLOUT": "train-3-0/train-3-0#0",
    "game-0#3": "train-3-0#0",
    "4": "3",
}


def shown_here(page: Path) -> list[Command]:
    """The page's turncredit commands that are run: complete ones that are not `ELSEWHERE`."""
    shown = [c for c in pages.shown(page) if c.words[0] == "turncredit" and "..." not in " ".join(c.words)]
    return [c for c in shown if not any(" ".join(c.words).startswith(start) for start in ELSEWHERE)]


SHOWING = [page for page in PAGES if pages.name(page).startswith(("README", "docs/")) and shown_here(page)]


@pytest.fixture(scope="module")
def workspace(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the pages' commands read: results, the workflow's configurations, tables by their names."""
    folder = tmp_path_factory.mktemp("workspace")
    shutil.copytree(results, folder / "results")
    for name in ("config", "examples"):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy(ROOT / "config.yaml", folder)
    (folder / "config" / "mine.yaml").write_text("experiment: mine\n")
    (folder / "my_credit.py").write_text(_shown_method("python"))
    layout = Layout(folder / "results" / "household")
    for name in ("turns", "branches"):
        shutil.copy(layout.path(name, policy="flat_grpo", seed=0, round=3), folder / f"{name}.parquet")
    turns = str(folder / "turns.parquet")
    for name, method in (("credits", "scpo"), ("my_credits", "gigpo"), ("gigpo", "gigpo"), ("scpo", "scpo")):
        out = str(folder / f"{name}.parquet")
        _ran(["credit", "--method", method, "--turns", turns, "--out", out])
    for name, count in (("traces", 4), ("logs", 2)):  # without the third, rewards are 0 and 1
        files.lines(folder / f"{name}.jsonl", [files.episode(number) for number in range(count)])
    for page in (own_rollouts.PAGE, ROOT / "docs/decisive_steps.md"):
        for name, text in own_rollouts.json_files(page.read_text(encoding="utf-8")).items():
            (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("page", SHOWING, ids=pages.name)
def test_the_commands_that_a_page_shows_run_one_after_another(
    page: Path, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(workspace, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    for command in nonempty(shown_here(page)):
        _ran([OWN_NAMES.get(word, word).replace("sft-t64k8T1.0", "sft-t4k4T1.0") for word in command.words[1:]])


def test_what_is_said_to_run_elsewhere_stands_on_a_page() -> None:
    shown = [" ".join(command.words) for page in PAGES for command in pages.shown(page)]
    assert [start for start in ELSEWHERE if not any(line.startswith(start) for line in shown)] == []
    assert sum(len(shown_here(page)) for page in SHOWING) >= 35


@pytest.mark.parametrize("page", PAGES, ids=pages.name)
def test_a_page_calls_programs_by_their_names_as_in_an_activated_environment(page: Path) -> None:
    assert re.findall(r"\.venv/bin/(?!activate)\S*", page.read_text(encoding="utf-8")) == []


def test_a_documented_python_command_names_a_script_or_a_module_that_exists() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    modules = {name.rstrip(".") for name in re.findall(r"python -m ((?:benchmarks|tests|turncredit)[\w.]*)", text)}
    for module in nonempty(modules):
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), module
    for script in nonempty(set(re.findall(r"python ((?:benchmarks|workflow_scripts|examples)/[\w/]+\.py)", text))):
        assert (ROOT / script).is_file(), script


def _ran(words: list[str]) -> str:
    """The output of a command in this process, which must succeed."""
    run = CliRunner().invoke(cli.app, words)
    assert run.exit_code == 0, f"turncredit {' '.join(words)}: {run.output}{run.exception!r}"
    return run.output


def test_the_method_that_a_reader_is_shown_credits_turns_and_its_configuration_loads(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my_credit.py").write_text(_shown_method("python"), encoding="utf-8")
    Path("mine.yaml").write_text(_shown_method("yaml"), encoding="utf-8")
    experiment = config.load([ROOT / "config.yaml", "mine.yaml"])
    assert configured_method(experiment, "valid_turns").name == "valid_turns"
    turns = str(workspace / "turns.parquet")
    _ran(["credit", "--method", "my_credit.py:valid_turns", "--turns", turns, "--out", "credits.parquet"])
    found = tables.read("credits.parquet", "credits").to_pandas()
    valid = tables.read(turns, "turns").to_pandas()["valid"]
    assert found["advantage"].notna().all()
    assert (found["valid_part"][valid] >= 0).all()
    assert (found["valid_part"][~valid] <= 0).all()


def _shown_method(language: str) -> str:
    """The method of one's own in docs/own_method.md: its code (python) or its entry in a configuration (yaml)."""
    blocks = [block.text for block in pages.blocks(language) if block.page == "docs/own_method.md"]
    return next(text for text in blocks if "valid_turns" in text)


def test_what_the_page_of_turns_says_about_two_columns_holds_where_their_codes_mislead() -> None:
    (recipe,) = (code for code in pages.inline_code(ROOT / "docs/turns.md") if "!=" in code)
    keys = {"group_id": ["g"] * 3, "rollout_id": ["r"] * 3, "turn": [0, 1, 2], "reward": [0.0, 0.0, 1.0]}
    turns = Turns({**keys, "observation": ["a", "c", "c"], "next_observation": ["c", "c", "d"]})
    assert eval(recipe, {"turns": turns}).tolist() == [True, False, True]
    assert (turns.codes("observation", "mine") != turns.codes("next_observation", "mine")).tolist() != [
        True,
        False,
        True,
    ]


def test_success_by_method_round_and_seed_has_the_intervals_of_the_reports_rates(household: Path) -> None:
    query = _query("FROM success")
    evals = collect(household).evals
    rates = intervals.rates(evals[evals["mode"] == "sampled"], ["method", "round", "seed"])
    found = sql.answer(query, household.parent).to_pandas()
    pd.testing.assert_frame_equal(found, rates[list(found.columns)], check_dtype=False)


@pytest.mark.slow
def test_tokens_by_method_are_those_of_the_report(results: Path) -> None:
    spent = next(grid for grid in summarise(collect(results / "household")).grids if grid.name == "spending")
    found = sql.answer(_query("name = 'tokens'"), results).to_pylist()
    updated = {row["paid_by"]: row["updated_on"] for row in nonempty(found)}
    assert updated == {name: row["learned"].value for name, row in spent.rows.items() if row["learned"] != ""}


def test_the_turns_where_credit_and_truth_disagree_most_are_the_ten_with_the_smallest_product(results: Path) -> None:
    query = _query("FROM branches b").replace("has_judge", "has_progressive")  # which these results have
    whole = sql.answer(query.replace("LIMIT 10", ""), results).to_pandas()
    product = whole["advantage_true"] * whole["advantage"]
    assert (product < 0).all()
    assert product.is_monotonic_increasing
    pd.testing.assert_frame_equal(sql.answer(query, results).to_pandas(), whole.head(10))
    assert len(whole) > 10


def test_what_made_a_number_is_said_by_the_metadata_of_its_file(results: Path) -> None:
    query = _query("FROM provenance")
    for row in nonempty(sql.answer(query, results).to_pylist()):
        said = tables.metadata(row["path"])
        assert (row["stage"], row["code"], json.loads(row["config"])) == (said["stage"], said["code"], said["config"])


def test_what_made_a_policy_is_asked_for_without_what_only_looks_at_it(results: Path) -> None:
    """SYNTHETIC results have no policies."""
    rows = nonempty(sql.answer(_query("FROM provenance"), results).to_pylist())
    assert {(row["artifact"], row["policy"], row["method"], row["round"]) for row in rows if row["round"]} == {
        ("turns", "sft-t4k4T1.0", None, 1),
        ("credits", "sft-t4k4T1.0", "flat_grpo", 1),
        ("turns", "flat_grpo", None, 2),
        ("credits", "flat_grpo", "flat_grpo", 2),
        ("evals", None, "flat_grpo", 2),
    }


def test_credit_against_progress_is_asked_for_only_where_progress_was_measured(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results, tmp_path / "results")
    layout = Layout(tmp_path / "results" / "household")
    gone = [found.path for found in layout.find("measures") if found.keys["round"] != 1]
    for path in nonempty(gone):
        path.unlink()
    rows = nonempty(sql.answer(_query("run_credits c JOIN turns"), tmp_path / "results").to_pylist())
    assert {row["round"] for row in rows} == {1}


def test_credit_against_progress_leaves_out_turns_whose_goal_is_out_of_reach() -> None:
    # The last turn loses the goal: a distance of -1 is not 5 actions nearer.
    rows = pa.table(
        {
            "turn_id": [0, 1, 2, 3],
            "advantage": [0.1, 0.2, 0.3, -9.0],
            "distance_before": [5, 6, 7, 4],
            "distance": [5, 5, 5, -1],
        }
    )
    credited = rows.select(["turn_id", "advantage"]).append_column("method", pa.array(["m"] * 4))
    with duckdb.connect() as connection:
        connection.register("turns", rows.drop_columns("advantage"))
        connection.register("run_credits", credited.append_column("round", pa.array([1] * 4)))
        found = connection.execute(_query("run_credits c JOIN turns")).fetchall()
    assert found == [("m", 1, pytest.approx(1.0))]


@pytest.mark.parametrize("block", pages.blocks("sql"), ids=str)
def test_the_methods_that_a_query_names_are_those_of_the_default_experiment(block: Block) -> None:
    named = set(re.findall(r"method = '(\w+)'", block.text))
    assert named <= set(config.load([ROOT / "config.yaml"]).methods)


def _query(part: str) -> str:
    """The first query of docs/sql.md that contains `part`."""
    blocks = [block.text for block in pages.blocks("sql") if block.page == "docs/sql.md"]
    return next(query for block in blocks for query in block.split(";") if part in query)


@pytest.mark.parametrize("block", pages.blocks("yaml"), ids=str)
def test_documented_configuration_loads(block: Block, tmp_path: Path) -> None:
    assert set(yaml.safe_load(block.text)) <= set(config.Experiment.model_fields)
    path = tmp_path / "example.yaml"
    path.write_text(block.text)
    in_sweep = [[f"sweep={{only: {name}}}"] for name in config.names_in_sweep([path])]
    for entries in in_sweep or [[]]:
        experiment = config.load([path], entries)
        for method, entry in experiment.define.items():
            if entry.credit is None:  # a reader's own file: the test below has the one that is shown
                configured_method(experiment, method)


@pytest.mark.parametrize("block", pages.blocks("python"), ids=str)
def test_documented_python_compiles_and_runs_where_it_imports_what_it_uses(block: Block) -> None:
    code = compile(block.text, str(block), "exec")
    if re.search(r"^(import|from) ", block.text, re.MULTILINE):  # otherwise it is a line out of a longer file
        exec(code, {"__name__": "example"})


def test_everything_public_of_turns_stands_on_its_page() -> None:
    table = {"group_id": ["a"], "rollout_id": ["x"], "turn": [0], "reward": [1.0]}
    turns = Turns(table)
    names = {*vars(turns), *dir(Turns), *dir(SideTable)}
    page = (ROOT / "docs" / "turns.md").read_text()
    missing = [name for name in names if not name.startswith("_") and not re.search(rf"`{name}\b", page)]
    assert set(missing) <= {"where", "name", "turns"}
    assert f"`turncredit.data.turns.cell_stats{_parameters(cell_stats)}`" in page


def _parameters(function: Callable[..., Any]) -> str:
    """A function's parameters as a page writes them: names, with the default values."""
    parameters = inspect.signature(function).parameters.values()
    return f"({', '.join(str(one.replace(annotation=one.empty)) for one in parameters)})"


def _find(words: tuple[str, ...]) -> tuple[typer.core.TyperCommand, tuple[str, ...]]:
    """The command that a line runs, groups stepped into, and what follows its name."""
    if words[0] not in cli.COMMANDS:
        assert words[0] in ("--help", "--version"), f"turncredit has no command '{words[0]}'"
        return typer.main.get_command(cli.app), ()
    found, rest = cli._load(words[0]), words[1:]
    context = typer.Context(found)
    while rest and hasattr(found, "list_commands") and rest[0] in found.list_commands(context):
        found, rest = found.get_command(context, rest[0]), rest[1:]
    return found, rest


def _all_commands(command: typer.core.TyperCommand) -> list[typer.core.TyperCommand]:
    if not hasattr(command, "list_commands"):
        return [command]
    context = typer.Context(command)
    inside = [command.get_command(context, name) for name in command.list_commands(context)]
    return [command, *(part for child in inside for part in _all_commands(child))]


def _known(command: typer.core.TyperCommand) -> set[str]:
    return {"--help", *(option for part in command.params for option in (*part.opts, *part.secondary_opts))}


def _options(words: tuple[str, ...] | list[str]) -> list[str]:
    return [word.partition("=")[0] for word in words if re.match(r"--\w", word)]


@cache
def _snakemake_options() -> frozenset[str]:
    from snakemake.cli import get_argument_parser

    return frozenset(get_argument_parser()._option_string_actions)
