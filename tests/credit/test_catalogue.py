"""A new method is one file: in this package, or in another one that names it as an entry point."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.credit import synthetic
from tests.credit.tables import numbers
from turncredit import credit
from turncredit.cli.main import main
from turncredit.config import from_mapping
from turncredit.credit import METHODS, Part, compute, resolve
from turncredit.credit.parts import lookup
from turncredit.credit.parts.baselines import BASELINE_AND_REFERENCES, ORACLE, RANDOM
from turncredit.credit.parts.configured import ask_of, configured_method
from turncredit.data import plugins
from turncredit.errors import UserError
from turncredit.pipeline import own_code

TABLE, SIDE = synthetic.tables(synthetic.rows(2, 3, 6, seed=0))

ONE_FILE = '''
"""Later turns get more."""

from turncredit.credit import Method, Part
from turncredit.credit.flat_grpo import FLAT_GRPO


def later(turns, base_N, *, rate: float = 0.5):
    """A_t = A + rate t."""
    return {"advantage": base_N + rate * turns.turn_N}


LATER = Part("later", later, "turn_term", reads=("observation",), requires=("progress",), asks="score")

PARTS = (LATER,)
METHODS = (Method("later", "later turns get more", FLAT_GRPO, turn_term=LATER),)
LATER_METHOD = METHODS[0]
'''


@pytest.fixture(autouse=True)
def nothing_remembered() -> Iterator[None]:
    """The catalogue is read anew in each test, and by whoever comes after it."""
    caches = (lookup.builtin, plugins.installed)
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Install a package of one module, with these entry points."""

    def installed(package: str, code: str, **points: str) -> None:
        folder = tmp_path / package
        (folder / f"{package}-1.0.dist-info").mkdir(parents=True)
        (folder / f"{package}.py").write_text(code)
        (folder / f"{package}-1.0.dist-info" / "METADATA").write_text(f"Name: {package}\nVersion: 1.0\n")
        lines = [f"{name} = {value}" for name, value in points.items()]
        text = "\n".join(["[turncredit.methods]", *lines])
        (folder / f"{package}-1.0.dist-info" / "entry_points.txt").write_text(text)
        (folder / f"{package}-1.0.dist-info" / "top_level.txt").write_text(f"{package}\n")
        monkeypatch.syspath_prepend(folder)
        monkeypatch.delitem(sys.modules, package, raising=False)

    return installed


def check_later() -> None:
    method = resolve({"base": "later", "params": {"rate": 2}}, "mine")
    assert (method.reads, method.requires, method.needs) == (("observation",), ("progress",), ("labels",))
    assert ask_of(method) == "score"
    made = compute(TABLE, method, SIDE)
    difference = numbers(made) - numbers(compute(TABLE, METHODS["flat_grpo"]))
    assert difference.tolist() == [2.0 * turn for turn in TABLE["turn"].to_pylist()]


