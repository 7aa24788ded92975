"""The commands, as a user types them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from turncredit.cli.judge import app
from turncredit.config.judge import JudgeConfig
from turncredit.config.layout import Layout
from turncredit.data import provenance, tables
from turncredit.errors import UserError

from .chat_server import ChatServer
from .conftest import turns_table


def judge(*arguments: str | Path) -> str:
    """Run a command; a UserError comes through, as `turncredit` itself prints it."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(result.exception, UserError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def turns(tmp_path: Path) -> Path:
    path = tmp_path / "turns.parquet"
    pq.write_table(turns_table(3, 4), path)
    return path


def test_rule_labels_of_any_table(turns: Path, tmp_path: Path) -> None:
    out = tmp_path / "labels.parquet"
    said = judge("label", "--turns", turns, "--judge", "rule", "--out", out)
    assert "labels 12, missing 0" in said
    labels = tables.read(out, "labels")
    assert labels.column_names[:7] == ["group_id", "rollout_id", "turn", "judge", "role", "score", "evidence"]
    assert set(labels.column("role").to_pylist()) <= set("DENR")
    meta = tables.metadata(out)
    assert meta["config"]["judge"]["kind"] == "rule"
    assert meta["inputs"]["turns"] == provenance.file_hash(turns)


def test_the_same_labels_from_json_lines(turns: Path, tmp_path: Path) -> None:
    lines = tmp_path / "turns.jsonl"
    lines.write_text("".join(json.dumps(row) + "\n" for row in pq.read_table(turns).to_pylist()))
    judge("label", "--turns", turns, "--out", tmp_path / "a.parquet")
    judge("label", "--turns", lines, "--out", tmp_path / "b.parquet")
    assert tables.read(tmp_path / "a.parquet") == tables.read(tmp_path / "b.parquet")


def test_json_lines_keep_their_texts_and_may_be_long(tmp_path: Path) -> None:
    rows = turns_table(1, 2, group_id="2024-01-01", next_observation="a" * 2**21).to_pylist()
    (tmp_path / "turns.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    judge("label", "--turns", tmp_path / "turns.jsonl", "--out", tmp_path / "l.parquet")
    assert tables.read(tmp_path / "l.parquet").column("group_id").to_pylist() == ["2024-01-01"] * 2


@pytest.mark.parametrize("env", ["alfworld", "webshop", "virtualhome", "searchqa", "sokoban", "desk"])
def test_the_environments_with_a_grammar_are_known_by_name(env: str, tmp_path: Path) -> None:
    pq.write_table(turns_table(env=env), tmp_path / "t.parquet")
    judge("label", "--turns", tmp_path / "t.parquet", "--out", tmp_path / "l.parquet")
    assert tables.read(tmp_path / "l.parquet").num_rows == 6


def test_a_language_model_by_options(server: ChatServer, turns: Path, tmp_path: Path) -> None:
    llm = ["label", "--turns", turns, "--judge", "llm", "--model", "tiny", "--base-url", server.url]
    where = ["--cache", tmp_path / "cache", "--out", tmp_path / "l.parquet"]
    said = judge(*llm, *where, "--thinking", "off", "--concurrency", "2")
    assert "cached 0, tokens_in 6000, tokens_out 240" in said
    assert server.most_in_flight <= 2
    said = judge(*llm, *where, "--thinking", "off")
    assert "cached 12, tokens_in 0" in said
    assert len(server.requests) == 12
    judge(*llm, *where, "--thinking", "unset")
    assert "chat_template_kwargs" not in server.requests[-1]


def test_agreement_is_printed_and_its_disagreements_written(tmp_path: Path) -> None:
    judge("label", "--turns", "calibration", "--out", tmp_path / "l.parquet")
    said = judge(
        "agreement", "--labels", tmp_path / "l.parquet", "--gold", "calibration",
        "--disagreements", tmp_path / "d.parquet", "--show", "1",
    )  # fmt: skip
    for part in ("F1 by role and outcome", "agreement 0.989", "Cohen's kappa 0.985", "R regression", "4 disagreements"):
        assert part in said
    assert pq.read_table(tmp_path / "d.parquet").num_rows == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--turns", "nowhere.parquet"], "nowhere.parquet: no such file"),
        (["--turns", "calibration", "--judge", "llm", "--window", "6"], "--window: Input should be less than or equal"),
        (["--turns", "calibration", "--judge", "llm", "--base-url", "localhost"], "base_url must be an address"),
        (["--turns", "bad.jsonl"], "bad.jsonl: cannot be read as one JSON object per line: not JSON .bad.jsonl:1"),
        (["--turns", "mixed.jsonl"], "mixed.jsonl: the values of 'turn' have no common type"),
        (["--turns", "empty.jsonl"], "empty.jsonl: there is no line in this file"),
        (["--turns", "plain.parquet"], "the turns have no column 'env', .* give it with --env NAME: .*household, "),
    ],
)
def test_a_mistake_is_one_line_and_leaves_no_file(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.jsonl").write_text("not json\n", encoding="utf-8")
    Path("mixed.jsonl").write_text('{"turn": 0}\n{"turn": "one"}\n', encoding="utf-8")
    Path("empty.jsonl").write_text("\n", encoding="utf-8")
    pq.write_table(turns_table().drop_columns("env"), "plain.parquet")
    with pytest.raises(UserError, match=message) as caught:
        judge("label", *arguments, "--out", tmp_path / "l.parquet")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "l.parquet").exists()


