"""Results against their plan: what is missing, damaged, changed, stale, or of another configuration, named each."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tests import tiny
from tests.helpers import nonempty
from turncredit.cli.main import app
from turncredit.config.layout import Layout
from turncredit.config.stages import artifacts
from turncredit.data import tables
from turncredit.errors import UserError
from turncredit.pipeline import all_jobs, expected_artifacts, integrity, job_script, locks, loop, run
from turncredit.pipeline.job import PROVENANCE_FILE, JobKeys
from turncredit.pipeline.plan import Plan, load
from turncredit.views import collect, sql, tracking
from turncredit.views.show.find import find

CHANGES = {"methods": ["flat_grpo"], "tracking": {"enabled": False}, "keep_policies": "all"}
COUNT = "SELECT count(DISTINCT round) AS rounds FROM evals WHERE method = 'flat_grpo'"


def perform(plan: Plan, stage: str, at: JobKeys) -> None:
    """Run a job as the workflow does: with its metrics and a log."""
    made = plan.job(stage, at)
    log = Path(str(plan.layout.root / "logs" / Path(plan.metrics(stage, at)).relative_to(plan.layout.root)))
    log.parent.mkdir(parents=True, exist_ok=True)
    output = {**made.output, "metrics": plan.metrics(stage, at)}
    job_script.measured(stage, plan.settings(stage, at), output, lambda: load(stage).run(made))


def steps() -> list[all_jobs.Step]:
    """The jobs after the first rollouts, in order."""
    plan = Plan(tiny.experiment(**CHANGES))
    rounds = [step for round in (1, 2) for step in loop.block(plan, "flat_grpo", 0, [round])]
    start = [("eval", JobKeys(method="sft", seed=0, round=round)) for round in (1, 2)]
    return [("config", JobKeys()), *start, *rounds, ("report", JobKeys())]


@pytest.fixture(scope="module")
def made(world, tmp_path_factory) -> Path:
    """The tiny experiment with one method, all of it made."""
    plan = Plan(tiny.experiment(**CHANGES), tmp_path_factory.mktemp("made"))
    shutil.copytree(world.plan.layout.root, plan.layout.root)
    Path(plan.layout.path("measures", world.turns.keys)).unlink()  # no method here reads them
    for stage, at in steps():
        perform(plan, stage, at)
    return plan.layout.root


@pytest.fixture
def results(made, tmp_path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(made, tmp_path / "tiny"))


def path(results: Path, name: str, round: int = 2) -> Path:
    plan = expected_artifacts.plan_of(results)
    keys = {**plan.turns_at("flat_grpo", 0, round).keys, "method": "flat_grpo", "warm_start": "sft", "split": "train"}
    return Path(plan.layout.path(name, keys))


def problems(results: Path) -> list[tuple[str, str]]:
    return [(found.kind, found.path) for found in integrity.compare(expected_artifacts.plan_of(results)).problems]


def ask(*arguments: str | Path):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def configure(results: Path, **changes) -> None:
    """Another configuration for these results."""
    perform(Plan(tiny.experiment(**{**CHANGES, **changes}), results.parent), "config", JobKeys())


def flip(file: Path, at: int) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 0x10
    file.write_bytes(content)


def test_what_the_stages_make_is_what_the_plan_wants(made):
    found = integrity.compare(expected_artifacts.plan_of(made))
    assert (found.problems, found.unplanned, found.waiting) == ([], [], 0)
    said = ask("check", made)
    assert said.exit_code == 0, said.output
    assert "all hold" in said.output


@pytest.mark.parametrize("name", ["tasks", "turns", "credits", "updates", "evals", "invariants", "sft_log"])
def test_a_flipped_byte_in_a_table_is_blamed_on_that_table_alone(results, name):
    file = path(results, name)
    column = pq.read_metadata(file).row_group(0).column(0)
    flip(file, column.data_page_offset + column.total_compressed_size // 2)
    ((kind, where),) = problems(results)
    # A checksum covers a page's content. In what lies around it, a flipped byte shows by what was made from the table.
    assert where == str(file)
    assert kind in (("damaged",) if name in ("tasks", "turns", "credits") else ("damaged", "changed"))


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.9, 0.995])
def test_a_byte_flipped_anywhere_in_a_table_is_blamed_on_that_table(results, share):
    file = path(results, "turns")
    flip(file, int(share * file.stat().st_size))
    assert [where for _, where in problems(results)] == [str(file)]


@pytest.mark.parametrize("name", ["turns", "updates"])
def test_a_truncated_table_is_named(results, name):
    file = path(results, name)
    file.write_bytes(file.read_bytes()[:-100])
    assert problems(results) == [("damaged", str(file))]


@pytest.mark.parametrize("inside", ["model.safetensors", "optimizer.safetensors", PROVENANCE_FILE])
def test_a_truncated_policy_is_one_line_of_the_check_and_no_traceback(results, inside):
    policy = path(results, "policy", 1)
    file = policy / inside
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    said = ask("check", results)
    assert (said.exit_code, type(said.exception)) == (1, SystemExit)
    assert [line for line in said.output.splitlines() if line.startswith("FAILS")] == [
        f"FAILS damaged       {policy}: "
        + (f"has no readable {PROVENANCE_FILE}" if inside == PROVENANCE_FILE else "changed since it was written")
    ]


@pytest.mark.parametrize("word", ["loss_aggregation", "tokenizer.json"])
def test_a_setting_or_a_files_name_that_changed_in_the_record_of_a_policy_is_damage(results, word):
    policy = path(results, "policy", 1)
    record = policy / PROVENANCE_FILE
    assert word in record.read_text()
    record.write_text(record.read_text().replace(word, word.replace("o", "q")))
    assert problems(results) == [("damaged", str(policy))]


def test_a_configuration_that_names_an_unknown_method_is_named_by_its_file(results):
    config = results / "config.json"
    config.write_text(config.read_text().replace('"flat_grpo"', '"flat_grpq"'))
    said = str(ask("check", results).exception)
    assert said.startswith(f"{config}: methods: unknown method 'flat_grpq' (did you mean 'flat_grpo'?)")


def test_a_table_of_other_content_is_said_to_have_changed_and_not_what_was_made_from_it(results):
    file = path(results, "turns")
    turns = pq.read_table(file)
    tables.write(turns.slice(0, turns.num_rows - 1), file, "turns", tables.metadata(file))
    assert problems(results) == [("changed", str(file))]


def test_swapped_tables_are_blamed_and_not_the_policies_that_they_were_made_from(results):
    one, two = (path(results, "evals", round) for round in (1, 2))
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    reader = path(results, "invariants")
    assert [where for _, where in problems(results)] == sorted(str(file) for file in (one, two, reader))


def test_an_artifact_made_with_other_settings_is_stale(results):
    configure(results, update={"lr": 1e-5})
    stale = [path(results, name, round) for name in ("policy", "updates") for round in (1, 2)]
    assert problems(results) == sorted(("stale", str(file)) for file in stale)
    said = [line for line in ask("check", results).output.splitlines() if line.startswith("FAILS stale")]
    assert all(line.endswith("the configuration has now (update.lr was 0.0007, is 1e-05)") for line in said)


def test_a_deleted_intermediate_is_missed_by_the_check_and_by_the_run(results):
    file = path(results, "credits")
    file.unlink()
    assert problems(results) == [("missing", str(file))]
    (line,) = run._gone(results)
    assert f"missing    {file}: " in line
    assert f"turncredit check --repair {results}" in line


def test_a_file_whose_job_has_ended_is_missed_although_nothing_was_made_from_it(results):
    file = path(results, "evals")
    file.unlink()
    assert problems(results) == [("missing", str(file))]


def test_rounds_that_have_not_run_yet_are_counted_and_no_problem(results):
    for name in ("policy", "updates", "evals", "credits"):
        file = path(results, name)
        shutil.rmtree(file) if file.is_dir() else file.unlink()
        plan = expected_artifacts.plan_of(results)
        stage, at = all_jobs.step_of(file.relative_to(results).as_posix())
        Path(plan.metrics(stage, at)).unlink(missing_ok=True)
    for stage, at in (("invariants", JobKeys(method="flat_grpo", seed=0)), ("report", JobKeys())):
        integrity.remove(results, [one for one in all_jobs.made_paths(plan, (stage, at)) if os.path.exists(one)])
    found = integrity.compare(plan)
    assert (found.problems, found.waiting) == ([], 5)


def test_what_a_repair_removes_is_made_again_with_the_same_bytes(made, results):
    file = path(results, "credits")
    file.unlink()
    said = ask("check", "--repair", results)
    assert said.exit_code == 1
    removed = [Path(line.removeprefix("removed ")) for line in said.output.splitlines() if line.startswith("removed ")]
    assert {path(results, kind) for kind in ("updates", "policy", "invariants")} <= set(removed)
    assert path(results, "updates", 1).exists()
    assert not any(one.exists() for one in removed)
    plan = expected_artifacts.plan_of(results)
    for stage, at in steps():
        if stage != "report" and not plan.job(stage, at).is_made():
            perform(plan, stage, at)
    assert problems(results) == []
    for one in nonempty(one for one in [file, *removed] if one.suffix == ".parquet" and "report" not in one.parts):
        assert one.read_bytes() == (made / one.relative_to(results)).read_bytes(), one


def test_a_repair_of_a_job_of_several_rounds_removes_what_starts_it_and_keeps_the_rest(results):
    configure(results, granularity="run")
    file = path(results, "credits", 1)
    file.unlink()
    plan = expected_artifacts.plan_of(results)
    gone = set(integrity.to_remove(plan, integrity.compare(plan).problems))
    assert {str(path(results, name)) for name in ("policy", "updates", "invariants")} <= gone
    assert not {str(path(results, name, 1)) for name in ("policy", "updates", "evals")} & gone


@pytest.fixture
def fewer(results) -> Path:
    """Results of two rounds whose configuration has one."""
    configure(results, rounds=1)
    return results


def test_artifacts_of_rounds_that_the_configuration_no_longer_has_are_left_out_of_queries(fewer):
    assert sql.answer(COUNT, fewer, expected_artifacts.current).to_pylist() == [{"rounds": 1}]
    assert sql.answer(COUNT, fewer).to_pylist() == [{"rounds": 2}]
    said = ask("sql", COUNT, "--results", fewer, "--format", "csv")
    assert said.stdout == "rounds\n1\n"
    assert "left out" in said.stderr
    whole = ask("sql", COUNT, "--results", fewer, "--format", "csv", "--all")
    assert (whole.stdout, whole.stderr) == ("rounds\n2\n", "")


def test_artifacts_of_rounds_that_the_configuration_no_longer_has_are_left_out_of_the_report_and_named_there(fewer):
    found = collect.collect(fewer, make_layout=expected_artifacts.current)
    assert set(found.evals["round"]) == set(found.training["round"]) == {1}
    assert set(found.metrics["round"].dropna()) == {1}
    perform(expected_artifacts.plan_of(fewer), "report", JobKeys())
    assert "which this configuration would not make" in (fewer / "report" / "index.html").read_text()


def test_jobs_of_rounds_that_the_configuration_no_longer_has_are_left_out_of_mlflow(fewer):
    experiment = collect.read_config(fewer)
    rounds = {entry.round for entry in tracking.entries(experiment, expected_artifacts.current(fewer))}
    assert rounds == {entry.round for entry in tracking.entries(experiment, Layout(fewer))} - {2} == {None, 1}


def test_show_finds_what_the_configuration_would_make_by_name_and_anything_by_its_path(fewer):
    credits = path(fewer, "credits", 1)
    shutil.copy(credits, credits.with_name("gigpo.parquet"))
    assert find("flat_grpo/seed0/round01", fewer, expected_artifacts.current).credits == [credits]
    with pytest.raises(UserError, match="neither a file, nor a folder, nor a run's round"):
        find("flat_grpo/seed0/round02", fewer, expected_artifacts.current)
    by_path = find(str(path(fewer, "turns")), fewer, expected_artifacts.current)
    assert by_path == find("flat_grpo/seed0/round02", fewer)
    assert by_path.credits == [path(fewer, "credits")]


def test_clean_lists_what_it_would_remove_and_removes_it_only_when_told(fewer):
    there = sorted(path(fewer, name) for name in ("turns", "credits", "policy", "updates", "evals"))
    listed = ask("clean", "--stale", fewer)
    assert listed.exit_code == 0
    assert set(map(str, there)) <= {line.removeprefix("would remove ") for line in listed.output.splitlines()}
    assert all(file.exists() for file in there)
    assert ask("clean", fewer).exit_code != 0


def test_nothing_is_removed_while_a_run_works_in_the_folder(fewer):
    """What it is making looks missing, or of other settings."""
    records = fewer.parent.parent / ".snakemake/turncredit-processes"
    records.mkdir(parents=True)
    record = records / "me.json"
    record.write_text(json.dumps(locks.identity(os.getpid())))
    path(fewer, "credits", 1).unlink()
    before = {one for one in fewer.rglob("*") if one.is_file()}
    for command in (["check", "--repair"], ["clean", "--stale", "--yes"]):
        refused = ask(*command, fewer)
        assert f"(process {os.getpid()} on " in str(refused.exception)
    assert {one for one in fewer.rglob("*") if one.is_file()} == before
    record.unlink()


def test_clean_removes_no_file_that_the_layout_does_not_know_and_nothing_of_the_configuration(fewer):
    notes = path(fewer, "updates").with_name("notes.txt")
    notes.write_text("mine")
    before = {one for one in fewer.rglob("*") if one.is_file()}
    unplanned = {path(fewer, name) for name in ("turns", "credits", "updates", "evals")}
    assert ask("clean", "--stale", "--yes", fewer).exit_code == 0
    after = {one for one in fewer.rglob("*") if one.is_file()}
    assert notes in after
    assert not path(fewer, "policy").exists()
    assert unplanned <= before - after
    assert all("round02" in str(one) for one in before - after)
    assert not path(fewer, "turns").parent.exists()
    assert ask("clean", "--stale", fewer).output.startswith("nothing to remove")
    assert [kind for kind, _ in problems(fewer)] == ["stale"]  # the run's invariants, of two rounds


def test_clean_removes_the_state_of_an_unfinished_update_that_no_job_would_go_on_from(fewer):
    of_both = [path(fewer, "policy", round).with_name("unfinished_update") for round in (1, 2)]
    for state in of_both:
        state.mkdir(parents=True, exist_ok=True)
        (state / "state.json").write_text("{}")
    path(fewer, "policy", 1).with_name("my_unfinished_update").mkdir()
    assert f"would remove {of_both[1]}" in ask("clean", "--stale", fewer).output
    assert of_both[1].exists()
    assert ask("clean", "--stale", "--yes", fewer).exit_code == 0
    assert [state.exists() for state in of_both] == [True, False]
    assert path(fewer, "policy", 1).with_name("my_unfinished_update").exists()


def test_nothing_is_removed_where_one_of_the_paths_is_no_artifact(results):
    notes = results / "notes.txt"
    notes.write_text("mine")
    with pytest.raises(Exception, match=r"notes.txt: no artifact of"):
        integrity.remove(results, [path(results, "turns"), notes])
    assert path(results, "turns").exists()


def test_every_kind_of_artifact_leads_back_to_its_job():
    plan = Plan(tiny.experiment(**CHANGES), "here")
    keys = {
        **plan.turns_at("flat_grpo", 0, 2).keys, "method": "flat_grpo", "warm_start": "sft", "split": "eval",
        "judge": "rule", "question": "role", "hidden_policy": "sft", "hidden_position": "action", "scorer": "hindsight",
        "continuations": "k9", "forks": "n16",
    }  # fmt: skip
    begin = len(f"{plan.layout.root}/")
    for name in artifacts():
        stage, at = all_jobs.step_of(plan.layout.path(name, keys)[begin:])
        assert name in [kind.name for kind in load(stage).makes.values()]
        assert plan.layout.path(name, plan.keys(at)) == plan.layout.path(name, keys)


def test_where_a_method_of_ones_own_is_gone_nothing_is_left_out(results):
    file = results / "config.json"
    config = json.loads(file.read_text())
    config["define"]["lost"] = {"credit": "no_such_file.py"}
    config["methods"] = ["flat_grpo", "lost"]
    file.write_text(json.dumps(config))
    assert expected_artifacts.current(results).only is None


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"methods": ["istar"]}, id="its own run"),
        pytest.param({"methods": ["istar"], "rounds": 1}, id="a single round"),
        pytest.param({"methods": ["istar_code"], "rounds": 1}, id="still the SFT policy"),
        pytest.param({"methods": ["flat_grpo"], "audit": {"rounds": [2], "methods": ["istar"]}}, id="an audit"),
    ],
)
def test_a_reward_model_that_snakemake_deleted_after_its_last_use_is_not_missing(tmp_path, changes):
    plan = Plan(tiny.experiment(**{**CHANGES, "keep_policies": "last", **changes}), tmp_path)
    models = []
    for step in all_jobs.every_job(plan):
        for made in all_jobs.made_paths(plan, step):
            Path(made).parent.mkdir(parents=True, exist_ok=True)
            Path(made).touch()
        models += [Path(path) for name, path in plan.outputs(*step).items() if name == "implicit"]

    def missing():
        return {problem.path for problem in integrity.missing_from(plan) if problem.kind == "missing"}

    for model in models:
        model.unlink()
    assert missing() == set()
    for after in plan.layout.root.glob("rollouts/*/*/*/logprobs/implicit-*.parquet"):
        after.unlink()
    assert {str(model) for model in models} <= missing()


def test_all_credit_pages_of_a_round_are_removed_with_their_index(tmp_path):
    root = tmp_path / "tiny"
    index = root / "rollouts/gigpo/seed0/round02/pages/index.html"
    index.parent.mkdir(parents=True)
    for page in (index, index.with_name("rollout-1.html")):
        page.touch()
    integrity.remove(root, [index])
    assert list(root.iterdir()) == []


def test_an_experiment_whose_configuration_is_unusable_does_not_hide_what_is_found_in_others(results):
    broken = results.parent / "broken"
    broken.mkdir()
    config = {"methods": ["mine"], "define": {"mine": {"credit": "gone.py:mine"}}}
    (broken / "config.json").write_text(json.dumps(config), encoding="utf-8")
    said = ask("check", results.parent)
    assert said.exit_code == 1
    (line,) = [line for line in said.stdout.splitlines() if line.startswith("FAILS")]
    assert "broken" in line
    assert "gone.py: no such file" in line
    assert said.stdout.splitlines()[-1].endswith("1 violated")
    stale = ask("clean", "--stale", results.parent)
    assert stale.exit_code == 0
    assert f"left alone {broken}: " in stale.stdout
    for command in (("check",), ("clean", "--stale")):
        alone = ask(*command, broken)
        assert (alone.exit_code, "gone.py: no such file" in str(alone.exception)) == (1, True)
