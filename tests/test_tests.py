"""The tests themselves: patterns of a test that can pass without checking anything.

1. An assert under an `if` without `else`: nothing is checked where the condition is false. Filter first (and see
   that something is left: `tests.helpers.nonempty`), or make two cases.
2. An assert in a loop over what may be empty: files that match, matches of an expression, a filtered list. The same
   for `all(...)`. Go through `nonempty`, or assert something about the collection before.
3. A comparison that says less than it seems to: `a != b != c` (says nothing of a and c), `d.get(key, 1) == 1`. Ruff
   finds `x == x` (PLR0124) and an assert of a tuple (F631).
4. `return` in the middle of a test (a generated example that does not fit is for hypothesis' `assume`), an exception
   passed over, `pytest.raises` of whatever message, a skip without a reason, and a test that checks nothing at all.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import nonempty

MAYBE_EMPTY = {"glob", "rglob", "iterdir", "listdir", "findall", "finditer"}
CHECKS = ("assert_", "raises", "warns", "fail", "check", "exec")
Functions = ast.FunctionDef | ast.AsyncFunctionDef


def mistakes(source: str) -> list[tuple[int, str]]:
    """Line and pattern of each way to check nothing in the tests of a module."""
    tree = ast.parse(source)
    found = list(_skips(tree))
    helpers = _checking_helpers(tree)
    for test in ast.walk(tree):
        if isinstance(test, Functions) and test.name.startswith("test_"):
            if not _checks(test, helpers):
                found.append((test.lineno, "a test that checks nothing"))
            asserted = {name: node.lineno for node in _own(test, ast.Assert) for name in _names(node.test)}
            for node in ast.walk(test):
                found += _statement(node, test, asserted)
    return sorted(set(found))


def _statement(node: ast.AST, test: ast.AST, asserted: dict[str, int]) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.If) and not node.orelse and not _leaves(node) and _asserts(node):
        yield node.lineno, "assert under an if"
    if isinstance(node, ast.For) and _asserts(node) and _maybe_empty(node.iter, test, asserted):
        yield node.lineno, "loop that may be empty"
    if isinstance(node, ast.Assert):
        for part in ast.walk(node.test):
            yield from _expression(part, test, asserted)
    if isinstance(node, ast.Return) and node in _own(test, ast.Return) and node is not test.body[-1]:
        yield node.lineno, "return in a test"
    if isinstance(node, ast.ExceptHandler) and all(isinstance(line, ast.Pass) for line in node.body):
        yield node.lineno, "exception passed over"
    if isinstance(node, ast.With):
        for item in node.items:
            call = item.context_expr
            bare = _called(call) == "raises" and item.optional_vars is None
            if bare and not {"match", "check"} & {keyword.arg for keyword in call.keywords}:
                yield node.lineno, "pytest.raises of any message"


def _expression(node: ast.AST, test: ast.AST, asserted: dict[str, int]) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.Compare):
        parts = [ast.dump(part) for part in (node.left, *node.comparators)]
        negative = any(isinstance(operator, ast.NotEq | ast.NotIn | ast.IsNot) for operator in node.ops)
        if len(node.ops) > 1 and negative:
            yield node.lineno, "chain with !="
        for part in (node.left, *node.comparators):
            if _called(part) == "get" and len(part.args) == 2 and ast.dump(part.args[1]) in parts:
                yield node.lineno, "default that is the expected value"
    if _called(node) == "all" and isinstance(node.func, ast.Name) and _maybe_empty(node.args[0], test, asserted):
        yield node.lineno, "all() of what may be empty"


def _maybe_empty(items: ast.AST, test: ast.AST, asserted: dict[str, int]) -> bool:
    """Whether it is the result of a search or a filter; a name is what it was last given, unless it was asserted."""
    if isinstance(items, ast.Name):
        if asserted.get(items.id, items.lineno) < items.lineno:
            return False
        given = [
            node.value
            for node in ast.walk(test)
            if isinstance(node, ast.Assign) and node.lineno < items.lineno and items.id in _names(node.targets[0])
        ]
        return bool(given) and not isinstance(given[-1], ast.Name) and _maybe_empty(given[-1], test, asserted)
    if isinstance(items, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        return any(
            part.ifs or (not isinstance(part.iter, ast.Name) and _maybe_empty(part.iter, test, asserted))
            for part in items.generators
        )
    called = _called(items)
    if called in {"sorted", "list", "set", "enumerate"} and items.args:
        return _maybe_empty(items.args[0], test, asserted)
    return called in MAYBE_EMPTY


def _leaves(node: ast.If) -> bool:
    """Whether what follows the `if` is its `else`."""
    return isinstance(node.body[-1], ast.Continue | ast.Return | ast.Raise)


def _skips(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        reasons = {keyword.arg for keyword in node.keywords} if isinstance(node, ast.Call) else set()
        bare = isinstance(node, ast.Call) and not node.args and not reasons & {"reason"}
        if bare and _called(node) in {"skip", "xfail"}:
            yield node.lineno, "skip without a reason"
        if isinstance(node, Functions):
            for mark in node.decorator_list:
                if isinstance(mark, ast.Attribute) and mark.attr in {"skip", "xfail"}:
                    yield mark.lineno, "skip without a reason"


def _checking_helpers(tree: ast.Module) -> set[str]:
    """Names of this module's functions that check something, and of all that come from other tests."""
    names = {
        alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in {"tests", "benchmarks"}
        for alias in node.names
    }
    functions = [node for node in ast.walk(tree) if isinstance(node, Functions) and not node.name.startswith("test_")]
    return names | {function.name for function in functions if _checks(function, names)}