def test_a_file_in_the_package_is_a_method_and_its_parts_can_be_composed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "later.py").write_text(ONE_FILE)
    monkeypatch.setattr(credit, "__path__", [*credit.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "turncredit.credit.later", raising=False)
    check_later()
    composed = resolve({"base": "gigpo", "params": {"turn_term": "later"}})
    assert composed.turn_term is not None
    assert composed.turn_term.name == "later"
    assert set(lookup.builtin().methods) == {*METHODS, "later"}
    sys.modules.pop("turncredit.credit.later")
    vars(credit).pop("later")


def test_an_installed_package_brings_a_method(install: Callable[..., None]) -> None:
    install("later_package", ONE_FILE, later="later_package:LATER_METHOD")
    check_later()
    assert [name for name, _ in lookup.installed()] == ["later"]
    experiment = from_mapping({"define": {"mine": {"base": "later", "params": {"rate": 3}}}})
    assert resolve(experiment.definition("mine"), "mine").params()["rate"] == 3


def test_a_packages_method_is_identified_by_its_version_and_its_modules_content(install: Callable[..., None]) -> None:
    install("later_package", ONE_FILE, later="later_package:LATER_METHOD")
    first = ""
    own_code._package.cache_clear()
    for definition in ("later", {"base": "later"}):
        first = own_code.code_of_method(definition, resolve(definition))
        assert re.fullmatch(r"later_package 1\.0 [0-9a-f]{16}", first)
    file = Path(sys.modules["later_package"].__file__)
    file.write_text(file.read_text(encoding="utf-8").replace("later turns", "late turns"), encoding="utf-8")
    assert own_code.code_of_method("later", resolve("later")) != first
    composed = {"base": "gigpo", "params": {"turn_term": "later"}}
    assert [part.name for part in resolve(composed).parts] == ["gigpo", "later"]
    assert own_code.code_of_method(composed, resolve(composed)) == own_code.code_of_method("later", resolve("later"))
    for name, method in METHODS.items():
        assert own_code.code_of_method(name, method) is None


def test_a_package_is_imported_only_when_its_method_is_asked_for(install: Callable[..., None]) -> None:
    install("broken_package", "raise RuntimeError('no\\nway')", broken="broken_package:X")
    assert resolve("gigpo") == METHODS["gigpo"]
    assert "broken_package" not in sys.modules
    with pytest.raises(UserError, match=r"unknown method 'brokn' \(did you mean 'broken'\?\)"):
        resolve("brokn")


@pytest.mark.parametrize(
    ("code", "points", "asked", "message"),
    [
        ("import nowhere", {"a": "{}:X"}, "a", "cannot be imported: ModuleNotFoundError: No module named 'nowhere'"),
        ("raise RuntimeError('no\\nway')", {"a": "{}:X"}, "a", "cannot be imported: RuntimeError: no way"),
        ("", {"a": "{}:X"}, "a", "cannot be imported: AttributeError"),
        ("X = 1", {"a": "{}:X"}, "a", "is of type int, not turncredit.credit.Method"),
        (ONE_FILE, {"a": "{}:LATER_METHOD"}, "a", "is called 'later'"),
    ],
)
def test_a_broken_method_is_one_line_that_names_its_package(
    install: Callable[..., None], code: str, points: dict[str, str], asked: str, message: str
) -> None:
    install("their_package", code, **{name: value.format("their_package") for name, value in points.items()})
    with pytest.raises(UserError) as caught:
        resolve(asked)
    line = str(caught.value)
    assert message in line
    assert line.startswith("method 'a': their_package:")
    assert " of the package their_package " in line
    assert "\n" not in line


def test_two_packages_with_one_name_are_refused_and_a_builtin_one_cannot_be_replaced(
    install: Callable[..., None],
) -> None:
    install("first_package", ONE_FILE, later="first_package:LATER_METHOD", gigpo="first_package:LATER_METHOD")
    install("second_package", ONE_FILE, later="second_package:LATER_METHOD")
    with pytest.raises(
        UserError, match=r"'later' is in several installed packages: \w+_package, \w+_package; uninstall all but one"
    ):
        resolve("later")
    assert resolve("gigpo") == METHODS["gigpo"]
    listed = dict(lookup.installed())
    assert "has the name of a built-in method" in str(listed["gigpo"])


def test_the_list_shows_installed_methods_and_what_is_wrong_with_broken_ones(
    install: Callable[..., None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install("later_package", ONE_FILE, later="later_package:LATER_METHOD", broken="later_package:MISSING")
    monkeypatch.setattr(sys, "argv", ["turncredit", "methods"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    text = capsys.readouterr().out
    assert "later: later turns get more\n    reads reward, observation; side table labels" in text
    assert "method 'broken': later_package:MISSING of the package later_package cannot be imported" in text
    assert "gigpo: flat GRPO plus" in text


def test_methods_are_listed_by_name_with_the_references_last() -> None:
    names = list(METHODS)
    references = [name for name, method in METHODS.items() if method.role == "reference"]
    assert names == [*sorted(set(names) - set(references)), *references]
    assert set(references) == {RANDOM, ORACLE, "truth"}
    assert set(BASELINE_AND_REFERENCES) <= set(METHODS)


def test_every_part_of_a_method_is_declared_so_that_it_can_be_composed() -> None:
    parts = lookup.builtin().parts
    for method in METHODS.values():
        for part in method.parts:
            assert parts[part.kind][part.name].function is part.function, f"{method.name}: {part.name}"


def test_a_misspelt_method_of_the_configuration_is_told_with_its_name():
    mine = {"define": {"backward_credit": {"base": "rloo"}}, "methods": ["backwards_credit"]}
    with pytest.raises(UserError, match=r"methods: unknown method .backwards_credit. \(did you mean .backward_credit."):
        configured_method(from_mapping(mine), "backwards_credit")


def test_a_part_that_still_says_reader_has_a_scorer_and_a_warning() -> None:
    with pytest.warns(FutureWarning, match="part mine: `reader` is now `scorer`"):
        part = Part("mine", lambda turns: turns, "turn_term", reader="sft")
    assert part.scorer == "sft"
    assert replace(part, params={}).scorer == "sft"
