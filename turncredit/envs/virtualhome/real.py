"""Recorded programs in VirtualHome's scenes: the executable programs, their graphs, and goals for them.

A folder holds, anywhere below it or in `.tar.xz` archives directly in it (programs and goals):

    executable_programs/<scene>/.../file628_2.txt       title, description, program (VirtualHome's dataset)
    init_and_final_graphs/<scene>/.../file628_2.json    the graphs before and after it; or, instead of these,
    *_graph_deltas.json.xz                              nodes, and how edges differ from TrimmedTestScene1_graph.json
    task_state_LTL_formula_accurate.json                goals (Embodied Agent Interface, arXiv 2410.07166)
"""

from __future__ import annotations

import json
import lzma
import os
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from turncredit.envs.virtualhome.goals import Condition, Goal
from turncredit.envs.virtualhome.settings import Settings
from turncredit.errors import UserError

GOALS = "task_state_LTL_formula_accurate.json"
SCENE = "TrimmedTestScene1_graph"
_PROGRAM = re.compile(rf"executable_programs/{SCENE}/.*?file(\d+_\d+)\.txt$")
_GRAPHS = re.compile(rf"init_and_final_graphs/{SCENE}/.*?file(\d+_\d+)\.json$")
_NODE = re.compile(r"\(\d+\.(\d+)\)")
_PLACED = ("ON", "INSIDE", "HOLDS_RH", "HOLDS_LH")


class Program(NamedTuple):
    """A recorded program: what people wrote of it, and its lines in VirtualHome's own form."""

    number: str
    title: str
    description: str
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        """Title and description, as a task's sentence."""
        return " ".join(f"{self.title}: {self.description}".split())

    @property
    def nodes(self) -> tuple[int, ...]:
        """The nodes that it names, in the order in which it names them."""
        return tuple(int(number) for line in self.lines for number in _NODE.findall(line))


class Packed(NamedTuple):
    """A program's two graphs, as compressed JSON, and the file that they are from."""

    path: Path
    packed: bytes


_Annotation = tuple[list[tuple[str, int]], list[tuple[str, int, int]], tuple[str, ...]]
"""States of nodes, edges between them, actions."""


class Recorded:
    """The programs of a folder."""

    def __init__(self, root: Path):
        self.programs: dict[str, Program] = {}
        goals: dict[str, _Annotation] = {}
        for path, content in _texts(root):
            if match := _PROGRAM.search(path):
                with _read(path):
                    self.programs[match[1]] = _program(match[1], content.decode())
            elif path.endswith(GOALS):
                with _read(path):
                    goals = _annotations(json.loads(content))
        self.annotated = goals
        self._graphs = _graphs(root)
        scene = root / f"{SCENE}.json"
        self._scene: frozenset[tuple[int, str, int]] | None = None
        if scene.is_file():
            with _read(scene):
                self._scene = frozenset(_edges(json.loads(scene.read_text(encoding="utf-8"))))
        if not self.programs or not self._graphs:
            missing = "executable_programs" if not self.programs else "init_and_final_graphs"
            raise UserError(
                f"{root}: no {missing}/{SCENE} below it; VirtualHome's dataset has them "
                "(docs/environments/virtualhome.md)"
            )

    def graphs(self, number: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """The graphs before and after a program, as they were recorded."""
        with _read(self._graphs[number].path):
            graphs = json.loads(zlib.decompress(self._graphs[number].packed))
            return self._applied(graphs["init_graph"]), self._applied(graphs["final_graph"])

    def _applied(self, graph: Mapping[str, Any]) -> dict[str, Any]:
        """A graph in the package's form; one that has differences of edges gets the scene's."""
        if "edges" in graph:
            return dict(graph)
        if self._scene is None:
            raise ValueError(f"its differences are to {SCENE}.json, which is not in the folder")
        edges = (self._scene - {tuple(edge) for edge in graph["rem"]}) | {tuple(edge) for edge in graph["add"]}
        return {
            "nodes": graph["nodes"],
            "edges": [{"from_id": a, "relation_type": kind, "to_id": b} for a, kind, b in sorted(edges)],
        }

    def goal(self, number: str, kind: str) -> Goal | None:
        """The goal of a program: annotated, or what it changed; None where there is none, or it holds at the start."""
        if number not in self._graphs:
            return None
        with _read(self._graphs[number].path):
            goal = self._annotated(number) if kind == "annotated" else self._changed(number)
            return None if goal is None or self._holds_at_start(number, goal) else goal

    def _holds_at_start(self, number: str, goal: Goal) -> bool:
        graph = json.loads(zlib.decompress(self._graphs[number].packed))["init_graph"]
        states = {node["id"]: node["states"] for node in graph["nodes"]}
        if "edges" in graph:
            edges = _edges(graph)
        else:
            # Not all of the scene's edges: this is asked of every program.
            named = {_ends(goal, one) for one in goal.conditions if one.other is not None}
            named &= self._scene or frozenset()
            edges = named - {tuple(edge) for edge in graph["rem"]} | {tuple(edge) for edge in graph["add"]}
        return not goal.actions and all(
            one.name in states.get(goal.slots[one.slot][0], ()) if one.other is None else _ends(goal, one) in edges
            for one in goal.conditions
        )

    def _annotated(self, number: str) -> Goal | None:
        if number not in self.annotated:
            return None
        return _goal(self.programs[number].text, *self.annotated[number])

    def _changed(self, number: str) -> Goal:
        """States that a program changed, and edges that it made between objects: on, in, or in a hand."""
        before, after = self.graphs(number)
        old = {node["id"]: set(node["states"]) for node in before["nodes"]}
        rooms = {node["id"] for node in after["nodes"] if node["category"] == "Rooms"}
        states = [
            (state, node["id"])
            for node in after["nodes"]
            for state in sorted(set(node["states"]) - old.get(node["id"], set()))
        ]
        new_edges = _edges(after) - _edges(before)
        edges = [(kind, a, b) for a, kind, b in sorted(new_edges) if kind in _PLACED and b not in rooms]
        return _goal(self.programs[number].text, states, edges, ())


@lru_cache(maxsize=2)
def recorded(root: Path) -> Recorded:
    """The programs of a folder, read once. Raises UserError."""
    return Recorded(root)


def data_root(settings: Settings) -> Path:
    """The folder that the settings name. Raises UserError where they name none, or one that is not there."""
    named = settings.data_root or os.environ.get("VIRTUALHOME_DATA")
    if not named:
        raise UserError(
            "env.virtualhome.source is real: set env.virtualhome.data_root or $VIRTUALHOME_DATA to the folder with "
            "VirtualHome's programs and graphs"
        )
    root = Path(named).expanduser().resolve()
    if not root.is_dir():
        raise UserError(f"{root}: there is no such folder; env.virtualhome.data_root needs VirtualHome's data")
    return root


@contextmanager
def _read(path: Path | str) -> Iterator[None]:
    """Turns what goes wrong with a damaged file into a line that names it."""
    try:
        yield
    except (EOFError, OSError, tarfile.TarError, lzma.LZMAError, zlib.error) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: cannot be read ({reason}); fetch it again") from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path}: not as VirtualHome's data have it ({type(error).__name__}: {error}); fetch it again"
        ) from error