def _checks(function: ast.AST, helpers: set[str]) -> bool:
    called = {_called(node) for node in ast.walk(function)} - {""}
    raising = any(isinstance(node, ast.keyword) and node.arg == "check" for node in ast.walk(function))  # a subprocess
    return _asserts(function) or raising or bool(called & helpers) or any(name.startswith(CHECKS) for name in called)


def _called(node: ast.AST) -> str:
    """The last part of the name of what is called; empty if it is no call."""
    function = node.func if isinstance(node, ast.Call) else None
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _asserts(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Assert) for part in ast.walk(node))


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _own(function: ast.AST, kind: type) -> list[ast.AST]:
    """Nodes of a kind in a function, those of the functions in it left out."""
    found, left = [], list(ast.iter_child_nodes(function))
    while left:
        node = left.pop()
        if isinstance(node, kind):
            found.append(node)
        if not isinstance(node, Functions | ast.Lambda | ast.ClassDef):
            left += ast.iter_child_nodes(node)
    return found


FOUND = {
    "assert under an if": "if x:\n        assert x > 1",
    "loop that may be empty": "for path in sorted(folder.glob('*')):\n        assert path",
    "all() of what may be empty": "assert all(row for row in rows if row)",
    "chain with !=": "assert a == b != c",
    "default that is the expected value": "assert given.get('penalty', 0.01) == 0.01",
    "return in a test": "if x:\n        return\n    assert a",
    "exception passed over": "try:\n        assert f()\n    except ValueError:\n        pass",
    "pytest.raises of any message": "with pytest.raises(ValueError):\n        f()",
    "a test that checks nothing": "f(1)",
    "skip without a reason": "pytest.skip()\n    assert f()",
}


@pytest.mark.parametrize("what", FOUND)
def test_each_way_to_check_nothing_is_found(what):
    assert [name for _, name in mistakes(f"def test_it(a):\n    {FOUND[what]}\n")] == [what]


def test_a_filtered_list_by_another_name_is_found():
    source = "def test_it(rows):\n    mine = [row for row in rows if row]\n    for row in mine:\n        assert row\n"
    assert mistakes(source) == [(3, "loop that may be empty")]


@pytest.mark.parametrize(
    "body",
    [
        "for row in nonempty(row for row in rows if row):\n        assert row",
        "mine = [row for row in rows if row]\n    assert len(mine) == 3\n    for row in mine:\n        assert row",
        "if x:\n        assert a\n    else:\n        assert b",
        "for x in (1, 2):\n        if x == 1:\n            assert a\n            continue\n        assert b",
        "for name in ('a', 'b'):\n        assert f(name)",
        "assert 0 < a <= b",
        "assert given.get('penalty', 0) == 0.01",
        "with pytest.raises(ValueError, match='x'):\n        f()",
        "with pytest.raises(UserError) as error:\n        f()\n    assert str(error.value) == 'x'",
        "np.testing.assert_allclose(a, b)",
    ],
)
def test_what_checks_something_is_left_alone(body):
    assert mistakes(f"def test_it(a):\n    {body}\n") == []


@pytest.mark.slow
def test_no_test_can_pass_without_checking():
    tests = Path(__file__).parent
    files = nonempty(tests.rglob("test_*.py"))
    lines = [
        f"{path.relative_to(tests.parent)}:{line}: {what}"
        for path in sorted(files)
        for line, what in mistakes(path.read_text())
    ]
    assert not lines, "\n".join(lines)
