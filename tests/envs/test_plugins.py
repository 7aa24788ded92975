"""Environments of anybody's own: found, described, refused, guarded, and played side by side."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from pydantic import BaseModel
from typer.testing import CliRunner

from tests import tiny
from tests.envs import own
from tests.helpers import cases
from turncredit import envs
from turncredit.cli.env import app
from turncredit.config import EnvSlice, from_mapping
from turncredit.credit import resolve
from turncredit.data import plugins
from turncredit.envs import guard
from turncredit.envs.environment import Environment
from turncredit.envs.failures import PUBLISHED, FailureRule, replies
from turncredit.envs.household import ENVIRONMENT as HOUSEHOLD
from turncredit.envs.judging import Turn
from turncredit.envs.protocol import Step
from turncredit.errors import OutsideFault, UserError
from turncredit.pipeline import loop
from turncredit.pipeline.checks import check
from turncredit.pipeline.plan import Plan
from turncredit.rollouts.tasks import make_tasks, split_rows

COUNTING = str(Path(__file__).parents[2] / "examples" / "counting_env.py")


def check_environment(experiment, environment):
    """Raise UserError if `experiment` needs something that this environment does not provide."""
    with patch.object(envs, "load", lambda _: environment):
        check(experiment, installed=False)


# ---------------------------------------------------------------- found


def test_ours_are_the_folders_of_the_package_and_need_no_table():
    assert set(envs.builtin()) >= {"household", "searchqa", "virtualhome", "webshop"}
    assert envs.load("household") is HOUSEHOLD
    assert envs.is_ours(HOUSEHOLD)
    assert envs.find("alfworld") is HOUSEHOLD


def test_an_environment_known_from_tables_only_can_be_judged_but_not_played(monkeypatch):
    unplayable = replace(envs.find("searchqa"), open_task=None)
    monkeypatch.setattr(envs, "find", lambda _: unplayable)
    grammar = envs.find("searchqa").grammar()
    turn = grammar.read_turn(Turn("search[Emma]", "(1) Emma: Jane Austen wrote Emma."))
    role, evidence = grammar.judge(grammar.read_goal("Who wrote Emma?"), [], turn, [])
    assert role in set("DENR")
    assert evidence
    with pytest.raises(UserError, match="'searchqa' cannot be played, only its tables judged"):
        envs.load("searchqa")


@pytest.fixture
def installed(monkeypatch):
    """Pretend that packages with these entry points are installed."""

    def install(**points):
        found = EntryPoints(EntryPoint(name, value, envs.GROUP) for name, value in points.items())
        monkeypatch.setattr(plugins, "entry_points", lambda **_: found)
        clear()

    def clear():
        plugins.installed.cache_clear()

    yield install
    monkeypatch.undo()
    clear()


def test_a_package_brings_an_environment_by_an_entry_point_and_cannot_replace_ours(installed):
    installed(doors="tests.envs.own:ENVIRONMENT", household="tests.envs.own:ENVIRONMENT")
    assert envs.load("doors") is own.ENVIRONMENT
    assert not envs.is_ours(own.ENVIRONMENT)
    assert envs.load("household") is HOUSEHOLD
    assert "doors" in envs.playable()


def test_a_broken_package_is_one_line_that_names_it(installed):
    installed(broken="tests.envs.nothing_here:ENVIRONMENT", wrong="tests.envs.own:rows")
    with pytest.raises(UserError, match=r"environment 'broken': .*nothing_here"):
        envs.load("broken")
    with pytest.raises(UserError, match="environment 'wrong': ENVIRONMENT is a function; describe"):
        envs.load("wrong")
    assert "broken" not in envs.playable()


def test_a_file_of_ones_own_is_known_by_its_name_once_it_is_loaded():
    counting = envs.load(COUNTING)
    assert counting.name == "counting"
    assert envs.find("counting") is counting
    assert counting.capabilities == {"progress", "snapshot", "admissible", "replay", "expert", "tasks_by_seed"}


OF = "from turncredit.envs.environment import Environment as E\nfrom tests.envs.own import Doors, rows\n"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("x = 1", "has no ENVIRONMENT; describe"),
        ("ENVIRONMENT = 3", "ENVIRONMENT is a int; describe"),
        ("raise OSError('no disk')", "cannot be imported: OSError: no disk"),
        (f"{OF}ENVIRONMENT = E(name='a')", "it has no open_task"),
        (f"{OF}class A:\n def step(self): ...\nENVIRONMENT = E(name='a', open_task=A)", "no method reset and no close"),
        (f"{OF}ENVIRONMENT = E(name='a', open_task=Doors)", "has no tasks; give make_tasks or read_tasks"),
        (
            f"{OF}ENVIRONMENT = E(name='a', open_task=lambda *_: 1, make_tasks=rows)",
            "the class it returns as env_class",
        ),
    ],
)
def test_a_file_that_is_no_environment_is_one_line_that_says_why(tmp_path, text, error):
    path = tmp_path / "mine.py"
    path.write_text(text)
    with pytest.raises(UserError, match=error):
        envs.load(str(path))


def test_a_missing_file_and_a_misspelt_name_say_so(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        envs.load(str(tmp_path / "mine.py"))
    with pytest.raises(UserError, match="did you mean 'household'"):
        envs.load("househld")


# ---------------------------------------------------------------- refused before any job


def experiment(**changes):
    plain = {"demos": {"noise": 0.0}, "methods": ["flat_grpo"], "audit": {"rounds": []}}
    settings = {"env": {"name": COUNTING}}
    return from_mapping({**plain, **settings, "rounds": 2, **changes})


LACKS = """
methods: [oracle_progress] -> methods: 'oracle_progress' needs the environment's distance, which 'counting'
audit: {rounds: [1]} -> audit.methods: 'oracle_progress' needs the environment's distance, .* unless audit.methods names
demos: {skip: 0.1} -> demos.skip: the expert of 'counting' cannot skip steps; set it to 0
"""


@pytest.mark.parametrize(("changes", "error"), cases(LACKS))
def test_what_the_environment_lacks_is_refused_by_name(changes, error):
    with pytest.raises(UserError, match=f"^config: {error}"):
        check(experiment(**changes))


class Loose(BaseModel):
    """Settings that drop unknown keys, as Pydantic's models do."""

    longest: int = 4


