"""The evolving graph of the package `virtualhome` (Puig et al. 2018), run without its simulator, and our corrections.

The package cannot be imported as a whole: its `__init__` wants a path of its author's machine, and its simulation
folder Unity's client. Four modules, which need only the standard library, are the executor; they are loaded under a
name of our own, so that nothing we change in them reaches other users of the package.

Corrections, of faults that end in an exception or in a state that no action can mean
(docs/environments/virtualhome.md): FIND from afar walks there; PUTOFF takes off; PUTOBJBACK that is not possible is
refused; what is carried comes along into another room. Its clock, which remembers every call for good, is stopped.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from turncredit.errors import UserError

VERSION = "2.3.0"
INSTALL = f"pip install --no-deps virtualhome=={VERSION}"
_NAME = "_turncredit_evolving_graph"
_WALKS = ("WALK", "RUN", "FIND")
_REASON = re.compile(r' when executing ".*$', re.DOTALL)

State = Any
"""The package's `EnvironmentState`. Actions make a new one; nothing here changes one that has been handed out."""


@cache
def package() -> SimpleNamespace:
    """The executor and its types. Raises UserError where the package is missing or has another version."""
    spec, installed = find_spec("virtualhome"), _installed()
    if spec is None or not spec.submodule_search_locations or installed is None:
        raise UserError(f"the environment 'virtualhome' needs the package virtualhome {VERSION}: {INSTALL}")
    if installed != VERSION:
        raise UserError(f"the environment 'virtualhome' needs virtualhome {VERSION}, not {installed}: {INSTALL}")
    parent = ModuleType(_NAME)
    parent.__path__ = [str(Path(spec.submodule_search_locations[0]) / "simulation" / "evolving_graph")]
    sys.modules[_NAME] = parent
    common, scripts, graph, execution = (
        importlib.import_module(f"{_NAME}.{name}") for name in ("common", "scripts", "environment", "execution")
    )
    _stop_the_clock(common)
    _hasten(graph)
    return SimpleNamespace(
        Graph=graph.EnvironmentGraph,
        State=_light_state(graph),
        Action=scripts.Action,
        Info=execution.ExecutionInfo,
        Script=scripts.Script,
        Line=scripts.ScriptLine,
        Object=scripts.ScriptObject,
        Relation=graph.Relation,
        Property=graph.Property,
        NodeState=graph.State,
        room_of=execution._get_room_node,
        executors=_executors(graph, execution, scripts.Action),
    )


def _installed() -> str | None:
    """The package's version; None where only a folder of its name is on Python's path, such as a checkout."""
    try:
        return version("virtualhome")
    except PackageNotFoundError:
        return None


def _stop_the_clock(common: ModuleType) -> None:
    """`TimeMeasurement.stop` never forgets what `start` noted: about ten entries an action."""
    common.TimeMeasurement.start = staticmethod(lambda _name: None)
    common.TimeMeasurement.stop = staticmethod(lambda _key: None)


def _hasten(graph: Any) -> None:
    """The same results sooner: relations hash by identity, and edges are looked up before they are deleted."""
    graph.Relation.__hash__ = object.__hash__
    whole = graph.DeleteEdges.apply_changes

    def apply_changes(self, state, **kwargs):
        if type(self.to_node) is not graph.AnyNode:
            whole(self, state, **kwargs)
            return
        for node in self.from_node.enumerate(state):
            for relation in self.relations:
                for number in list(state.get_node_ids_from(node.id, relation)):
                    state.delete_edge(node, relation, state.get_node(number))
                if self.delete_reverse:
                    for other in list(_pointing(state, node.id, relation)):
                        state.delete_edge(other, relation, node)

    graph.DeleteEdges.apply_changes = apply_changes


def _pointing(state: State, to: int, relation: Any) -> Iterator[Any]:
    """The nodes with an edge to a node, now or before it was deleted."""
    old, new = state._graph._edge_map, state._new_edges_from
    for number in state._graph.get_node_ids():
        key = (number, relation)
        if to in old.get(key, ()) or to in new.get(key, ()):
            yield state.get_node(number)