def _annotations(goals: Any) -> dict[str, _Annotation]:
    """The annotated goals of scene 1, by program."""
    found = {}
    for tasks in goals.get("scene_1", {}).values():
        for number, one in tasks.items():
            goal = one["vh_goal"]["goal"]
            states = [(each["state"], each["id"]) for each in goal if "state" in each]
            edges = [(each["relation_type"], each["from_id"], each["to_id"]) for each in goal if "from_id" in each]
            found[number] = states, edges, tuple(one["vh_goal"]["actions"])
    return found


def _texts(root: Path) -> Iterator[tuple[str, bytes]]:
    """Path and content of programs and goals, in a fixed order."""
    for path in sorted(root.rglob("*")):
        if _wanted(path.as_posix()):
            yield path.as_posix(), path.read_bytes()
    for archive in sorted(root.glob("*.tar.xz")):
        with _read(archive), tarfile.open(archive) as tar:
            found = [(one.name, tar.extractfile(one)) for one in tar if one.isfile() and _wanted(one.name)]
            contents = [(f"{archive}: {name}", file.read()) for name, file in found if file is not None]
        yield from contents


def _wanted(path: str) -> bool:
    return bool(_PROGRAM.search(path)) or path.endswith(GOALS)


def _program(number: str, text: str) -> Program:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    steps = tuple(line for line in lines if line.startswith("["))
    prose = [line for line in lines if not line.startswith("[")]
    return Program(number, prose[0] if prose else "", " ".join(prose[1:]), steps)


def _graphs(root: Path) -> dict[str, Packed]:
    """For every program its two graphs, in the form of the files that were found."""
    files = {match[1]: path for path in sorted(root.rglob("*.json")) if (match := _GRAPHS.search(path.as_posix()))}
    if files:
        return {number: Packed(path, zlib.compress(path.read_bytes())) for number, path in files.items()}
    found = {}
    for path in sorted(root.glob("*_graph_deltas.json.xz")):
        with _read(path):
            for name, graphs in json.loads(lzma.decompress(path.read_bytes())).items():
                found[name.removeprefix("file")] = Packed(path, zlib.compress(json.dumps(graphs).encode(), 1))
    return found


def _edges(graph: Mapping[str, Any]) -> set[tuple[int, str, int]]:
    return {(edge["from_id"], edge["relation_type"], edge["to_id"]) for edge in graph["edges"]}


def _ends(goal: Goal, condition: Condition) -> tuple[int, str, int]:
    """The edge that a condition of a recorded goal is about."""
    return goal.slots[condition.slot][0], condition.name, goal.slots[condition.other or 0][0]


def _goal(
    text: str, states: list[tuple[str, int]], edges: list[tuple[str, int, int]], actions: tuple[str, ...]
) -> Goal:
    nodes = sorted({number for _, number in states} | {number for _, *ends in edges for number in ends})
    slot = {number: place for place, number in enumerate(nodes)}
    conditions = [Condition(state, slot[number]) for state, number in states]
    conditions += [Condition(kind, slot[a], slot[b]) for kind, a, b in edges]
    return Goal(text, tuple((number,) for number in nodes), tuple(conditions), actions)