@pytest.mark.parametrize("kind", [Loose, envs.load(COUNTING).Settings])
def test_a_misspelt_setting_is_refused(kind):
    environment = replace(envs.load(COUNTING), Settings=kind)
    misspelt = experiment(env={"name": COUNTING, "counting": {"longst": 3}})
    with pytest.raises(UserError, match=r"unknown key 'env\.counting\.longst' \(did you mean 'longest'\?\)"):
        check_environment(misspelt, environment)
    with patch.object(envs, "load", lambda _: environment):
        refused = CliRunner().invoke(app, ["check", COUNTING, "--settings", "{longst: 3}"])
    assert str(refused.exception) == "--settings: unknown key 'longst' (did you mean 'longest'?)"


def test_without_an_expert_a_pretrained_model_plays_as_it_is():
    pretrained = {"policy": {"source": "some/model"}, "demos": {"noise": 0.1}}
    check_environment(experiment(sft={"epochs": 0}, **pretrained), own.ENVIRONMENT)
    with pytest.raises(UserError, match=r"demonstrations need .* pretrained model"):
        check_environment(experiment(sft={"epochs": 1}, **pretrained), own.ENVIRONMENT)
    with pytest.raises(UserError, match="demonstrations need the environment's expert"):
        check_environment(experiment(sft={"epochs": 0}), own.ENVIRONMENT)


def test_what_the_environment_has_is_not_refused():
    check(experiment(methods=["flat_grpo", "has_progressive", "scpo", "mgr_no_critic"]))
    check(experiment(audit={"rounds": [1], "methods": ["flat_grpo", "has_progressive"]}))


class Expert:
    def __init__(self, env, rng): ...