def _light_state(graph: Any) -> type:
    """The package's state with shallow copies: actions replace nodes and never change one."""

    class LightState(graph.EnvironmentState):
        def change_state(self, changers, node=None, obj=None, in_place=False):  # noqa: ARG002
            after = LightState(self._graph, self._name_equivalence, self.instance_selection)
            after._new_nodes = dict(self._new_nodes)
            after._removed_edges_from = {key: set(ids) for key, ids in self._removed_edges_from.items()}
            after._new_edges_from = {key: set(ids) for key, ids in self._new_edges_from.items()}
            after.executor_data = dict(self.executor_data)
            after.apply_changes(changers)
            return after

    return LightState


def _executors(graph: Any, execution: Any, action: Any) -> Mapping[Any, Any]:
    """The package's executors by action, with the two that raise replaced."""

    class WalkOrFind(execution.JoinedExecutor):
        def execute(self, script, state, info, char_index, modify=True, in_place=False):
            for executor in self.executors:
                yield from executor.execute(script, state, info, char_index, modify, in_place)

    class PutOff(execution.PutOffExecutor):
        def check_putoff(self, state, node, info):
            worn = any(on.category == "Characters" for on in state.get_nodes_from(node, graph.Relation.ON))
            if not worn:
                info.error("{} is not worn", node)
            elif graph.Property.CLOTHES not in node.properties:
                info.error("{} is not clothes", node)
            return worn and graph.Property.CLOTHES in node.properties

    execution._walk_find_executor = WalkOrFind(execution.WalkExecutor(), execution._FindExecutor())
    return {**execution.ScriptExecutor._action_executors, action.PUTOFF: PutOff()}


def start(graph: Mapping[str, Any]) -> State:
    """The state of a graph: a mapping with `nodes` and `edges`, as in the package's files."""
    api = package()
    return api.State(api.Graph(graph), {}, instance_selection=True)


def character(state: State) -> Any:
    """The node of the one who acts."""
    return next(iter(state.get_char_node(0)))


def execute(state: State, verb: str, ids: Sequence[int]) -> tuple[State | None, str]:
    """The state after an action, or None and the package's reason for refusing it. `state` stays as it is.

    `verb` is the name of one of the package's actions, `ids` the nodes that it is about. Raises KeyError for an unknown
    node.
    """
    api = package()
    action = api.Action.__members__.get(verb)
    executor = api.executors.get(action)
    if executor is None:
        return None, f"there is no action {verb.lower()}"
    if len(ids) != action.value[1]:
        return None, f"{verb.lower()} needs {action.value[1]} objects"
    nodes = [_node(state, number) for number in ids]
    if any(api.room_of(state, node) is None for node in nodes):
        return None, "it is in no room"
    info = api.Info()
    objects = [api.Object(node.class_name, node.id) for node in nodes]
    after = next(iter(executor.execute(api.Script([api.Line(action, objects, 0)]), state, info, 0) or ()), None)
    if after is None or after is state:  # PUTOBJBACK hands out the state as it was where it refuses
        return None, _REASON.sub("", info.messages[-1]) if info.messages else "it is not possible"
    if verb in _WALKS:
        _bring_along(after)
    return after, ""


def _node(state: State, number: int) -> Any:
    node = state.get_node(number)
    if node is None:
        raise KeyError(number)
    return node


def held(state: State) -> list[int]:
    """What the character holds, right hand first."""
    relation, me = package().Relation, character(state)
    return [node.id for hand in (relation.HOLDS_RH, relation.HOLDS_LH) for node in state.get_nodes_from(me, hand)]


def _bring_along(state: State) -> None:
    """Put what is held into the character's room: the package leaves it in the room that was left."""
    inside, room = package().Relation.INSIDE, package().room_of(state, character(state))
    for number in held(state):
        node = state.get_node(number)
        for left in list(state.get_nodes_from(node, inside)):
            if left.id != room.id:
                state.delete_edge(node, inside, left)
        state.add_edge(node, inside, room)
