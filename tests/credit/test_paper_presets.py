"""The papers' presets: they load over the default configuration, and the plan of each has the paper's own numbers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import presets
from tests.envs.conftest import DATA
from tests.helpers import as_if_simulators_were_here, nonempty
from turncredit import agents
from turncredit.agents.window import Settings as Window
from turncredit.cli.plan import gpu_hours, size_of, submitted_jobs
from turncredit.config import AgentConfig, from_mapping, merge
from turncredit.config.grid import expanded
from turncredit.credit.models.protocol import load_kind
from turncredit.credit.parts.configured import configured_method
from turncredit.data.yaml_files import read_mapping
from turncredit.envs.webshop.settings import Settings
from turncredit.envs.webshop.tasks import real_split
from turncredit.errors import UserError
from turncredit.pipeline import checks, resources
from turncredit.pipeline.all_jobs import every_job
from turncredit.pipeline.plan import Plan
from turncredit.views.report.paper_settings import ORIGINS, Row, found, lines_of, matches, rows, stated

ROOT = presets.ROOT
NAMES = presets.PAPERS
#: Keys of presets that say how a run is computed, not what: no row is about them.
HOW = (
    "experiment methods audit.rounds keep_policies granularity rounds_per_job resources.* rollout.slots "
    "env.appworld.servers agent.name policy.dtype policy.train_dtype policy.moments_dtype policy.engine "
    "policy.train_gpus sft.shards judge.serve.* update.gradient_checkpointing eval.modes env.scienceworld.gold"
)


@cache
def plan_of(name: str) -> Plan:
    return Plan(presets.experiment(name))


def planned(plan: Plan, method: str) -> dict[str, Any]:
    """What a plan has for a run of the method: sections as the run has them, its parameters, its model, its shapers."""
    whole = plan.experiment
    values = whole.model_dump()
    values["update"] = whole.section_for(method, "update").model_dump()
    values["rollout"] = whole.section_for(method, "rollout").model_dump()
    values["agent"] = agent_of(whole.agent_of(method))
    values["params"] = plan.method(method).params()
    values["shapers"] = tuple(part.name for part in plan.method(method).shapers)
    values["model"] = plan.model(method)[1].model_dump() if plan.method(method).model else {}
    return values


@cache
def planned_by(name: str, method: str) -> dict[str, Any]:
    return planned(plan_of(name), method)


def agent_of(config: AgentConfig) -> dict[str, Any]:
    """The agent that plays, with all of its settings under its name."""
    spec, chosen = agents.load(config.name), config.chosen()
    return {**config.model_dump(), config.name: spec.Settings.model_validate(chosen.settings).model_dump()}


def rows_of(name: str) -> list[tuple[str, Row]]:
    """Every (method, row) of a preset."""
    methods = plan_of(name).experiment.trained()
    return [(m, row) for row in rows() if row.is_about(name) for m in methods if matches(m, row.methods)]


def wrong(name: str, plan: Plan) -> list[str]:
    """What a plan of the preset has otherwise than the table, a line each."""
    values = {method: planned(plan, method) for method in plan.experiment.trained()}
    return [
        f"{method}: {path} is {found(values[method], path)!r}, not {value!r} ({row.mark}: {row.reason})"
        for method, row in rows_of(name)
        for path, value in row.pinned.items()
        if found(values[method], path) != value
    ]


def test_a_row_of_the_settings_has_the_keys_that_there_are_and_only_ours_may_leave_the_value_to_the_preset() -> None:
    for of_paper in stated()["settings"].values():
        for row in nonempty(of_paper):
            (mark,) = row.keys() & ORIGINS.keys()
            assert row.keys() <= {mark, "presets", "methods", "set"}, row
            assert isinstance(row["set"], dict) or mark == "ours", row


@pytest.mark.parametrize("name", NAMES)
def test_the_command_prints_every_setting_of_a_preset_with_its_origin(name: str) -> None:
    experiment = plan_of(name).experiment
    lines = list(lines_of(name, experiment.trained(), experiment.model_dump(mode="json")))
    printed = {line.strip().partition(": ")[0] for line in lines if line.startswith("  ")}
    assert printed == {path for _, row in rows_of(name) for path in (*row.pinned, *row.unpinned)}
    assert [line for line in lines if "changed in this configuration" in line] == []


def test_the_command_says_what_a_configuration_has_changed_of_a_preset() -> None:
    changed_rounds = changed("has_table1", {"rounds": 3}).experiment
    lines = list(lines_of("has_table1", changed_rounds.trained(), changed_rounds.model_dump(mode="json")))
    (line,) = (line for line in lines if line.startswith("  rounds:"))
    assert line == "  rounds: 3  # tables 5 and 6; 10 there, changed in this configuration"


def test_an_experiment_that_is_no_papers_preset_has_no_origins() -> None:
    with pytest.raises(UserError, match="'household' is not a preset of a paper"):
        list(lines_of("household", ["flat_grpo"], {}))


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_plans_the_numbers_that_its_paper_states(name: str) -> None:
    assert not wrong(name, plan_of(name))


def test_every_row_is_about_a_run_and_a_value_that_is_ours_alone_is_the_same_in_all_of_them() -> None:
    runs: dict[int, list[tuple[str, str]]] = {}
    for name in NAMES:
        for method, row in rows_of(name):
            runs.setdefault(id(row), []).append((name, method))
    for row in rows():
        assert id(row) in runs, row
        for path in row.unpinned:
            assert len({repr(found(planned_by(*run), path)) for run in runs[id(row)]}) == 1, (path, row)


def leaves(values: Any, path: str = "") -> Iterator[str]:
    """The keys of a mapping, those of mappings inside joined by dots."""
    if not isinstance(values, dict):
        yield path
        return
    for key, value in values.items():
        yield from leaves(value, f"{path}.{key}" if path else key)


def set_by(name: str) -> set[tuple[str, str]]:
    """The settings that a preset gives, each with a method that has it, under the names of `planned`."""
    raw, experiment = expanded(presets.settings(name)), plan_of(name).experiment
    own, played = raw.pop("define", {}), raw.pop("agents", {})
    out = set()
    for method in experiment.trained():
        entry = own.get(method, {})
        agent = entry.get("agent", "")
        given = {**raw, **({"agent": played[agent]} if agent in played else {})}
        out |= {(method, path) for path in leaves(given)}
        out |= {(method, path) for path in leaves(entry) if path not in ("base", "agent", "params.shapers")}
        out |= {(method, "shapers")} if "shapers" in entry.get("params", {}) else set()
    return {(method, path) for method, path in out if not matches(path, HOW)}


@pytest.mark.parametrize("name", NAMES)
def test_the_table_has_every_setting_of_a_preset(name: str) -> None:
    """So that none can be added unnoticed: the paper states a setting, or its recipe has it, or it is said to be ours.

    Not in it: `HOW`, agents that only play a warm start, and demonstrations that nothing imitates.
    """
    tabled = {(method, path) for method, row in rows_of(name) for path in (*row.pinned, *row.unpinned)}
    without_warm_start = plan_of(name).experiment.sft.epochs == 0
    unread = "demos.*" if without_warm_start else "!*"
    assert sorted((m, path) for m, path in set_by(name) - tabled if not matches(path, unread)) == []


def changed(name: str, change: dict[str, Any]) -> Plan:
    """The plan of a preset with other settings laid over it."""
    return Plan(from_mapping(merge(read_mapping(presets.DEFAULT), expanded(presets.settings(name)), change)))


def of(method: str, **sections: Any) -> dict[str, Any]:
    return {"define": {method: sections}}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("has_ablations", of("progress_2_1", model={"lambda_value": 7, "lambda_progress": 3})),
        ("has_ablations", {"update": {"skip_dead_groups": False}}),
        ("has_ablations", of("large", model={"hidden": 64})),
        ("has_ablations", of("half_life_2", model={"half_life": 5})),
        ("has_ablations", of("k12", rollout={"group_size": 6})),
        ("has_table3", {"update": {"skip_dead_groups": False}}),
        ("has_table3", {"rounds": 1}),
        ("has_table1", of("has_turnrd", model={"lambda_value": 1.0})),
        ("has_table1", {"env": {"webshop": {"reward": "score"}}}),
        ("triage_table10", of("lam01_r025", params={"lam": 0.9})),
        ("triage_table10", of("lam02_r05", params={"regression": 5.0})),
        ("triage_table10", {"env": {"webshop": {"reward": "score"}}}),
        ("triage_sensitivity", of("r10", params={"regression": -0.5})),
        ("triage_table3", {"judge": {"thinking": False}}),
        ("triage_table3", {"judge": {"temperature": 0.7}}),
        ("triage_table3", {"update": {"lr": 1e-4}}),
        ("triage_table3", {"rollout": {"temperature": 0.1}}),
        ("scpo_webshop_table1_7b", of("scpo", params={"success_above": 0})),
        ("triage_webshop_table3", {"env": {"webshop": {"reward": "score"}}}),
        ("scpo_sensitivity", of("base_02", params={"soft_base": 0.9})),
        ("mgr_sensitivity", of("repetition_10", params={"repetition": 0.1})),
        ("hipif_sensitivity", of("repeats_none", params={"repeats": 3})),
    ],
)
def test_the_table_notices_a_setting_that_is_not_the_papers(name: str, change: dict[str, Any]) -> None:
    assert wrong(name, changed(name, change))


@pytest.mark.parametrize("path", sorted((ROOT / "config" / "paper").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_file_of_presets_opens_with_what_it_departs_from_and_says_of_each_what_it_is(path: Path) -> None:
    head, rest = path.read_text(encoding="utf-8").split("experiment:", 1)
    assert "# Stated by the paper and run here:" in head
    assert "# Departures, and what the paper leaves open:\n# - " in head
    lines = rest.partition("sweep:\n")[2].splitlines()
    named = [(before, line) for before, line in pairwise(lines) if re.match(r" {4}\w", line)]
    assert len(named) == sum(presets.PRESETS[name] == path for name in NAMES)
    assert [line for before, line in named if not before.startswith("    #")] == []


def listed() -> list[tuple[str, str, str, str]]:
    """(paper, table, environment, presets or the reason for none) of every row about tables in docs/papers.md."""
    out, paper = [], ""
    page = (ROOT / "docs" / "papers.md").read_text()
    for line in page.partition("## Presets")[2].partition("## What they cost")[0].splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) < 4 or cells[0] in ("paper", "preset") or cells[0][:1] == "`" or set(cells[0]) == {"-"}:
            continue
        paper = cells[0].partition(" ")[0] or paper
        out += [(paper, table.strip(), cells[2], cells[3]) for table in cells[1].split(",")]
    return out


def test_the_page_of_papers_lists_every_table_once_with_its_presets_or_the_reason_for_none() -> None:
    known = [
        (paper, table, env)
        for paper, where in stated()["tables"].items()
        for env, tables in where.items()
        for table in tables
    ]
    rows = listed()
    assert sorted((paper, table, env) for paper, table, env, _ in rows) == sorted(known)
    assert [row for row in rows if len(row[3]) < len("the same")] == []


def test_the_page_of_papers_names_the_presets_that_there_are() -> None:
    with_preset = [said for *_, said in listed() if said.startswith("`")]
    assert {name for said in with_preset for name in re.findall(r"`(\w+)`", said)} == set(NAMES)


#: Presets that read their paper in another way than the preset of the same table.
OTHER_READINGS = "*_64_tasks"


def test_a_table_has_one_preset_for_every_combination_of_what_its_paper_varies() -> None:
    for paper, tables in stated()["varied"].items():
        for table, varied in tables.items():
            shown = [said for of, number, _, said in listed() if (of, number) == (paper, table) and said[0] == "`"]
            for said in nonempty(shown):
                names = [name for name in re.findall(r"`(\w+)`", said) if not matches(name, OTHER_READINGS)]
                made = [plan_of(name).experiment.model_dump() for name in names]
                cells = list(product(*([(path, value) for value in values] for path, values in varied.items())))
                hits = [[all(has(values, *part) for part in cell) for values in made] for cell in cells]
                assert [sum(row) for row in hits] == [1] * len(made), (paper, table, said)


def has(values: dict[str, Any], path: str, value: Any) -> bool:
    """Whether `values` have `value` at `path`; of a mapping, all of its keys."""
    there = found(values, path)
    return all(there[key] == one for key, one in value.items()) if isinstance(value, dict) else there == value


def cost(name: str) -> tuple[str, str, str]:
    """Runs and rounds, A100 hours and disk of a preset, as the page of papers writes them."""
    plan = plan_of(name)
    hours = sum(gpu_hours(plan, submitted_jobs(plan, every_job(plan))).values())
    runs = f"{len(plan.experiment.runs())} x {plan.experiment.rounds}"
    return runs, f"{hours:,.0f}", size_of(sum(resources.disk(plan).values()))


def test_the_page_of_papers_says_what_the_cheapest_and_the_dearest_preset_of_a_paper_cost() -> None:
    page = (ROOT / "docs" / "papers.md").read_text()
    said = re.findall(r"^\| `(\w+)` \| (\d+ x \d+) \| (\S+) \| ([^|]+) \|$", page, re.MULTILINE)
    assert [name.partition("_")[0] for name, *_ in said] == [
        paper for paper in ("has", "scpo", "triage", "mgr", "hipif") for _ in range(2)
    ]
    for name, *numbers in said[::3]:
        assert tuple(numbers) == cost(name), name


def test_a_preset_plays_what_the_page_of_papers_says() -> None:
    worlds = {"ALFWorld": "household"}
    rows = [(env, name) for *_, env, said in listed() if said.startswith("`") for name in re.findall(r"`(\w+)`", said)]
    other = {name: env for env, name in rows if plan_of(name).experiment.env.name != worlds.get(env, env.lower())}
    assert rows
    assert other == {}


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_is_valid_and_trains_every_method_that_it_defines(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    as_if_simulators_were_here(monkeypatch)
    experiment = presets.experiment(name)
    checks.check(experiment)
    assert experiment.experiment == name
    for method in experiment.define:
        assert method in experiment.methods
    for method in experiment.trained():
        configured_method(experiment, method)


def test_a_prompt_asks_for_thoughts_only_where_no_demonstrations_without_them_are_imitated() -> None:
    experiments = {name: plan_of(name).experiment for name in NAMES}
    experiments["qwen"] = presets.experiment("qwen2.5-1.5b")
    windows = {name: one for name, one in experiments.items() if one.agent.name == "window"}
    asking = {name for name, one in windows.items() if Window.model_validate(one.agent.chosen().settings).think}
    assert asking == {name for name, one in windows.items() if not one.sft.epochs}
    assert asking != windows.keys()


def test_rewards_are_one_or_ten_and_graded_where_the_paper_says_so() -> None:
    games = {name: plan_of(name).experiment.env for name in NAMES}
    played = {name: env for name, env in games.items() if env.name in ("household", "webshop")}
    settings = {name: env.chosen().settings for name, env in played.items()}
    one = {name.split("_")[0] for name, chosen in settings.items() if chosen.get("success_reward", 1) == 1}
    assert one == {"has", "triage"}
    ten = {name.split("_")[0] for name, chosen in settings.items() if chosen.get("success_reward", 1) == 10}
    assert ten == {"scpo", "mgr", "hipif"}
    graded = {name for name, chosen in settings.items() if chosen.get("reward") == "score"}
    assert graded == {"scpo_webshop_table1_1p5b", "scpo_webshop_table1_7b"}


def test_webshops_files_have_the_goals_that_its_presets_take(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(os.environ.get("WEBSHOP_DATA", DATA / "webshop"))
    if not folder.exists():
        pytest.skip("WebShop's files are not here: their folder is in $WEBSHOP_DATA")
    monkeypatch.setenv("WEBSHOP_DATA", str(folder))
    shops = [plan_of(name).experiment for name in NAMES if plan_of(name).experiment.env.name == "webshop"]
    for experiment in nonempty(shops):
        settings = Settings.model_validate(experiment.env.chosen().settings)
        tasks = experiment.tasks
        assert tasks.train == len(real_split(tasks.train_split, settings))
        assert tasks.eval <= len(real_split(tasks.eval_split, settings))


@pytest.mark.parametrize("name", ["triage_table5", "triage_webshop_table5"])
def test_the_value_baseline_has_the_papers_ten_rounds_without_its_head(name: str) -> None:
    plan = plan_of(name)
    kind, settings = load_kind("value_head"), plan.model("value_baseline")[1]
    rollout = plan.experiment.section_for("value_baseline", "rollout")
    steps = len(list(kind.minibatches([rollout.tasks * rollout.group_size], settings, 0, np.random.default_rng(0))))
    used = [kind.ready(steps * (round_ - 1), settings) for round_ in range(1, 13)]
    assert used == [False] * 10 + [True] * 2


@pytest.mark.parametrize("size", ["3b", "7b"])
def test_hipif_without_reward_learns_from_success_alone_and_plays_with_the_same_agent(size: str) -> None:
    plan = plan_of(f"hipif_table2_{size}")
    assert [part.name for part in plan.method("hipif").shapers] == ["hipif"]
    assert not plan.method("no_reward").shapers
    assert plan.experiment.agent_of("no_reward") == plan.experiment.agent_of("hipif")


def test_a_group_size_of_has_changes_the_rollouts_and_not_the_tasks_of_a_round() -> None:
    sizes = {name: planned(plan_of("has_ablations"), name)["rollout"] for name in ("has_turnrd", "k4", "k12")}
    assert {name: (size["tasks"], size["group_size"]) for name, size in sizes.items()} == {
        "has_turnrd": (80, 8),
        "k4": (80, 4),
        "k12": (80, 12),
    }


if __name__ == "__main__":
    os.chdir(ROOT)
    for preset in NAMES:
        print(f"| `{preset}` | {' | '.join(cost(preset))} |")