LEAST = """
methods: [has_progressive] -> 'has_progressive' needs the environment's progress
methods: [has_turnrd] -> 'has_turnrd' needs .* progress, which 'doors'
methods: [m], define: {m: {base: has_turnrd_outcome_only, model: {lambda_value: 0.5}}} -> 'm' needs the .* progress
demos: {noise: 0.1} -> demos.noise: needs .* nor a random_command; set it to 0
demos: {noise: 0, slips: 0.1} -> demos.slips: needs .* nor a slip_command
agent: {name: window, window: {think: false}} -> set agent.window.show_admissible to false
deterministic: false, audit: {rounds: [1], methods: [flat_grpo]} -> snapshot and restore, which 'doors'
deterministic: false, methods: [carl] -> 'carl' needs the environment's snapshot and restore
deterministic: false, methods: [vineppo] -> 'vineppo' needs the environment's snapshot and restore
"""


@pytest.mark.parametrize(("changes", "error"), cases(LEAST))
def test_the_least_environment_is_refused_what_it_cannot_do(changes, error):
    fields = {"expert": Expert, "deterministic": changes.get("deterministic", True)}
    settings = {name: value for name, value in changes.items() if name != "deterministic"}
    with pytest.raises(UserError, match=error):
        check_environment(experiment(**settings), own.environment(own.Doors, **fields))


def test_an_environment_that_saves_no_states_can_be_audited_and_continued_if_its_steps_are_deterministic():
    audited = {"rounds": [1], "methods": ["flat_grpo"]}
    check_environment(experiment(audit=audited, methods=["vineppo"]), own.environment(own.Doors, expert=Expert))


# ---------------------------------------------------------------- measured on demand


NO_PROGRESS = {"lambda_value": 0, "lambda_progress": 0}


@pytest.mark.parametrize(
    ("method", "definition", "credit", "model"),
    [
        ("plain", {"base": "flat_grpo"}, False, False),
        ("progressive", {"base": "has_progressive"}, True, False),
        ("oracle", {"base": "oracle_progress"}, True, False),
        ("own_file", {"credit": "examples/novelty.py"}, True, False),
        ("composed", {"base": "rloo", "params": {"turn_term": "has_progressive"}}, True, False),
        ("turnrd", {"base": "has_turnrd"}, False, True),
        ("outcome_only", {"base": "has_turnrd_outcome_only"}, False, False),
        ("no_losses", {"base": "has_turnrd", "model": NO_PROGRESS}, False, False),
        ("a_loss", {"base": "has_turnrd_outcome_only", "model": {"lambda_progress": 0.1}}, False, True),
        ("both", {"base": "turn_value", "params": {"turn_term": "has_progressive"}}, True, False),
    ],
)
def test_measures_are_recorded_for_those_that_read_them(method, definition, credit, model):
    plan = Plan(tiny.experiment(methods=[method], define={method: definition}))
    assert (plan.credit_reads_measures(method), plan.model_reads_measures(method)) == (credit, model)
    at = replace(plan.turns_at(method, 0, 2), method=method)
    assert ("measures" in plan.inputs("credit", at)) == credit
    learned = [plan.inputs(stage, at).get("measures") for stage in ("credit_model", "values") if plan.learns(method)]
    assert [bool(path) for path in learned] == [model] * len(learned)
    stages = [stage for stage, _ in loop.block(plan, method, 0, [2])]
    assert stages.count("measures") == (credit or model)


def test_a_method_of_ones_own_file_runs_where_there_is_nothing_to_measure():
    plan = Plan(experiment(methods=["n"], define={"n": {"credit": "examples/novelty.py"}}, env={"name": own.__file__}))
    assert not plan.measurable(plan.turns_at("n", 0, 1))
    assert not plan.credit_reads_measures("n")


class Counts(own.Doors):
    """Doors that tell how far one is, and can be come back to."""

    def progress(self):
        return self.at / 3

    def snapshot(self):
        return self.at

    def restore(self, state):
        self.at = state


UNSTEADY = """
methods: [has_progressive] -> methods: 'has_progressive' needs
audit: {rounds: [1], methods: [flat_grpo]} -> audit.rounds: branching needs
methods: [t], define: {t: {base: has_turnrd, model: {lambda_value: 1}}} -> methods: 't' needs
"""


@pytest.mark.parametrize(("changes", "error"), cases(UNSTEADY))
def test_what_replays_rollouts_is_refused_where_steps_are_not_deterministic(changes, error):
    unsteady = own.environment(Counts, expert=Expert, deterministic=False)
    with pytest.raises(UserError, match=f"^config: {error} the environment's deterministic steps, which 'counts'"):
        check_environment(experiment(**changes), unsteady)
    check_environment(experiment(**changes), own.environment(Counts, expert=Expert))
    check_environment(experiment(), unsteady)


