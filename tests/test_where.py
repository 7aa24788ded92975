"""`turncredit where`: the files of a stage from its keys, and the stage from a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from tests import tiny
from turncredit.cli import where
from turncredit.cli.main import app
from turncredit.config.layout import fill
from turncredit.config.stages import artifacts, stages
from turncredit.data import provenance
from turncredit.errors import UserError
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.plan import Plan

SHARED = tiny.SHARED
OTHER_KEYS = (
    "split=train judge=rule question=role hidden_policy=sft hidden_position=observation scorer=hindsight "
    "continuations=k9 forks=n16"
)
KEYS = tiny.keys("has_turnrd", warm_start="sft_plain", **dict(key.split("=") for key in OTHER_KEYS.split()))


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Plan(tiny.experiment())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the tiny experiment as its config.yaml."""
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(tiny.mapping()))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answer(*arguments: str) -> list[str]:
    done = CliRunner().invoke(app, ["where", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout.splitlines()


def words(line: str) -> list[str]:
    return line.split()


@pytest.mark.usefixtures("folder")
def test_the_credit_of_a_method_in_round_1_reads_the_turns_that_all_methods_share():
    turns = Path("results/tiny/rollouts") / SHARED / "seed0/round01/turns.parquet"
    turns.parent.mkdir(parents=True)
    turns.touch()
    lines = answer("credit", "gigpo", "--seed", "0", "--round", "1")
    assert lines[0] == f"stage credit: policy {SHARED}, method gigpo, seed 0, round 1"
    assert words(lines[3]) == ["turns:", "exists", str(turns)]
    assert words(lines[6]) == ["credits:", "missing", str(turns.parent / "credits/gigpo.parquet")]
    assert words(lines[9]) == ["metrics:", "missing", str(turns.parent / "metrics/credit-gigpo.json")]
    log = f"results/tiny/logs/rollouts/{SHARED}/seed0/round01/credit-gigpo.log"
    assert words(lines[10]) == ["log:", "missing", log]
    assert lines[-1].strip() == "{method: gigpo}"


@pytest.mark.usefixtures("folder")
def test_what_was_made_with_other_settings_is_stale():
    policy = Path("results/tiny/runs/gigpo/seed0/round01/policy")
    policy.mkdir(parents=True)
    plan, step = Plan(tiny.experiment()), ("update", JobKeys(method="gigpo", seed=0, round=1))
    said = {}
    for settings in (plan.settings(*step), {**plan.settings(*step), "minibatch": 7}):
        made_by = {"content": "0", "config_hash": provenance.config_hash(settings)}
        (policy / provenance.PROVENANCE_FILE).write_text(json.dumps(made_by))
        said[made_by["config_hash"]] = next(line for line in answer("update", "gigpo") if str(policy) in line)
    assert [words(line)[1] for line in said.values()] == ["exists", "stale"]


@pytest.mark.usefixtures("folder")
def test_the_answer_follows_the_configuration_files():
    Path("mine.yaml").write_text("experiment: mine\nrollout: {tasks: 8}\n", encoding="utf-8")
    line = answer("rollout", "--configfile", "mine.yaml", "--results", "elsewhere")[0]
    assert line == "stage rollout: policy sft-t8k4T1.0, seed 0, round 1"


@pytest.mark.usefixtures("folder")
def test_a_configuration_that_no_job_could_run_is_refused():
    Path("mine.yaml").write_text("update: {minibatch: 17}\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"update.minibatch is 17, but a round of 'flat_grpo' has only 16 rollouts"):
        answer("rollout", "--configfile", "mine.yaml")


@pytest.mark.parametrize(
    ("stage", "given", "policy", "round", "keys"),
    [
        ("credit", ["gigpo"], None, 2, JobKeys(policy="gigpo", method="gigpo", seed=0, round=2)),
        ("credit", ["gigpo"], "flat_grpo", 2, JobKeys(policy="flat_grpo", method="gigpo", seed=0, round=2)),
        ("rollout", [], None, 1, JobKeys(policy=SHARED, seed=0, round=1)),
        ("branch", ["flat_grpo"], None, 2, JobKeys(policy="flat_grpo", seed=0, round=2)),
        ("label", ["triage"], None, 1, JobKeys(policy=SHARED, seed=0, round=1, judge="rule", question="role")),
        ("label", ["rule", "score"], None, 1, JobKeys(policy=SHARED, seed=0, round=1, judge="rule", question="score")),
        (
            "hiddens",
            ["sft", "action"],
            None,
            1,
            JobKeys(policy=SHARED, seed=0, round=1, hidden_policy="sft", hidden_position="action"),
        ),
        ("logprobs", ["sft"], None, 1, JobKeys(policy=SHARED, seed=0, round=1, scorer="sft")),
        ("logprobs", ["hcapo"], None, 2, JobKeys(policy="hcapo", seed=0, round=2, scorer="hindsight")),
        ("logprobs", ["istar"], None, 2, JobKeys(policy="istar", seed=0, round=2, scorer="implicit-istar")),
        ("implicit_model", ["istar"], None, 2, JobKeys(policy="istar", method="istar", seed=0, round=2)),
        ("continuations", ["vineppo"], None, 2, JobKeys(policy="vineppo", seed=0, round=2, continuations="k9")),
        ("forks", ["carl"], None, 1, JobKeys(policy=SHARED, seed=0, round=1, forks="n16")),
        ("measures", ["gigpo"], None, 2, JobKeys(policy="gigpo", seed=0, round=2)),
        ("update", ["gigpo"], None, 2, JobKeys(method="gigpo", seed=0, round=2)),
        ("invariants", ["gigpo"], None, 2, JobKeys(method="gigpo", seed=0)),
        ("tasks", ["eval"], None, 1, JobKeys(split="eval")),
        ("report", [], None, 1, JobKeys()),
    ],
)
def test_words_become_the_keys_of_the_job(plan, stage, given, policy, round, keys):
    assert where.at_of(plan, stage, given, policy, 0, round) == keys


def test_a_learned_method_says_which_hidden_states_it_reads(plan):
    at = where.at_of(plan, "hiddens", ["has_turnrd"], None, 0, 1)
    assert at == plan.keys_of("hiddens", plan.turns_at("has_turnrd", 0, 1), "has_turnrd")


def test_the_sft_policy_is_evaluated_once_for_all_seeds(plan):
    assert where.at_of(plan, "eval", ["sft"], None, 3, 1) == JobKeys(method="sft", seed=0, round=1)


@pytest.mark.parametrize(
    ("stage", "given", "policy", "round", "message"),
    [
        ("credit", [], None, 1, "credit: the method is missing; give one, such as flat_grpo, has_progressive"),
        ("credit", ["gigppo"], None, 1, "unknown method 'gigppo' (did you mean 'gigpo'?)"),
        ("credit", ["gigpo"], "sft-t4k4T1", 1, "unknown sampling 'sft-t4k4T1' (did you mean 'sft-t4k4T1.0'?)"),
        ("credit", ["gigpo"], "flat_grpo", 1, "round 1 is sampled by the SFT policy"),
        ("values", ["gigpo"], None, 1, "values: the method 'gigpo' does not need it"),
        ("implicit_model", ["gigpo"], None, 2, "implicit_model: the method 'gigpo' does not need it"),
        ("continuations", ["gigpo"], None, 2, "continuations: the method 'gigpo' does not need it"),
        ("forks", ["gigpo"], None, 2, "forks: the method 'gigpo' does not need it"),
        ("hiddens", ["gigpo"], None, 2, "hiddens: the hidden_policy is missing; give one, such as sft, current"),
        ("rollout", [], None, 2, "rollout: round 2 has rollouts of several policies; name a method, or give --policy"),
        ("label", ["rule"], None, 1, "label: the question is missing; give one, such as role, progress, score"),
        ("tasks", ["gigpo"], None, 1, "tasks: 'gigpo' is not one of its keys (split)"),
        ("tasks", ["train"], "gigpo", 1, "tasks: --policy does not apply to this stage"),
        ("report", ["gigpo"], None, 1, "report: 'gigpo' is not one of its keys (it has none)"),
    ],
)
def test_a_missing_or_unknown_key_is_one_line(plan, stage, given, policy, round, message):
    with pytest.raises(UserError) as error:
        where.at_of(plan, stage, given, policy, 0, round)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.usefixtures("folder")
def test_an_unknown_artifact_names_the_nearest():
    with pytest.raises(UserError) as error:
        answer("credis", "gigpo")
    assert str(error.value).startswith("unknown stage or artifact 'credis' (did you mean 'credits'?)")


@pytest.mark.parametrize("more", [[], ["--configfile", "more.yaml"]])
def test_a_folder_without_a_configuration_is_one_line(tmp_path, monkeypatch, more):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "more.yaml").write_text("rounds: 3\n")
    with pytest.raises(UserError) as error:
        answer("credit", "gigpo", *more)
    assert str(error.value).startswith(f"config.yaml: not in this folder ({tmp_path})")


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_the_path_of_every_artifact_metrics_file_and_log_leads_to_its_stage(plan):
    for name in sorted(artifacts()):
        path = Path(plan.layout.path(name, KEYS))
        _, stage, at = where.of_path(path, [], Path("results"))
        assert str(path) in plan.outputs(stage, at).values()
    for stage, record in stages().items():
        for pattern in (record.metrics, record.log):
            _, found, at = where.of_path(plan.layout.root / fill(pattern, KEYS), [], Path("results"))
            assert (found, at.keys) == (stage, {key: KEYS[key] for key in where.stage_keys(stage)})


@pytest.mark.usefixtures("folder")
def test_a_jobs_description_and_a_file_in_a_policy_lead_to_their_stage():
    assert answer("results/tiny/logs/runs/gigpo/seed0/round02/update.job.json")[0].startswith(
        "stage update: method gigpo"
    )
    assert answer("results/tiny/sft/policy/model.safetensors")[0] == "stage sft"


@pytest.mark.parametrize("elsewhere", [False, True])
def test_an_experiment_on_disk_answers_for_itself(folder, elsewhere):
    """Its own configuration, not the folder's, also where its rollouts are on another disk."""
    other = Plan(tiny.experiment(experiment="other", agent={"max_response_tokens": 9}))
    path = Path(other.layout.path("config"))
    path.parent.mkdir(parents=True)
    path.write_text(other.experiment.model_dump_json(), encoding="utf-8")
    if elsewhere:
        (folder / "disk").mkdir()
        (path.parent / "rollouts").symlink_to(folder / "disk")
    lines = answer("results/other/rollouts/gigpo/seed0/round02/turns.parquet")
    assert lines[0] == "stage rollout: policy gigpo, seed 0, round 2"
    read = next(words(line)[-1] for line in lines if "policy:" in line)
    assert read == "results/other/runs/gigpo/seed0/round01/policy"
    assert any("max_response_tokens: 9" in line for line in lines)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("results/tiny/foo.parquet", "no stage writes this"),
        ("results/other/sft/policy", "not below results/tiny, the results of this configuration"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_path_that_no_stage_makes_is_one_line(path, message):
    with pytest.raises(UserError, match=message):
        answer(path)


@pytest.mark.parametrize(
    ("stage", "at", "job"),
    [
        ("update", JobKeys(method="gigpo", seed=0, round=3), "rounds 3 to 4 of gigpo"),
        ("rollout", JobKeys(policy="gigpo", seed=0, round=3), "rounds 3 to 4 of gigpo"),
        ("credit", JobKeys(policy=SHARED, method="gigpo", seed=0, round=1), "rounds 1 to 2 of gigpo"),
        ("invariants", JobKeys(method="gigpo", seed=0), None),
        ("rollout", JobKeys(policy=SHARED, seed=0, round=1), None),
        ("credit", JobKeys(policy="flat_grpo", method="gigpo", seed=0, round=3), None),
        ("branch", JobKeys(policy="flat_grpo", seed=0, round=3), None),
        ("report", JobKeys(), None),
    ],
)
def test_a_stage_of_a_joint_job_names_its_rounds(stage, at, job):
    settings = {"rounds": 5, "methods": ["flat_grpo", "gigpo"], "seeds": [0], "tasks": {"eval": 20}}
    joint = Plan(tiny.experiment(granularity="round", rounds_per_job=2, **settings))
    named = f"runs in the job of {job}, seed 0 (granularity: round)"
    lines = where.lines_of(joint, stage, at)
    assert (named in lines) if job else not any(line.startswith("runs in") for line in lines)
    alone = where.lines_of(Plan(tiny.experiment(**settings)), stage, at)
    assert not any(line.startswith("runs in") for line in alone)


@pytest.mark.usefixtures("folder")
def test_continuations_are_found_by_the_method_that_reads_them_or_by_their_name():
    for word in ("vineppo", "k9"):
        assert tiny.path("continuations", continuations="k9") in " ".join(answer("continuations", word))
