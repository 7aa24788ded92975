"""From names and configuration entries to methods."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.credit import synthetic
from tests import tiny
from tests.credit.tables import numbers
from turncredit.credit import METHODS, compute, resolve
from turncredit.credit.parts.compose import Method, Part
from turncredit.credit.parts.lookup import SLOTS, resolve_for_table
from turncredit.credit.parts.normalisers import rms
from turncredit.data.turns import Turns
from turncredit.errors import UserError
from turncredit.pipeline import checks

TABLE, SIDE = synthetic.tables(synthetic.rows(2, 3, 6, seed=0))


def test_every_named_method_resolves_to_itself_and_has_a_summary() -> None:
    for name, method in METHODS.items():
        assert resolve(name) == method
        assert method.summary
        assert len(method.summary) < 90


def test_parameters_go_to_the_part_that_has_them_and_conventions_to_all() -> None:
    method = resolve({"base": "scpo", "params": {"theta": 0.5, "omega": 2, "gamma": 0.9}})
    assert method.shapers[0].params == {"theta": 0.5}
    assert method.estimator.params == {"omega": 2, "gamma": 0.9}
    assert resolve({"base": "triage", "params": {"ddof": 0}}).normaliser.params == {"ddof": 0}
    assert resolve({"base": "triage", "params": {"ddof": 0}}).estimator.params == {"ddof": 0}


def test_a_parameter_of_two_parts_must_name_its_part() -> None:
    composed = {"base": "has_progressive", "params": {"estimator": "gigpo", "shapers": ["scpo"], "alpha": 0.5}}
    with pytest.raises(UserError, match=re.escape("write scpo.alpha or has_progressive.alpha")):
        resolve(composed)
    composed["params"]["scpo.alpha"] = composed["params"].pop("alpha")
    method = resolve(composed)
    assert method.shapers[0].params["alpha"] == 0.5
    assert "alpha" not in method.turn_term.params


def test_a_composition_is_a_configuration_entry() -> None:
    by_hand = resolve({"base": "step_grpo", "params": {"shapers": ["scpo"]}})
    np.testing.assert_array_equal(
        numbers(compute(TABLE, by_hand, SIDE)), numbers(compute(TABLE, METHODS["scpo_grpo"], SIDE))
    )
    entry = {"base": "hipif", "params": {"estimator": "gigpo", "normaliser": "rms", "turn_term": "has_progressive"}}
    method = resolve(entry, name="mine")
    assert [part.name for part in method.parts] == ["hipif", "gigpo", "has_progressive", "rms"]
    got = compute(TABLE, method, SIDE)
    assert set(got["method"].to_pylist()) == {"mine"}
    assert np.sqrt(np.mean(numbers(got) ** 2)) == pytest.approx(1)


def test_a_later_parts_column_takes_no_earlier_parts_name() -> None:
    composed = resolve({"base": "has_progressive", "params": {"estimator": "gigpo", "normaliser": "rms"}})
    got, gigpo = compute(TABLE, composed, SIDE), compute(TABLE, METHODS["gigpo"], SIDE)
    for name in set(gigpo.column_names) - {"method", "advantage"}:
        assert got[name].equals(gigpo[name]), name
    blended_N = 0.5 * numbers(gigpo) + 0.5 * numbers(got, "advantage_turn")
    np.testing.assert_allclose(numbers(got, "advantage_raw"), blended_N)
    assert got["has_progressive_advantage_rollout"].equals(gigpo["advantage"])
    assert "has_progressive_advantage_rollout" not in compute(TABLE, METHODS["has_progressive"], SIDE).column_names


@pytest.mark.parametrize("estimator", ["carl", "g2po", "gagpo", "ppo", "vineppo"])
def test_a_critic_after_an_estimator_with_values_is_refused_since_it_would_learn_from_those(estimator: str) -> None:
    composed = resolve({"base": "mgr", "params": {"estimator": estimator}})
    with pytest.raises(UserError, match="critic_within_turns: a part before it has the column 'value', and the critic"):
        compute(TABLE, composed, SIDE)
    assert compute(TABLE, resolve({"base": "mgr", "params": {"estimator": "rloo"}}), SIDE).num_rows == TABLE.num_rows


def test_a_turn_that_one_part_leaves_out_is_not_trained_on() -> None:
    number_N = np.arange(len(TABLE))
    by = Part("base", lambda turns: {"advantage": turns.reward_N, "trained": (number_N > 0).astype(float)}, "estimator")
    term = Part("term", lambda _, base_N: {"advantage": base_N, "trained": number_N % 2}, "turn_term")
    got = compute(TABLE, Method("mine", "", by, turn_term=term), SIDE)
    np.testing.assert_array_equal(numbers(got, "trained"), (number_N > 0) & (number_N % 2 == 1))
    assert "term_trained" not in got.column_names


@pytest.mark.parametrize("size", [0.0, 1e-17, 1e-12])
def test_rms_makes_no_advantage_of_rounding_noise(size: float) -> None:
    noise_N = size * np.array([1.0, -1.0, 1.0])
    turns = Turns({"group_id": ["a"] * 3, "rollout_id": ["x"] * 3, "turn": [0, 1, 2], "reward": [0.0] * 3})
    assert rms(turns, noise_N).tolist() == [0, 0, 0]
    assert rms(turns, noise_N + 1e-6).tolist() == pytest.approx([1, 1, 1], rel=1e-5)


def test_text_from_the_command_line_becomes_what_the_parameter_is() -> None:
    method = resolve({"base": "scpo", "params": {"eps": "1e-4", "ranks": "2", "repeat": "true"}})
    assert method.estimator.params == {"eps": 1e-4}
    assert method.shapers[0].params == {"ranks": 2, "repeat": True}


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("flat_gpro", "unknown method 'flat_gpro' (did you mean 'flat_grpo'?)"),
        ({"base": "gigpo", "param": {}}, "a method has no key 'param' (did you mean 'params'?)"),
        ({"base": "gigpo", "params": {"omga": 1}}, "gigpo has no parameter 'omga' (did you mean 'omega'?)"),
        ({"base": "gigpo", "params": {"norm": "std"}}, "gigpo: norm='std'"),
        ({"base": "gigpo", "params": {"gamma": 1.5}}, "gigpo: gamma=1.5"),
        ({"base": "gigpo", "params": {"ddof": 2}}, "gigpo: ddof=2"),
        ({"base": "has_judge", "params": {"alpha": -0.1}}, "has_judge: alpha=-0.1"),
        ({"base": "has_judge", "params": {"alpha": "half"}}, "has_judge: alpha='half'"),
        ({"base": "gigpo", "params": {"shapers": ["scop"]}}, "unknown shapers 'scop' (did you mean 'scpo'?)"),
        ({"base": "gigpo", "params": {"shapers": ["scpo", "scpo"]}}, "gigpo: shapers names 'scpo' twice"),
        ({"base": "gigpo", "params": {"estimator": None}}, "estimator must be a name, not None"),
        ({"base": "rloo", "params": {"shapers": ["scpo"]}}, "rloo does not use what scpo adds to a turn"),
        ({}, "either base (a built-in method) or credit (a file)"),
        ({"base": "gigpo", "credit": "x.py"}, "either base (a built-in method) or credit (a file)"),
        ("missing.py", "missing.py: no such file"),
    ],
)
def test_a_mistake_is_one_line_with_the_nearest_name(entry: str | dict, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)) as caught:
        resolve(entry)
    assert "\n" not in str(caught.value)


def test_a_variant_with_a_parameter_that_no_part_has_is_refused() -> None:
    with pytest.raises(UserError, match="a variant of gigpo has no parameter 'gama' \\(did you mean 'gamma'"):
        METHODS["gigpo"].variant("mine", "GiGPO with another discount", gama=0.9)
    assert METHODS["gigpo"].variant("mine", "GiGPO with another discount", gamma=0.9).params()["gamma"] == 0.9


def test_a_preset_is_for_the_composed_parts_not_for_those_that_were_replaced() -> None:
    composed = resolve_for_table("step_grpo", "verl_agent", {"estimator": "gigpo"}, (), "")
    assert dict(composed.estimator.params) == {"weighting": "row", "singleton": "raw"}
    assert composed == resolve({"base": "step_grpo", "params": {"estimator": "gigpo"}}, preset="verl_agent")
    without = resolve_for_table("flat_grpo", "verl_agent", {"estimator": "hgpo"}, (), "")
    assert dict(without.estimator.params) == {}


COMPOSED = [
    {"base": "hcapo", "params": {"estimator": "gigpo", "hcapo.omega": 0.5}},
    {"base": "hcapo", "params": {"estimator": "gigpo"}},
    {"base": "hcapo", "params": {"shapers": ["scpo"], "estimator": "gigpo", "gamma": 0.5, "gigpo.gamma": 0.7}},
    {"base": "has_progressive", "params": {"estimator": "gigpo", "shapers": ["scpo"], "normaliser": "whiten"}},
]


@pytest.mark.parametrize("entry", [*METHODS, *COMPOSED], ids=str)
def test_the_parameters_that_are_listed_can_be_set_and_make_the_same_method(entry: str | dict) -> None:
    method = resolve(entry)
    base = {"base": entry, "params": {}} if isinstance(entry, str) else entry
    slots = {key: value for key, value in base["params"].items() if key in SLOTS}
    again = resolve({"base": base["base"], "params": {**slots, **method.params()}})
    assert [part.settable() for part in again.parts] == [part.settable() for part in method.parts]


def test_parameters_that_parts_share_are_listed_by_part() -> None:
    listed = resolve(COMPOSED[1]).params()
    assert [name for name in listed if "omega" in name] == ["gigpo.omega", "hcapo.omega"]
    assert listed["gamma"] == resolve("gigpo").params()["gamma"]


def test_side_tables_beside_turns_that_have_their_own_are_refused() -> None:
    assert compute(Turns(TABLE, SIDE), METHODS["triage"]) == compute(TABLE, METHODS["triage"], SIDE)
    with pytest.raises(UserError, match=re.escape("turns: side tables go into the Turns, not beside it: Turns(table")):
        compute(Turns(TABLE), METHODS["flat_grpo"], SIDE)


def own(path: Path, body: str) -> str:
    file = path / "mine.py"
    file.write_text("import numpy as np\nfrom turncredit.data.turns import Turns\n" + body)
    return str(file)


def test_a_file_of_ones_own_is_a_method(tmp_path: Path) -> None:
    file = own(
        tmp_path,
        "def mine(turns: Turns, *, scale: float = 1.0):\n"
        "    'Later turns get more.'\n"
        "    return {'early': -turns.turn_N, 'advantage': scale * turns.turn_N}\n",
    )
    for entry in (file, f"{file}:mine"):
        method = resolve({"credit": entry, "params": {"scale": "2"}})
        assert method.summary == "Later turns get more."
        shuffled = TABLE.take(np.arange(TABLE.num_rows)[::-1])
        got = compute(shuffled, method)
        assert numbers(got).tolist() == [2.0 * turn for turn in shuffled["turn"].to_pylist()]
        assert numbers(got, "early").tolist() == [-float(turn) for turn in shuffled["turn"].to_pylist()]


def test_annotations_of_a_file_of_ones_own_are_read_where_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from __future__ import annotations\n"
        "from typing import TYPE_CHECKING, Literal\n"
        "if TYPE_CHECKING:\n    from nowhere import Table, Size\n"
        "def mine(turns: Table, *, how: Literal['a', 'b'] = 'a', size: Size = 1, **others) -> Table:\n"
        "    return turns.turn_N * (2 if how == 'b' else 1)\n"
    )
    method = resolve({"credit": str(file), "params": {"how": "b"}})
    assert method.params() == {"how": "b", "size": 1}
    assert numbers(compute(TABLE, method)).max() == 2 * max(TABLE["turn"].to_pylist())
    for params, message in (
        ({"how": "c"}, "mine: how='c': Input should be 'a' or 'b'"),
        ({"size": 2}, "mine: the type of size, Size, cannot be read: name 'Size' is not defined; import it"),
        ({"others": 2}, "mine has no parameter 'others'; it has how, size"),
    ):
        with pytest.raises(UserError, match=re.escape(message)):
            resolve({"credit": str(file), "params": params})


@pytest.mark.parametrize(
    ("default", "value", "read"),
    [
        ("0.5", "1e-3", 0.001),
        ("0.5", 2, 2.0),
        ("0.5", None, None),
        ("1", "1e-3", 0.001),
        ("1", 2, 2),
        ("1", None, None),
        ("np.float64(0.5)", "1e-3", 0.001),
        ("np.float32(0.5)", "1e-3", 0.001),
        ("np.int64(1)", "1e-3", 0.001),
        ("True", "1e-3", "1e-3"),
        ("None", "1e-3", "1e-3"),
    ],
)
def test_a_parameter_without_an_annotation_is_a_number_if_its_default_is(
    default: str, value: object, read: object, tmp_path: Path
) -> None:
    """YAML 1.1, of a configuration and of --set, reads 1e-3 as text."""
    file = own(tmp_path, f"import numpy as np\ndef mine(turns, *, weight={default}):\n    return turns.reward_N\n")
    assert resolve({"credit": str(file), "params": {"weight": value}}).params() == {"weight": read}


def test_text_for_a_parameter_that_is_a_number_is_refused(tmp_path: Path) -> None:
    file = own(tmp_path, "def mine(turns, *, weight=0.5):\n    return turns.reward_N\n")
    with pytest.raises(UserError, match="mine: weight='high': Input should be a valid number"):
        resolve({"credit": str(file), "params": {"weight": "high"}})


def test_a_file_of_ones_own_is_read_again_after_an_edit(tmp_path: Path) -> None:
    for factor in (1, 5):  # of the same size, within a second
        file = own(tmp_path, f"def mine(turns):\n    return {factor} * turns.turn_N\n")
        assert numbers(compute(TABLE, resolve(file))).max() == factor * max(TABLE["turn"].to_pylist())


def test_a_file_of_ones_own_can_import_a_file_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "my_helpers_beside.py").write_text("def late(turns):\n    return 3 * turns.turn_N\n")
    (tmp_path / "numpy.py").write_text("raise RuntimeError('a package was replaced')\n")
    file = own(tmp_path, "from my_helpers_beside import late\ndef mine(turns):\n    return late(turns)\n")
    assert numbers(compute(TABLE, resolve(file))).max() == 3 * max(TABLE["turn"].to_pylist())


SHAPE = "has shape (6,)"
#: what stands in the file, and what the message says beside the file's name
BROKEN_FILES = [
    ("def mine(turns):\n    return turns.return_R\n", f"'advantage' {SHAPE}"),
    ("def mine(turns):\n    turns.reward_N\n", "returned None (is its `return` missing?)"),
    ("def mine(turns):\n    return 0.5\n", "returned 0.5"),
    ("def mine(turns):\n    return {'advantage': None}\n", "'advantage' is None"),
    ("def mine(turns):\n    return turns.reward_N * np.nan\n", "'advantage' is nan at group 'g00000'"),
    (
        "def mine(turns):\n    return {'trained': turns.turn_N * np.nan, 'advantage': turns.reward_N}\n",
        "column 'trained' is nan",
    ),
    ("def mine(turns):\n    return {'credit': turns.reward_N}\n", "'advantage'"),
    ("def mine(turns):\n    return {'turn': turns.turn_N, 'advantage': turns.reward_N}\n", "'turn'"),
    ("def mine(turns):\n    return {'advantage': turns.reward_N, 3: turns.reward_N}\n", "not 3"),
    ("def mine(turns):\n    return {3: turns.reward_N}\n", "not 3"),
    ("def mine(turns):\n    return ['x'] * turns.n\n", "not a number"),
    (
        "def mine(turns):\n    return {'advantage': np.ma.masked_array(turns.reward_N, turns.turn_N > 0)}\n",
        "'advantage' is a masked array; fill it: advantage.filled(0.0)",
    ),
    ("def mine(turns):\n    return np.ma.masked_array(turns.reward_N)\n", "'advantage' is a masked array"),
    ("def other(turns):\n    return turns.reward_N\n", "no function, Part or Method 'mine'; it has other: write"),
    ("def mine(turns:\n", "SyntaxError"),
    ("import nowhere_to_be_found\n", "ModuleNotFoundError"),
    ("def mine(turns):\n    return len(None)\n", "mine.py:4: mine: TypeError: object of type 'NoneType'"),
    ("def mine(turns):\n    return turns.lengths\n", "mine.py:4: mine: AttributeError: 'Turns' object has no"),
    ("def mine(turns):\n    raise SystemExit(3)\n", "mine.py:4: mine: SystemExit: 3"),
    ("def mine(turns, *, gamma):\n    return turns.reward_N\n", "'gamma' has no default"),
    ("def mine(turns, gamma):\n    return turns.reward_N\n", "'gamma' has no default"),
    ("def mine():\n    return 1\n", "def mine(turns, *, parameter=default)"),
]


@pytest.mark.parametrize(("body", "message"), BROKEN_FILES)
def test_what_is_wrong_with_a_file_of_ones_own_is_told_in_one_line(tmp_path, monkeypatch, body, message) -> None:
    own(tmp_path, body)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=re.escape(message)) as caught:
        compute(TABLE, resolve("mine.py"))
    assert "mine.py" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_component_without_a_number_is_null_as_those_of_built_in_methods_are(tmp_path, monkeypatch) -> None:
    own(
        tmp_path,
        "def mine(turns):\n"
        "    late_N = np.where(turns.turn_N > 0, 1.0, np.nan)\n"
        "    return {'late': late_N, 'advantage': turns.reward_N}\n",
    )
    monkeypatch.chdir(tmp_path)
    late = compute(TABLE, resolve("mine.py")).column("late")
    assert late.to_pylist() == [1.0 if turn > 0 else None for turn in TABLE["turn"].to_pylist()]


def test_only_a_function_of_ones_own_does_not_declare_what_it_reads(tmp_path, monkeypatch) -> None:
    own(tmp_path, "def mine(turns):\n    return turns.reward_N\n")
    monkeypatch.chdir(tmp_path)
    composed = {"credit": "mine.py", "params": {"shapers": [], "turn_term": "triage"}}
    for method in (resolve("mine.py"), resolve(lambda turns: turns.reward_N), resolve(composed)):
        assert not method.declares_reads
        assert method.reads == ()
    assert resolve(composed).needs == ("labels",)
    assert all(method.declares_reads for method in METHODS.values())


@pytest.mark.parametrize("name", ["has_judge", "triage", "triage_scalar", "ppo", "hcapo", "istar", "igpo", "vineppo"])
def test_a_part_called_without_its_side_table_names_it_and_the_option_that_gives_it(name: str) -> None:
    part = next(part for part in METHODS[name].parts if part.needs)
    (wanted,) = part.needs
    turns = Turns(TABLE)
    base = {"base_N": np.zeros(turns.n)} if part.kind == "turn_term" else {}
    with pytest.raises(UserError) as caught:
        part.function(turns, **base)
    assert str(caught.value).endswith(f"needs the side table '{wanted}', which was not given (--{wanted} FILE)")


@pytest.mark.parametrize(
    "body",
    [
        "    return turns.side['labels'].numbers('score', 'mine')",
        "    return turns.numbers('ladder', 'mine')",
        "    return [float(text.split('=')[1]) for text in turns.column('observation', 'mine')]",
        "    return turns.reward_N / 0",
        "    return turns.reward_N",
    ],
)
def test_a_method_whose_result_may_depend_on_the_data_is_not_refused_before_it(tmp_path, monkeypatch, body) -> None:
    """What may be the small table's fault is left to the job."""
    own(tmp_path, f"def mine(turns):\n{body}\n")
    monkeypatch.chdir(tmp_path)
    experiment = tiny.experiment(methods=["broken"], define={"broken": {"credit": "mine.py:mine"}})
    assert checks.check(experiment) is None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("    return turns.return_R", "mine.py:mine: column 'advantage' has shape (4,); one number for each of the 18"),
        ("    turns.reward_N", "mine.py:mine: returned None (is its `return` missing?)"),
        ("    return {'credit': turns.reward_N}", "none is called 'advantage'"),
        ("    return turns.lengths", "mine.py:4: mine: AttributeError: 'Turns' object has no attribute 'lengths'"),
        ("    return torch.zeros(turns.n)", "mine.py:4: mine: NameError: name 'torch' is not defined"),
    ],
)
def test_a_broken_method_of_ones_own_is_told_before_any_job(tmp_path, monkeypatch, body, message) -> None:
    own(tmp_path, f"def mine(turns):\n{body}\n")
    monkeypatch.chdir(tmp_path)
    experiment = tiny.experiment(methods=["broken"], define={"broken": {"credit": "mine.py:mine"}})
    with pytest.raises(UserError, match=re.escape(message)) as caught:
        checks.check(experiment)
    assert str(caught.value).startswith("config: define.broken: mine.py:")
    assert "\n" not in str(caught.value)