# ---------------------------------------------------------------- guarded


def played(kind, name, timeout=0.3):
    env = guard.open_guarded(own.environment(kind), {"task_id": name, "goal": ""}, None, timeout)
    env.reset()
    env.step("open")
    return env.step("open")


@pytest.mark.parametrize("kind", [own.Faulty, own.FaultyLater])
@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("raises", r"step\(\) raised ValueError: the hinge broke"),
        ("exits", r"step\(\) raised SystemExit: 3"),
        ("hangs", r"step\(\) took longer than env.timeout, 0.3 s"),
        ("says_a_number", r"step\(\) must return a Step\(.*\), not 7 of type int"),
        ("sees_nothing", r"step\(\) must return a text as observation, not None of type NoneType"),
        ("sees_half_a_character", r"step\(\) must return a text that UTF-8 can encode as observation, not 'a \\ud800'"),
        ("pays_in_words", r"step\(\) must return a finite number as reward, not 'much' of type str"),
        ("pays_nan", r"step\(\) must return a finite number as reward, not nan"),
        ("is_vaguely_done", r"step\(\) must return true or false as done, not 'perhaps'"),
    ],
)
def test_what_goes_wrong_in_it_names_environment_task_and_turn(kind, name, error):
    started = time.monotonic()
    with pytest.raises(
        UserError, match=f"environment '{kind.__name__.lower()}': {error}.* \\(task '{name}', turn 1\\)"
    ):
        played(kind, name)
    assert time.monotonic() - started < 10, "a call that hangs is given up"


@pytest.mark.parametrize("kind", [own.Faulty, own.FaultyLater])
@pytest.mark.parametrize(
    ("name", "outside"),
    [
        ("loses_its_connection", True),
        ("hides_what_it_lost", True),
        ("hangs", True),
        ("raises", False),
        ("exits", False),
        ("says_a_number", False),
    ],
)
def test_a_lost_connection_and_a_timeout_are_faults_from_outside_and_other_errors_are_the_users(kind, name, outside):
    with pytest.raises(UserError) as caught:
        played(kind, name)
    assert isinstance(caught.value, OutsideFault) == outside


@pytest.mark.parametrize(
    ("error", "kind"),
    [(KeyError("no such room"), UserError), (ConnectionRefusedError(111, "Connection refused"), OutsideFault)],
)
def test_opening_making_tasks_and_the_expert_are_guarded_too(error, kind):
    def refuses(*_):
        raise error

    said = f"raised {type(error).__name__}"
    env = guard.open_guarded(own.ENVIRONMENT, {"task_id": "a"}, None, None)
    with pytest.raises(UserError, match=rf"environment 'doors': open_task\(\) {said}.* \(task 'a'\)") as opening:
        guard.open_guarded(Environment(name="doors", open_task=refuses), {"task_id": "a"}, None, None)
    with pytest.raises(UserError, match=rf"environment 'doors': make_tasks\(\) {said}") as making:
        split_rows(own.environment(own.Doors, make_tasks=refuses), "train", 2, 0, None)
    with pytest.raises(UserError, match=rf"environment 'doors': expert.act\(\) {said}") as acting:
        guard.GuardedExpert(SimpleNamespace(act=refuses), env).act()
    assert [type(one.value) for one in (opening, making, acting)] == [kind] * 3


def test_an_expert_without_an_action_is_named():
    env = guard.open_guarded(own.ENVIRONMENT, {"task_id": "a"}, None, None)
    with pytest.raises(UserError, match=r"environment 'doors': expert.act\(\) raised AttributeError"):
        guard.GuardedExpert(object(), env).act()


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ([{"task_id": "a"}], "gave row 0 without a text 'goal'"),
        ([{"task_id": 3, "goal": "x"}], "gave row 0 without a text 'task_id'"),
        ([{"task_id": "a", "goal": "x"}] * 2, "gave the task_id 'a' twice"),
        (["a"], "gave row 0 without"),
    ],
)
def test_rows_that_are_none_are_refused(rows, error):
    with pytest.raises(UserError, match=error):
        split_rows(own.environment(own.Doors, make_tasks=lambda *_: rows), "train", 2, 0, None)