def test_a_server_that_fails_leaves_no_labels(
    server: ChatServer, llm: Callable[..., JudgeConfig], turns: Path, tmp_path: Path
) -> None:
    server.behave = lambda handler, *_: handler.error(401, "no")
    with pytest.raises(UserError, match="refuses"):
        judge("label", "--turns", turns, "--judge", "llm", "--base-url", llm().base_url, "--cache", tmp_path / "c",
              "--out", tmp_path / "l.parquet")  # fmt: skip
    assert not (tmp_path / "l.parquet").exists()


#: policy -> round, and the role of the first of its four turns
PLACES = {"sft-t4k2T1.0": (1, "E"), "triage": (2, "D")}


def results_tree(root: Path, places: dict[str, tuple[int, str]] = PLACES) -> None:
    """A results folder with labels of two places, as the pipeline lays them out (made up for this test)."""
    layout = Layout(root / "exp")
    layout.root.mkdir(exist_ok=True)
    Path(layout.path("config")).write_text("{}", encoding="utf-8")
    for policy, (round_, role_of) in places.items():
        keys = {"policy": policy, "seed": 0, "round": round_}
        table = turns_table(2, 2, success=True)
        for field in tables.schema("turns"):
            if field.name not in table.column_names:
                blank = {"string": "", "bool": True}.get(str(field.type), [] if pa.types.is_list(field.type) else 0)
                table = table.append_column(field.name, pa.array([blank] * 4, field.type))
        tables.write(table, layout.path("turns", keys), "turns", {})
        labels = {**{key: table.column(key) for key in tables.KEYS}, "role": [role_of, "R", "R", None]}
        rest = {"judge": "rule", "prompt_hash": "0", "cached": False, "score": None, "evidence": None, "reason": None}
        rest |= {"tokens_in": None, "tokens_out": None, "seconds": None}
        labels |= {
            name: pa.array([value] * 4, tables.schema("labels").field(name).type) for name, value in rest.items()
        }
        tables.write(pa.table(labels), layout.path("labels", keys, judge="rule", question="role"), "labels", {})


def test_the_page_has_the_roles_of_each_policy_and_round(tmp_path: Path) -> None:
    from turncredit.views.experiments import layouts_below
    from turncredit.views.report.roles import role_shares

    results_tree(tmp_path)
    judge("roles", "--results", tmp_path, "--out", tmp_path / "roles.html")
    page = (tmp_path / "roles.html").read_text()
    assert "<small>exp, judge rule</small>" in page
    assert "http" not in page  # nothing is fetched
    found = role_shares(layouts_below(tmp_path)).to_pylist()
    shares = {(row["policy"], row["round"], row["outcome"]): row for row in found}
    row = shares["triage", 2, "success"]
    assert (row["turns"], row["D"], row["E"], row["R"], row["-"]) == (4, 0.25, 0.0, 0.5, 0.25)
    assert shares["sft-t4k2T1.0", 1, "all"]["E"] == 0.25


def test_samplings_of_the_sft_policy_are_told_apart_in_the_page_of_roles(tmp_path: Path) -> None:
    from turncredit.views.experiments import layouts_below
    from turncredit.views.report.roles import role_shares

    results_tree(tmp_path, {"sft-t4k2T1.0": (1, "E"), "sft-t4k2T0.7": (1, "D")})
    shares = {(row["policy"], row["outcome"]): row for row in role_shares(layouts_below(tmp_path)).to_pylist()}
    assert (shares["sft-t4k2T1.0", "all"]["E"], shares["sft-t4k2T0.7", "all"]["E"]) == (0.25, 0.0)


def test_a_folder_without_labels_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="no role labels in this folder"):
        judge("roles", "--results", tmp_path, "--out", tmp_path / "roles.html")