BROKEN_PARTS = [
    ("estimator", lambda turns: {"credit": turns.reward_N}, "'advantage'"),
    ("estimator", lambda turns: turns.return_R, SHAPE),
    ("turn_term", lambda _: None, "returned None"),
    ("turn_term", lambda turns: {"turn": turns.reward_N, "advantage": turns.reward_N}, "'turn'"),
    ("normaliser", lambda _: 0.5, "returned 0.5"),
    ("normaliser", lambda turns: ["x"] * turns.n, "not a number"),
    ("shaper", lambda turns: turns.reward_N, "'score_bonus' or 'step_bonus'"),
    ("shaper", lambda turns: {"step_bonus": turns.return_R}, f"'step_bonus' {SHAPE}"),
]


@pytest.mark.parametrize(("kind", "returned", "message"), BROKEN_PARTS)
def test_what_is_wrong_with_a_packages_part_is_told_in_one_line(kind, returned, message) -> None:
    part = Part("theirs", lambda turns, **_: returned(turns), kind)
    parts = {"estimator": resolve("gigpo").estimator, "shapers" if kind == "shaper" else kind: part}
    parts["shapers"] = (part,) if kind == "shaper" else ()
    with pytest.raises(UserError, match=f"^mine: theirs: .*{re.escape(message)}.*$"):
        compute(TABLE, Method("mine", "theirs", **parts))