@pytest.mark.parametrize(
    ("own_column", "error"),
    [
        ({"seed": "first"}, "the tasks' column 'seed' cannot be stored, since its values are not all int64: "),
        ({"game": ["x"]}, "the tasks' column 'game' cannot be stored, since its values are not all string: "),
        ({"level": "first"}, "the tasks' column 'level' cannot be stored, since its values are not of one type that "),
    ],
)
def test_a_column_of_mixed_types_is_named(monkeypatch, own_column, error):
    rows = [{"task_id": "a", "goal": "x", "level": 1}, {"task_id": "b", "goal": "x", "level": 2, **own_column}]
    monkeypatch.setattr(envs, "load", lambda _: own.environment(own.Doors, make_tasks=lambda *_: rows))
    with pytest.raises(UserError, match=f"environment 'doors': {error}"):
        make_tasks(EnvSlice(name="own"), "train", 2, 0, key="tasks.train")


def test_tasks_from_files_come_in_the_seeds_order_and_are_completed():
    env = own.environment(
        own.Doors, make_tasks=None, read_tasks=lambda split, settings: own.rows(split, 20, 0, settings)
    )
    assert env.capabilities == {"tasks_from_files", "replay", "snapshot"}
    one, again, other = (split_rows(env, "train", 5, seed, None) for seed in (0, 0, 1))
    assert one == again
    assert [row["task_id"] for row in one] != [row["task_id"] for row in other]
    assert [rows[0]["seed"] for rows in (one, other)] == [0, 1]
    assert {key: one[0][key] for key in ("env", "split", "family", "source", "game")} == {
        "env": "doors", "split": "train", "family": "doors", "source": "files", "game": "",
    }  # fmt: skip


# ---------------------------------------------------------------- words, failures, actions at random


def test_without_a_rule_an_action_has_failed_where_its_step_was_not_valid():
    for valid in (True, False):
        assert own.ENVIRONMENT.failed(Step("", 0.0, False, valid=valid)) == (not valid, not valid)
    env = own.environment(own.Doors, failures=FailureRule(replies("locked"), replies("locked|creaks")))
    assert env.failed(Step("it creaks", 0.0, False)) == (False, True)


@pytest.mark.parametrize("reply", ["Nothing happens.", "You open the drawer 1.", "You are not carrying anything."])
def test_the_households_rule_is_that_of_the_papers_on_its_own_texts(reply):
    step = Step(reply, 0.0, False)
    assert HOUSEHOLD.failed(step) == (PUBLISHED["hipif"](reply), PUBLISHED["mgr"](reply))
    assert HOUSEHOLD.failed(step)[0] == PUBLISHED["scpo"](reply)


def test_noise_takes_any_admissible_action_where_there_is_no_command_for_it():
    class Two(own.Doors):
        def admissible(self):
            return ["open", "wait"]

    env = own.environment(Two)
    assert {env.random_action(Two({}, None), random.Random(seed)) for seed in range(9)} == {"open", "wait"}
    assert not own.ENVIRONMENT.acts_at_random
    locked = own.environment(type("Locked", (Two,), {"admissible": lambda _self: []}))
    for choose in (locked.random_action, locked.slip):
        with pytest.raises(UserError, match=r"environment '.*': admissible\(\) lists no action .*give random_command"):
            choose(locked.open_task({}, None), random.Random(0))


def test_settings_of_an_environment_without_any_are_closed():
    with pytest.raises(UserError, match=r"unknown key 'env.doors.rooms'"):
        check(from_mapping({"env": {"name": own.__file__, "doors": {"rooms": 3}}}))


def test_a_file_of_ones_own_may_lie_in_a_folder_with_the_ending_of_python_files_in_its_name(tmp_path):
    file = tmp_path / ".pyenv" / "mine.py"
    file.parent.mkdir()
    file.write_text("def half(turns):\n    return turns.reward_N / 2\n")
    assert plugins.own_file(f"{file}:half") == (file, "half")
    assert resolve({"credit": f"{file}:half"}).name == "half"
