"""Configurations that cannot work are refused before any job, in one line that names the key.

Most mutations come from the schema itself: every key of every block gets a wrong type and the values just outside its
range, and every block gets a misspelt key. A setting that is added is tested without a line here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import pytest
from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tests import tiny
from tests.helpers import cases, nonempty
from turncredit import agents, config, envs
from turncredit.data.yaml_files import read_mapping
from turncredit.errors import UserError
from turncredit.pipeline import checks

TINY = tiny.mapping()
#: Blocks whose own keys are chosen by the user, and a name to mutate them under.
NAMED = {"define": "mine", "agents": "other", "resources": "rollout"}
#: What a block must have beside the mutated key to be read at all.
COMPANIONS = {"define": {"base": "rloo"}}


def blocks(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], type[BaseModel]]]:
    """Every block of the configuration: the path of its key, and its model."""
    yield path, model
    for name, field in model.model_fields.items():
        inner = model_in(field.annotation)
        if inner is not None and get_origin(field.annotation) is not tuple:
            here = (*path, name, NAMED[name]) if name in NAMED else (*path, name)
            yield from blocks(inner, here)


def model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that a key holds, if it holds one."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for part in get_args(annotation) if (model := model_in(part))), None)


BLOCKS = [
    *blocks(config.Experiment),
    (("env", "household"), envs.load("household").Settings),
    (("agent", "window"), agents.load("window").Settings),
    (("agent", "reflexion"), agents.load("reflexion").Settings),
]


def leaves() -> Iterator[tuple[tuple[str, ...], FieldInfo]]:
    """Every key that holds no block."""
    for path, model in BLOCKS:
        for name, field in model.model_fields.items():
            if model_in(field.annotation) is None:
                yield (*path, name), field


def alternatives(annotation: Any) -> list[Any]:
    """The types that a value may have."""
    if get_origin(annotation) in (Union, UnionType):
        return [kind for part in get_args(annotation) for kind in alternatives(part)]
    return [annotation]


def wrong_values(field: FieldInfo) -> Iterator[Any]:
    """Values that the key cannot have, by its annotation and its bounds."""
    kinds = alternatives(field.annotation)
    numeric = any(kind in (int, float) for kind in kinds)
    if not any(get_origin(kind) is dict or kind is dict for kind in kinds):
        yield {"a": 1}
    if numeric:
        yield from ("many", [1], True)
    if float in kinds:
        yield from (math.inf, -math.inf, math.nan, "inf")
    if int in kinds and float not in kinds:
        yield 1.5
    if bool in kinds and not numeric:
        yield from ("perhaps", 7)
    if str in kinds and not any(get_origin(kind) is tuple for kind in kinds):
        yield from (3, ["a"])
    if any(get_origin(kind) is Literal for kind in kinds):
        yield from ("no such choice", 3)
    if any(get_origin(kind) is tuple for kind in kinds):
        yield from ([{"a": 1}], [None])
    if type(None) not in kinds:
        yield None
    for bound in field.metadata:
        if isinstance(bound, Ge):
            yield bound.ge - 1
        if isinstance(bound, Gt):
            yield from (bound.gt, bound.gt - 1)
        if isinstance(bound, Le):
            yield bound.le + 1
        if isinstance(bound, Lt):
            yield from (bound.lt, bound.lt + 1)


def at(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """A configuration with `value` at `path`, and what its blocks need beside it."""
    made: Any = value
    for depth in reversed(range(len(path))):
        made = {path[depth]: made}
        if depth == 2 and path[0] in COMPANIONS and path[2] not in ("base", "credit"):
            made = {**COMPANIONS[path[0]], **made}
    if path[:1] == ("agent",) and len(path) == 3:
        made |= {"agent": {**made["agent"], "name": path[1]}, "methods": ["flat_grpo"]}
    if path[:2] == ("judge", "serve"):
        made["judge"]["kind"] = "llm"
    return made


def refusal(changes: dict[str, Any]) -> str:
    """The one line with which the tiny experiment with `changes` is refused, as by Snakemake."""
    with pytest.raises(UserError) as caught:
        checks.check(config.from_mapping(config.merge(TINY, changes)))
    line = str(caught.value)
    assert "\n" not in line
    assert len(line) < 500
    return line


MUTATIONS = [(path, value) for path, field in leaves() for value in wrong_values(field)]


def test_there_are_hundreds_of_mutations():
    assert len(MUTATIONS) > 300
    assert len({path for path, _ in MUTATIONS}) > 100


@pytest.mark.parametrize("path", sorted({path for path, _ in MUTATIONS}), ids=".".join)
def test_a_value_that_a_key_cannot_have_is_refused_by_the_keys_name_and_the_value(path):
    for value in nonempty(wrong for mutated, wrong in MUTATIONS if mutated == path):
        line = refusal(at(path, value))
        assert path[-1] in line, (value, line)
        # The value itself; of a list the item that is wrong.
        assert any(repr(shown) in line for shown in (value, *(value if isinstance(value, list) else ()))), (value, line)


@pytest.mark.parametrize("path", [path for path, _ in BLOCKS if path], ids=".".join)
def test_a_block_that_is_no_block_is_refused(path):
    for value in (3, "text", [1]):
        line = refusal(at(path, value))
        assert path[0] in line, (value, line)


@pytest.mark.parametrize(("path", "model"), BLOCKS, ids=[".".join(path) or "top" for path, _ in BLOCKS])
def test_a_misspelt_key_is_refused_with_the_nearest_one(path, model):
    name = max(model.model_fields, key=len)
    misspelt = name[:-2] + name[-1] + name[-2] if name[-1] != name[-2] else name + "x"
    line = refusal(at((*path, misspelt), 1))
    assert f"'{'.'.join((*path, misspelt))}'" in line or f"unknown key '{misspelt}'" in line
    assert f"did you mean '{name}'" in line


#: a change of the tiny experiment -> what its refusal says
WHOLE = """
policy: {scratch: {heads: 3}} -> hidden (32) must be a multiple of heads (3)
policy: {scratch: {hidden: 36, heads: 6, kv_heads: 4}} -> heads (6) must be a multiple of kv_heads (4)
policy: {scratch: {hidden: 30, heads: 2}} -> rotary positions need
policy: {engine: vllm}, rollout: {processes: 2} -> rollout.processes is 2, but with policy.engine vllm one process
granularity: round, resources: {update: {gpu: 1}}, rollout: {processes: 2} -> rollout.processes is 2, but with
policy.scratch.hidden: 8 -> --config 'policy={scratch: {hidden: ...}}'
update.lr: 0.1 -> --config 'update={lr: ...}'
update: {betas: [1.0, 0.9]} -> update.betas.0
update: {kl: k3} -> update: kl and kl_coefficient belong together
update: {kl_target: 0.04} -> update: kl_target adapts kl_coefficient
update: {minibatch: 17} -> update.minibatch is 17, but a round of 'flat_grpo' has only 16 rollouts
methods: [mine], define: {mine: {base: rloo, update: {minibatch: 99}}} -> define.mine.update.minibatch is 99
rollout: {tasks: 99}, tasks: {train: 9} -> rollout.tasks is 99, but there are only 9 training games; lower
methods: [mine], define: {mine: {base: rloo, rollout: {tasks: 99}}}, tasks: {train: 9} -> define.mine.rollout.tasks is
rollout: {tasks: 16, group_size: 1} -> rollout.group_size is 1, and 'flat_grpo' compares
methods: [mine], define: {mine: {base: rloo, rollout: {group_size: 1}}} -> define.mine.rollout.group_size is 1
eval: {modes: [{name: sampled, temperature: 0}, {name: sampled, temperature: 1}]} -> two modes have the same name
eval: {modes: []} -> eval: primary is 'sampled', which is not a mode
eval: {primary: greedy} -> eval: primary is 'greedy', which is not a mode; choose one of sampled
eval: {games: 500}, tasks: {eval: 600} -> evaluations need 1000 held-out games, 500 in each of the rounds
seeds: [0, 0] -> seeds has 0 twice; remove one
seeds: [9223372036854775808] -> seeds.0: input should be less than
seeds: [-1] -> seeds.0: input should be greater than or equal to 0
methods: [] -> methods: list should have at least 1 item
methods: rloo -> methods: input should be a list
methods: [rloo, rloo] -> methods has 'rloo' twice; remove one
methods: [flat_grop] -> methods: unknown method 'flat_grop' (did you mean 'flat_grpo'?)
methods: [hipif] -> 'hipif' reads the columns subgoal, subgoal_index of the turns, which the agent 'transcript'
methods: [ppo], env: {household: {horizon: 60}} -> 'ppo' reads at most 50 turns (max_turns of its model critic)
methods: [mine], define: {mine: {base: carl, params: {turn_term: triage}}} -> remove the part that reads labels
define: {flat_grpo: {base: rloo}} -> define.flat_grpo: 'flat_grpo' is a built-in method
define: {rloo: {credit: mine.py}} -> define.rloo: 'rloo' is a built-in
define: {my-own: {base: rloo}} -> define.my-own: a method's name must begin with a letter
define: {shared: {base: rloo}} -> define.shared: costs outside the runs have this name; rename the method
define: {2nd: {base: rloo}} -> define.2nd: a method's name
define: {méthode: {base: rloo}} -> define.méthode: a method's name
define: {m: {}} -> define.m: give either base (a built-in method) or credit
define: {m: {credit: no_such.py}} -> no_such.py: no such file
define: {m: {base: rloo, update: {lrr: 1}}} -> unknown key 'define.m.update.lrr'
define: {m: {base: rloo, gamma: 0.9}} -> 'define.m.gamma'; write a parameter of the method under params
define: {m: {base: gigpo, params: {eps: .inf}}} -> define.m.params.eps is inf
define: {m: {base: gigpo, params: {epsilon: 1}}} -> define.m: m has no parameter 'epsilon'
define: {m: {base: flat_grpo, params: {nrom: none}}} -> has no parameter 'nrom' (did you mean 'norm'?)
define: {m: {base: has_turnrd, model: {causl: true}}} -> unknown key 'define.m.model.causl'
define: {m: {base: flat_grpo, model: {film: true}}} -> define.m.model: this method has no learned
define: {m: {base: turn_value, model: {head: causal_transformer, heads: 3}}} -> (64) must be a multiple of heads (3)
define: {m: {base: turn_value, params: {turn_term: has_turnrd}}} -> two models, turn_value and turnrd
define: {m: {base: flat_grpo, continuations: {per_state: 2}}} -> define.m.continuations: this method reads no
define: {m: {base: vineppo, continuations: {per_stat: 2}}} -> unknown key 'define.m.continuations.per_stat'
define: {m: {base: vineppo, forks: {per_task: 2}}} -> define.m.forks: this method credits no forks
define: {t: {base: rloo, grid: {policy.source: [a]}}} -> define.t.grid: 'policy.source' is not a key of a method
define: {t: {grid: {update: [{}]}}} -> define.t.grid: 'update' is not a key of a method
define: {t: {grid: {base: []}}} -> define.t.grid.base: give a list of values, or a mapping
define: {t: {grid: [base]}} -> define.t.grid: write KEY: [VALUE, ...]
define: {t: {base: rloo, grid: {update.lr: [0.1, 0.10]}}} -> define.t: two methods are called 't_lr_0_1'
define: {t: {base: rloo, grid: {update.lrr: [1]}}} -> unknown key 'define.t_lrr_1.update.lrr' (did you mean 'lr'?)
sweep: {grid: {experiment: [a]}} -> sweep.grid: 'experiment' is not a key that can vary
sweep: {grid: {polcy.dtype: [a]}} -> sweep.grid: 'polcy.dtype' is not a key that can vary
sweep: {grid: [rounds]} -> sweep.grid: write KEY: [VALUE, ...]
sweep: {grid: {rounds: []}} -> sweep.grid.rounds: give a list of values, or a mapping
sweep: {grid: {rounds: [3, 3.0]}} -> sweep: two experiments are called 'tiny_rounds_3'
sweep: {grid: {rounds: [3, 4]}} -> sweep: the configuration has 2 experiments (tiny_rounds_3, tiny_rounds_4)
sweep: {grid: {rounds: [3]}, only: x} -> sweep.only is 'x', which is not in the sweep; choose one of tiny_rounds_3
sweep: {grid: {sft.epoch: [3]}, only: tiny_epoch_3} -> unknown key 'sft.epoch' (did you mean 'epochs'?)
sweep: {only: x} -> sweep.only is 'x', but there is no sweep
sweep: {grid: {sft: [{epochs: 1}], sft.epochs: [2]}} -> sweep.grid: one of 'sft' and 'sft.epochs' is inside the other
sweep: {grid: {rounds: {true: 3}}} -> sweep.grid.rounds: a value's name must be a word or a number
tracking: {uri: ftp://server} -> tracking: uri is not a store that MLflow knows
tracking: {uri: sqlit:///a.db} -> did you mean 'sqlite'?
env: {settings: {horizon: 9}} -> env: settings are now under their owner's name; write 'household'
env: {horizon: 9} -> env: unknown key 'horizon'; if it is a setting, write it under 'household'
env: {tiemout: 9} -> env: unknown key 'tiemout' (did you mean 'timeout'?)
env: {houshold: {horizon: 9}} -> unknown key 'env.houshold' (did you mean 'household'?)
env: {name: househld} -> unknown environment 'househld' (did you mean 'household'?)
agent: {name: windoe} -> unknown agent 'windoe' (did you mean 'window'?)
agent: {name: mine.py} -> mine.py: no such file; an agent of your own
agent: {name: mine.py, settings: {}} -> agent: settings are now under their owner's name
agent: {history: 2} -> agent: history is now a setting of the window agent; write agent.window.history
agent: {show_admissible: false} -> agent: show_admissible is now a setting of the window agent
agent: {transcript: {history: 2}} -> unknown key 'agent.transcript.history'
agent: {name: window, windwo: {history: 2}} -> unknown key 'agent.windwo' (did you mean 'window'?)
resources: {audit_model: {gpu: 1}} -> resources: the stage audit_model is now called credit_model; write
audit: {rounds: [3]} -> audit.rounds has 3, but the experiment's rounds are 1 to 2
audit: {rounds: [1], run: flat_gpro} -> audit.run is 'flat_gpro', which is not one of methods (did you mean 'fl
audit: {rounds: [1], run: rloo} -> choose a run that is trained, as in 'audit={run: flat_grpo}'
audit: {rounds: [1], run: [flat_grpo, rlo]} -> audit.run is 'rlo', which is not one of methods
audit: {rounds: [1], run: [flat_grpo, flat_grpo]} -> audit.run has a value twice
audit: {rounds: [1], seeds: [7]} -> audit.seeds has 7, but the experiment's seeds are 0
audit: {rounds: [1], methods: [gigop]} -> audit.methods: unknown method 'gigop' (did you mean 'gigpo'?)
audit: {rounds: [1], methods: [hipif_gigpo]} -> audit.methods: 'hipif_gigpo' reads the columns subgoal
audit: {rounds: [1], methods: [flat_grpo, carl]} -> audit.methods: 'carl' credits forks of its own rollouts
audit: {rounds: [1], methods: [ppo]}, env: {household: {horizon: 60}} -> 'ppo' reads at most 50 turns
"""


@pytest.mark.parametrize(("changes", "message"), cases(WHOLE))
def test_what_cannot_work_is_refused_before_any_job(changes, message):
    assert message in refusal(changes)


def test_a_sweep_whose_names_are_too_long_for_files_is_refused():
    assert "has 104 characters, more than 100" in refusal({"sweep": {"grid": {"rounds": {"x" * 99: 3}}}})


def test_an_agent_that_cannot_look_back_is_refused_to_a_method_in_hindsight():
    own = {"agent": {"name": str(tiny.ROOT / "examples/own_agent.py")}, "methods": ["hcapo"]}
    assert "'hcapo' reads turns in hindsight, and the agent 'notes' does not say how" in refusal(own)


def test_a_built_in_methods_own_parameters_may_be_defined_under_its_name():
    checks.check(tiny.experiment(define={"flat_grpo": {"base": "flat_grpo", "params": {"norm": "mean"}}}))


def test_a_method_with_something_to_say_about_one_rollout_may_have_groups_of_one():
    checks.check(tiny.experiment(methods=["gigpo"], rollout={"tasks": 16, "group_size": 1}))


@pytest.mark.parametrize("uri", ["http://127.0.0.1:5000", "sqlite:///a.db", "postgresql+psycopg2://h/d", "./mlruns"])
def test_every_kind_of_store_is_allowed(uri):
    assert tiny.experiment(tracking={"uri": uri}).tracking.uri == uri


#: what a file holds, and what is said of it
FILES = {
    "a key twice": (b"a: 1\nb: 2\na: 3\n", "line 3: the key 'a' is given twice, first in line 1"),
    "a key twice in a block": (b"a:\n  b: 1\n  b: 1\n", "line 3: the key 'b' is given twice, first in line 2"),
    "a key twice on a line": (b"a: {b: 1, b: 2}\n", "line 1: the key 'b' is given twice"),
    "nothing": (b"", "is empty"),
    "only comments": (b"# nothing\n", "is empty"),
    "an open bracket": (b"a: 1\nb: [1\n", "line 3: not valid YAML"),
    "a tab": (b"a:\n\tb: 1\n", "line 2: not valid YAML"),
    "two documents": (b"a: 1\n---\nb: 1\n", "line 2: not valid YAML"),
    "a list": (b"- 1\n", "must hold keys and values, not a list"),
    "a text": (b"hello\n", "must hold keys and values, not a str"),
    "no text": (b"\xff\xfe\x00", "not a UTF-8 text file"),
    "a date that there is not": (b"a: 2026-99-99\n", "not valid YAML"),
    "itself": (b"a: &a [*a]\n", "not valid YAML: Circular reference"),
    "a date as a key": (b"2026-01-01: 1\n", "not valid YAML: keys must be"),
    "code": (b"a: !!python/object/apply:os.getcwd []\n", "line 1: not valid YAML"),
    "depth": (b"a: " + b"[" * 5000, "nested too deeply"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_configuration_is_refused_with_its_line(tmp_path, name):
    text, message = FILES[name]
    path = tmp_path / "c.yaml"
    path.write_bytes(text)
    with pytest.raises(UserError) as caught:
        config.load([path])
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_json_file_with_a_key_twice_is_refused(tmp_path):
    (tmp_path / "c.json").write_text('{"a": {"b": 1, "b": 2}}')
    with pytest.raises(UserError, match="the key 'b' is given twice"):
        config.load([tmp_path / "c.json"])


def test_a_merged_key_may_be_overridden(tmp_path):
    (tmp_path / "c.yaml").write_text("x: &x {q: 1}\np: {a: &a {<<: *x, q: 3}}\nb: {<<: *a, q: 9}\n")
    assert read_mapping(tmp_path / "c.yaml") == {"x": {"q": 1}, "p": {"a": {"q": 3}}, "b": {"q": 9}}