def test_importing_the_commands_imports_nothing_heavy() -> None:
    heavy = ("aiohttp", "pandas", "torch", "duckdb")
    code = f"import sys, turncredit.cli.judge; print([m for m in {heavy} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def foreign(path: Path, *actions: str, **columns: object) -> Path:
    """A table with these actions, one rollout, of no environment that we know."""
    rows = [
        {"group_id": "g", "rollout_id": "r", "turn": turn, "action": action, "next_observation": "ok", "goal": "x"}
        | columns
        for turn, action in enumerate(actions)
    ]
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def test_a_table_without_an_action_of_the_named_environment_is_refused(tmp_path: Path) -> None:
    path = foreign(tmp_path / "turns.parquet", 'get_order {"id": 7}', "Thought: hm\nAction: go to shelf 1")
    with pytest.raises(
        UserError, match=r"--env household: .*0 of 2 actions have a form that household knows.*--action"
    ):
        judge("label", "--turns", path, "--env", "household", "--out", tmp_path / "labels.parquet")
    assert not (tmp_path / "labels.parquet").exists()


def test_a_table_that_names_its_environment_is_labelled_with_a_warning(tmp_path: Path) -> None:
    path = foreign(tmp_path / "turns.parquet", "get_order {}", "go to shelf 1", "wait", env="household")
    said = judge("label", "--turns", path, "--out", tmp_path / "labels.parquet")
    assert "1 of 3 actions have a form that household knows, and the rules call the others N" in said
    assert tables.read(tmp_path / "labels.parquet", "labels").num_rows == 3


GRAMMAR = """
def read_goal(text): return text
def read_turn(turn): return turn.action
def judge(goal, before, now, after): return ROLE
"""


def own_rules(folder: Path, name: str, role: str) -> Path:
    """A file with an environment whose rules give each turn this role."""
    (folder / f"{name}_grammar.py").write_text(GRAMMAR.replace("ROLE", role))
    text = "from turncredit.envs.environment import Environment\nfrom tests.envs.own import Doors, rows\n"
    text += f"ENVIRONMENT = Environment(name='{name}', open_task=Doors, make_tasks=rows, judge='{name}_grammar')\n"
    (folder / f"{name}.py").write_text(text)
    return folder / f"{name}.py"


@pytest.mark.parametrize("column", [{}, {"env": "household"}])
def test_an_environment_of_ones_own_brings_its_rules(tmp_path: Path, column: dict[str, str]) -> None:
    path = foreign(tmp_path / "turns.parquet", "knock", "open", **column)
    name = f"own_{len(column)}"
    judge(
        "label", "--turns", path, "--env", own_rules(tmp_path, name, "'E', 'a door'"), "--out", tmp_path / "l.parquet"
    )
    labels = tables.read(tmp_path / "l.parquet", "labels")
    assert labels.column("role").to_pylist() == ["E", "E"]
    assert labels.column("evidence").to_pylist() == ["a door", "a door"]


@pytest.mark.parametrize(("name", "role"), [("odd_role", "('X', 'a door')"), ("no_role", "None"), ("one", "'D'")])
def test_rules_that_give_no_role_are_named_with_the_turn(tmp_path: Path, name: str, role: str) -> None:
    path = foreign(tmp_path / "turns.parquet", "knock", "open")
    own_env = own_rules(tmp_path, name, role)
    with pytest.raises(UserError, match=r"judge\(\) must return a role .* \(rollout '.*', turn 0\)$") as refused:
        judge("label", "--turns", path, "--env", own_env, "--out", tmp_path / "l.parquet")
    assert str(refused.value).startswith(f"the rules of '{name}': ")
    assert f"not {role} (" in str(refused.value)


@pytest.mark.parametrize(
    ("env", "known", "unknown"),
    [
        ("household", "take mug 1 from shelf 2", "please take it"),
        ("webshop", "search[red shoes]", "buy it"),
        ("searchqa", "<search>Oslo</search>", "Oslo"),
        ("scienceworld", "look around", "hmm"),
        ("virtualhome", "walk to kitchen", "hmm"),
        ("sokoban", "up", "jump"),
        ("desk", "open order O1042", "hmm"),
    ],
)
def test_every_grammar_knows_its_own_actions_and_no_others(env: str, known: str, unknown: str, tmp_path: Path) -> None:
    path = foreign(tmp_path / "turns.parquet", known, unknown, unknown, env=env)
    said = judge("label", "--turns", path, "--out", tmp_path / "labels.parquet")
    assert f"1 of 3 actions have a form that {env} knows" in said