def test_any_part_may_return_its_advantage_alone() -> None:
    twice = Part("twice", lambda _, base_N: 2 * base_N, "turn_term")
    thrice = Part(
        "thrice", lambda turns, advantage_N: {"half": turns.turn_N / 2, "advantage": 3 * advantage_N}, "normaliser"
    )
    got = compute(TABLE, Method("mine", "theirs", resolve("flat_grpo").estimator, turn_term=twice, normaliser=thrice))
    np.testing.assert_array_equal(numbers(got), 3 * (2 * numbers(compute(TABLE, resolve("flat_grpo")))))
    assert numbers(got, "half").tolist() == [turn / 2 for turn in TABLE["turn"].to_pylist()]


def test_side_tables_are_asked_for_by_name() -> None:
    with pytest.raises(UserError, match="triage needs the side table 'labels'"):
        compute(TABLE, METHODS["triage"])
    assert METHODS["triage"].needs == ("labels",)
    assert METHODS["turn_value"].needs == ("values",)
    assert METHODS["turn_value"].model == "turn_value"
    assert METHODS["flat_grpo"].needs == ()


def test_a_method_names_the_capabilities_that_its_environment_must_have() -> None:
    assert METHODS["has_progressive"].requires == ("progress",)
    assert METHODS["oracle_progress"].requires == ("distance",)
    assert METHODS["flat_grpo"].requires == ()
    both = resolve({"base": "oracle_progress", "params": {"turn_term": "has_progressive"}})
    assert both.requires == ("progress",)
