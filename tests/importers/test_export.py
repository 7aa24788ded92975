"""`turncredit export`: what other projects read, and what an import gets back."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers import nonempty, turncredit
from tests.importers import files
from turncredit.bridges import exporters, importers
from turncredit.bridges.exporters.rollouts import COLUMNS
from turncredit.bridges.importers.base import Options
from turncredit.data import provenance, tables

#: Texts that importers look into: conventions of actions, calls, marks of reasoning, roles.
MARKED = st.sampled_from(
    [
        "<action>go</action>",
        "Action: go",
        "> look",
        "<think>x</think>go",
        "user\nassistant",
        '{"a": 1}',
        " x\n",
        "雪 ü",
        "[history 0123456789ab]\nok",
    ]
)
TEXT = st.one_of(st.none(), st.just(""), MARKED, st.text(st.characters(exclude_categories=["Cs"]), max_size=5))
IDS = st.one_of(st.none(), st.lists(st.integers(0, 9), max_size=3))
TURN = st.fixed_dictionaries(
    {
        "observation": TEXT,
        "response_text": TEXT,
        "action": TEXT,
        "next_observation": TEXT,
        "context_reset": st.sampled_from([None, True, False]),
        "prompt_ids": IDS,
        "response_ids": IDS,
        "response_logprobs": st.one_of(st.none(), st.lists(st.sampled_from([-0.5, -2.0]), max_size=3)),
        "reward": st.sampled_from([0.0, 1.0, -0.25]),
    }
)
ROLLOUT = st.fixed_dictionaries(
    {
        "turns": st.lists(TURN, min_size=1, max_size=4),
        "task_id": st.sampled_from([None, "t", "u/1"]),
        "goal": st.sampled_from([None, "a goal"]),
        "success": st.sampled_from([None, True, False]),
        "done": st.booleans(),
        "group": st.sampled_from(["g", "g/2", "雪"]),
    }
)
TYPES = dict(zip(tables.schema("imported").names, tables.schema("imported").types, strict=True))


def said(rollout: dict[str, Any]) -> bool:
    """Whether the policy wrote anything."""
    return any((turn["response_text"] or turn["action"] or "").strip() for turn in rollout["turns"])


def table_of(rollouts: list[dict[str, Any]]) -> pa.Table:
    rows = [
        {
            "group_id": rollout["group"],
            "rollout_id": f"r{number}",
            "turn": place,
            "done": rollout["done"] if place == len(rollout["turns"]) - 1 else False,
            **{name: rollout[name] for name in ("task_id", "goal", "success")},
            **turn,
        }
        for number, rollout in enumerate(rollouts)
        for place, turn in enumerate(rollout["turns"])
    ]
    return pa.table({name: pa.array([row[name] for row in rows], TYPES[name]) for name in rows[0]})


def written(folder: Path, table: pa.Table, to: str, credits: pa.Table | None = None) -> Path:
    """The table exported; a file or a folder."""
    pq.write_table(table, folder / "turns.parquet")
    out = folder / f"out{exporters.FORMATS[to].ending}"
    paths = []
    if credits is not None:
        paths = [folder / "credits.parquet"]
        pq.write_table(credits, paths[0])
    exporters.run(folder / "turns.parquet", to, out, paths, provenance.record("export", config={"to": to}, inputs={}))
    return out


def in_order(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: (row["group_id"], row["rollout_id"], row["turn"]))


@pytest.mark.parametrize("to", ["openai", "atif", "verifiers"])
@settings(max_examples=25)
@given(st.lists(ROLLOUT.filter(said), min_size=1, max_size=3))
def test_an_import_of_an_export_gives_the_same_turns(to: str, rollouts: list[dict[str, Any]]) -> None:
    table = table_of(rollouts)
    with TemporaryDirectory() as name:
        out = written(Path(name), table, to)
        importers.run([out], Path(name) / "again.parquet")
        again = tables.read(Path(name) / "again.parquet")
    read, wanted = in_order(again), in_order(table)
    columns = ("group_id", "rollout_id", "turn", "done", *(name for name in COLUMNS if name in table.column_names))
    assert [{name: given_or_none(row.get(name)) for name in columns} for row in read] == [
        {name: given_or_none(row[name]) for name in columns} for row in wanted
    ]


def given_or_none(value: Any) -> Any:
    """An import leaves a column out in which all texts or lists are empty."""
    return None if value in ("", []) else value


#: Two rollouts with texts, tokens and rewards, and the credit of two methods.
WORLD = {
    "group_id": ["g"] * 3,
    "rollout_id": ["a", "a", "b"],
    "turn": [0, 1, 0],
    "reward": [0.0, 1.0, 0.0],
    "done": [False, True, True],
    "observation": ["You are in a room.", "A door.", "You are in a room."],
    "response_text": ["I look.", "<think>hm</think>open", "wait"],
    "action": ["look", "open", "wait"],
    "next_observation": ["A door.", "Open.", ""],
    "prompt_ids": [[1, 2], [3], [1, 2]],
    "response_ids": [[4], [5, 6], [7]],
    "response_logprobs": [[-0.5], [-0.25, -1.0], [-2.0]],
    "valid": [True, True, False],
}
KEYS = {name: WORLD[name] for name in tables.KEYS}


def credit_of(**advantages: list[float]) -> pa.Table:
    parts = [pa.table({**KEYS, "method": [name] * 3, "advantage": values}) for name, values in advantages.items()]
    return pa.concat_tables(parts)


BOTH = credit_of(gigpo=[0.5, 1.0, -1.5], flat_grpo=[0.7, 0.7, -0.7])


def test_chats_have_the_messages_the_return_and_the_credit_of_each_turn(tmp_path: Path) -> None:
    lines = written(tmp_path, pa.table(WORLD), "openai", BOTH).read_text(encoding="utf-8").splitlines()
    first, second = map(json.loads, lines)
    assert [message["role"] for message in first["messages"]] == ["user", "assistant", "user", "assistant", "user"]
    assert [message["content"] for message in first["messages"]][1::2] == WORLD["response_text"][:2]
    assert (first["reward"], first["turn_rewards"]) == (1.0, [0.0, 1.0])
    assert first["advantages"] == {"gigpo": [0.5, 1.0], "flat_grpo": [0.7, 0.7]}
    assert second["messages"][-1] == {"role": "assistant", "content": "wait"}


def test_a_file_is_named_once_after_a_group_that_its_rollouts_ids_have(tmp_path: Path) -> None:
    table = pa.table({**WORLD, "rollout_id": [f"g/{rollout}" for rollout in WORLD["rollout_id"]]})
    assert sorted(path.name for path in written(tmp_path, table, "atif").iterdir()) == [
        "000000_g_a.json",
        "000001_g_b.json",
    ]


@pytest.mark.parametrize("to", ["openai", "atif", "verifiers"])
def test_an_import_of_an_export_does_not_say_that_it_has_made_the_groups(to: str, tmp_path: Path) -> None:
    """They are in the file. `b` has another group than `a`, and begins with the same message."""
    out = written(tmp_path, pa.table({**WORLD, "group_id": ["g", "g", "h"]}), to)
    report = importers.run([out], tmp_path / "again.parquet")
    assert [row["group_id"] for row in in_order(tables.read(tmp_path / "again.parquet"))] == ["g", "g", "h"]
    assert [note for note in report.notes if "group" in note] == []


@pytest.mark.parametrize("to", ["openai", "atif", "verifiers"])
@pytest.mark.parametrize("shows", ["auto", "calls", "history", "messages"])
def test_messages_of_an_export_have_nothing_that_the_import_added(to: str, shows: Any, tmp_path: Path) -> None:
    said: list[dict[str, Any]] = [{"role": "user", "content": "tidy up"}]
    for number in range(2):
        call = {"id": f"c{number}", "function": {"name": "wipe", "arguments": {"row": number}}}
        said += [{"role": "assistant", "content": "", "tool_calls": [call]}]
        said += [{"role": "tool", "tool_call_id": f"c{number}", "content": "ok" * (1 - number)}]
    row = {"group_id": "g", "rollout_id": "r", "reward": 1, "messages": [*said, {"role": "assistant", "content": "."}]}
    importers.run(
        [files.lines(tmp_path / "mine.jsonl", [row])], tmp_path / "first.parquet", options=Options(observation=shows)
    )
    first = tables.read(tmp_path / "first.parquet")
    out = written(tmp_path, first, to)
    text = (out if out.is_file() else next(out.iterdir())).read_text()
    messages = text.partition('"turncredit": {')[0]
    assert "[history" not in messages
    assert messages.count("wipe") == 2
    importers.run([out], tmp_path / "again.parquet")
    assert in_order(tables.read(tmp_path / "again.parquet").select(first.drop("source").column_names)) == in_order(
        first.drop("source")
    )


def test_a_trajectory_of_harbor_has_full_prompts_and_numbered_steps(tmp_path: Path) -> None:
    folder = written(tmp_path, pa.table(WORLD), "atif", BOTH)
    first = json.loads(min(folder.iterdir()).read_text(encoding="utf-8"))
    assert first["schema_version"] == "ATIF-v1.8"
    assert [step["step_id"] for step in first["steps"]] == [1, 2, 3, 4, 5]
    assert first["steps"][3]["metrics"] == {
        "prompt_token_ids": [1, 2, 4, 3],
        "completion_token_ids": [5, 6],
        "logprobs": [-0.25, -1.0],
    }
    assert first["steps"][3]["extra"] == {"reward": 1.0, "advantages": {"gigpo": 1.0, "flat_grpo": 0.7}}


def test_a_trace_of_verifiers_has_a_single_methods_advantage_on_each_sampled_token(tmp_path: Path) -> None:
    only = credit_of(gigpo=[0.5, 1.0, -1.5])
    first = json.loads(
        written(tmp_path, pa.table(WORLD), "verifiers", only).read_text(encoding="utf-8").splitlines()[0]
    )
    (trace,) = first["traces"]
    sampled = [node for node in trace["nodes"] if node["sampled"]]
    assert [node["advantages"] for node in sampled] == [[0.5], [1.0, 1.0]]
    assert trace["info"]["rewards_of_turns"] == [0.0, 1.0]
    assert "turn_rewards" not in trace["info"]  # scores of states, to prime-rl


def test_a_context_that_starts_over_is_a_path_of_its_own_in_a_trace_of_verifiers(tmp_path: Path) -> None:
    again = pa.table({**WORLD, "context_reset": [True, True, True], "prompt_ids": [[1, 2], [1, 3], [1, 2]]})
    first = json.loads(written(tmp_path, again, "verifiers").read_text(encoding="utf-8").splitlines()[0])
    nodes = first["traces"][0]["nodes"]
    paths = []
    for leaf in (1, 4):
        path, node = [], leaf
        while node is not None:
            path[:0] = nodes[node]["token_ids"]
            node = nodes[node]["parent"]
        paths.append(path)
    assert paths == [[1, 2, 4], [1, 3, 5, 6]]


def test_a_data_set_has_every_column_the_credit_and_a_card_with_its_provenance(tmp_path: Path) -> None:
    folder = written(tmp_path, pa.table(WORLD), "huggingface", BOTH)
    table = pq.read_table(folder / "data/train-00000-of-00001.parquet")
    assert table.select(list(WORLD)).to_pydict() == pa.table(WORLD).to_pydict()
    assert table.column("advantage_gigpo").to_pylist() == [0.5, 1.0, -1.5]
    card = (folder / "README.md").read_text(encoding="utf-8")
    front = yaml.safe_load(card.split("---")[1])
    assert front["configs"][0]["data_files"][0]["path"] == "data/train-00000-of-00001.parquet"
    assert '"stage": "export"' in card
    importers.run([folder], tmp_path / "again.parquet")
    assert tables.read(tmp_path / "again.parquet").num_rows == 3


def test_datasets_opens_the_folder(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="the package datasets is not installed")
    opened = datasets.load_dataset(str(written(tmp_path, pa.table(WORLD), "huggingface", BOTH)), split="train")
    assert opened.to_dict()["advantage_gigpo"] == [0.5, 1.0, -1.5]


def test_what_cannot_be_exported_is_refused_in_one_line(tmp_path: Path) -> None:
    pq.write_table(pa.table({**KEYS, "reward": [0.0, 1.0, 0.0]}), tmp_path / "bare.parquet")
    pq.write_table(pa.table(WORLD).slice(1), tmp_path / "part.parquet")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    for words, said in (
        (("bare.parquet", "--to", "openai", "--out", "o.jsonl"), "neither response_text nor action in a turn"),
        (("bare.parquet", "--to", "opneai", "--out", "o.jsonl"), "unknown format (did you mean 'openai'?)"),
        (("bare.parquet", "--to", "openai", "--out", "o.json"), "give a path with that ending"),
        (("bare.parquet", "--to", "atif", "--out", "full"), "was not written by this command"),
        (("part.parquet", "--to", "openai", "--out", "o.jsonl"), "turn"),
    ):
        done = turncredit("export", *words, cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), words
        assert said in done.stderr
    assert not (tmp_path / "o.jsonl").exists()
    half = {**WORLD, "reward": [0.0, 1.0, float("inf")]}  # the second rollout's
    pq.write_table(pa.table(half), tmp_path / "half.parquet")
    done = turncredit("export", "half.parquet", "--to", "atif", "--out", "half", cwd=tmp_path)
    assert "JSON cannot hold" in done.stderr
    assert [path.name for path in tmp_path.glob("*half*")] == ["half.parquet"]


def test_the_command_says_what_it_wrote(tmp_path: Path) -> None:
    pq.write_table(pa.table(WORLD), tmp_path / "turns.parquet")
    done = turncredit("export", "turns.parquet", "--to", "atif", "--out", "atif", cwd=tmp_path)
    assert done.stdout == "atif: 3 turns of 2 rollouts as atif\n"
    assert len(nonempty((tmp_path / "atif").iterdir())) == 2
