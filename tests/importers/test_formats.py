"""Each format's files become the same turns; `credit`, `show`, `sql` and `page` then work on them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers import turncredit
from tests.importers import files
from tests.judges.chat_server import ChatServer
from tests.test_imports import HEAVY
from turncredit import credit
from turncredit.bridges import importers
from turncredit.bridges.importers import columns
from turncredit.bridges.importers.base import NO_PROMPT, Options, Report
from turncredit.config.judge import JudgeConfig
from turncredit.data import tables
from turncredit.data.turns import Turns
from turncredit.errors import UserError
from turncredit.judges import client
from turncredit.judges.label import label_turns

FORMATS = sorted(files.WRITERS)


@pytest.mark.parametrize("name", importers.FORMATS)
def test_a_format_says_what_it_reads_and_what_it_was_checked_against(name: str) -> None:
    title, *lines = importers.told(name)
    assert title == name
    assert [line.split()[0] for line in lines] == ["files", "group", "turns", "reward", "checked"]
    assert all(len(line.split()) > 1 for line in lines)


def test_the_command_lists_the_formats_without_a_file_and_asks_for_one_otherwise() -> None:
    listed = turncredit("import", "--formats")
    assert [line for line in listed.stdout.splitlines() if line and line[0] != " "] == list(importers.FORMATS)
    refused = turncredit("import", "--out", "turns.parquet")
    assert refused.returncode == 2
    assert "give files to import" in refused.stderr


def test_the_command_explains_every_column_of_an_imported_table() -> None:
    printed = turncredit("import", "--columns").stdout.splitlines()
    assert [line.split()[0] for line in printed] == tables.schema("imported").names
    assert all(line.endswith(columns.MEANINGS[line.split()[0]]) for line in printed)


def test_rollouts_without_a_reward_are_said_to_be_of_no_use_to_methods(tmp_path: Path) -> None:
    path = files.lines(tmp_path / "chats.jsonl", [{"messages": [{"role": "assistant", "content": "look"}]}])
    said = turncredit("import", path, "--out", tmp_path / "turns.parquet").stdout
    assert said.splitlines()[-1].startswith("No method can credit these turns: no rollout has a reward.")
    rewards = files.lines(tmp_path / "rewards.jsonl", [{"rollout_id": "chats", "reward": 1.0}])
    said = turncredit("import", path, "--rewards", rewards, "--out", tmp_path / "turns.parquet").stdout
    assert "No method" not in said


def imported(name: str | None, path: Path, *, strict: bool = True, **mapping: str) -> tuple[pa.Table, Report]:
    out = path.parent / "turns.parquet"
    if name == "jsonl" and not mapping:
        mapping = files.JSONL
    rewards = files.rewards_beside(path.parent, name or "")
    report = importers.run([path], out, name, Options(mapping=mapping), strict=strict, rewards=rewards)
    return tables.read(out), report


def test_there_is_a_file_for_each_format() -> None:
    assert set(files.WRITERS) == set(importers.FORMATS)


@pytest.mark.parametrize("name", FORMATS)
def test_groups_rollouts_turns_texts_and_rewards_are_the_files(name: str, tmp_path: Path) -> None:
    table, report = imported(name, files.WRITERS[name](tmp_path))
    assert (report.rollouts, report.turns, report.skipped) == (4, 8, {})
    turns = Turns(table)  # which checks ids and turn numbers
    assert turns.size_G.tolist() == [2, 2]
    rows = sorted(table.to_pylist(), key=lambda row: (row["group_id"], row["rollout_id"], row["turn"]))
    second_task = {row["group_id"] for row in rows if "task 1" in row["observation"]}
    rows.sort(key=lambda row: row["group_id"] in second_task)
    for number in range(4):
        first, second = rows[2 * number : 2 * number + 2]
        said = files.texts(number)
        assert (first["action"], second["action"]) == (said[1], said[3])
        assert said[0] in first["observation"]
        assert said[2] in second["observation"]
        assert first["reward"] == 0
        assert second["reward"] == files.REWARDS[number]
    assert len(set(table["source"].to_pylist())) >= 4


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in {"jsonl", "verl-agent"}])
def test_the_next_observation_is_what_the_environment_answered(name: str, tmp_path: Path) -> None:
    table, _ = imported(name, files.WRITERS[name](tmp_path))
    rows = [row for row in table.to_pylist() if row["turn"] == 0]
    assert len(rows) == 4
    assert all("you see a key" in row["next_observation"] for row in rows)


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "jsonl"])
def test_a_format_is_told_by_its_files(name: str, tmp_path: Path) -> None:
    assert importers.detect(importers.expand([files.WRITERS[name](tmp_path)])[0].path).name == name


def test_lines_that_could_be_verls_or_verl_agents_are_not_guessed(tmp_path: Path) -> None:
    path = files.lines(tmp_path / "3.jsonl", files.verl_rows(session=False))
    with pytest.raises(UserError, match="give --from verl if a line is a rollout, --from verl-agent if it is a turn"):
        importers.detect(path)


def test_verls_outputs_without_ids_are_grouped_by_input_and_cut_at_roles_and_it_says_so(tmp_path: Path) -> None:
    rows = files.verl_rows(session=False)
    bare, report = imported("verl", files.lines(tmp_path / "3.jsonl", rows))
    assert sorted(report.notes) == [
        "no uid in the file: lines of a step with equal input are a group",
        "turns within an output told by the markers left of the chat template: lines that are a role",
    ]
    marked = [
        {**row, "output": row["output"].replace("\ntool\n", "<|im_end|>\n<|im_start|>tool\n").replace(
            "\nassistant\n", "<|im_end|>\n<|im_start|>assistant\n") + "<|im_end|>"}
        for row in rows
    ]  # fmt: skip
    same, report = imported("verl", files.lines(tmp_path / "3.jsonl", marked))
    assert "turns within an output told by the markers of chatml" in report.notes
    assert same.drop_columns("source").equals(bare.drop_columns("source"))


def test_the_task_of_a_session_is_its_first_input(tmp_path: Path) -> None:
    """Later ones are contexts, which differ between rollouts of a task."""
    table, _ = imported("verl", files.verl(tmp_path))
    rows = table.select(["group_id", "task_id"]).to_pylist()
    assert len({row["group_id"] for row in rows}) == 2
    assert len({(row["group_id"], row["task_id"]) for row in rows}) == 2


def test_a_dump_of_verl_agent_without_ids_is_refused_with_the_lines_to_add(tmp_path: Path) -> None:
    rows = [{"input": "a", "output": "b", "score": 1.0, "step": 1}]
    with pytest.raises(UserError, match=r"without uid, traj_uid, turn, rewards.*non_tensor_batch\['turn'\]") as raised:
        imported("verl-agent", files.lines(tmp_path / "1.jsonl", rows))
    assert "\n" not in str(raised.value)


def test_tokens_of_verifiers_make_the_context_that_the_policy_read(tmp_path: Path) -> None:
    table, _ = imported("verifiers", files.verifiers(tmp_path))
    first, second = table.to_pylist()[:2]
    assert first["prompt_ids"] == [10, 11, 12, 13]  # the node's scaffold was not sampled
    assert first["response_ids"] == [14, 15]
    assert second["prompt_ids"] == [16, 17, 18, 19]
    assert (first["context_reset"], second["context_reset"]) == (True, False)
    assert first["response_logprobs"] == [-0.5, -0.25]


def test_a_context_that_was_compacted_starts_over(tmp_path: Path) -> None:
    episode = files.episode(0)
    nodes = episode["traces"][0]["nodes"]
    nodes.append({"parent": None, "message": {"role": "user", "content": "so far"}, "token_ids": [1, 2]})
    nodes[-1]["mask"] = [False, False]
    nodes.append({**nodes[3], "parent": 5})
    table, report = imported("verifiers", files.lines(tmp_path / "traces.jsonl", [episode]))
    assert report.notes == {"the context starts over within the rollout": 1}
    last = table.to_pylist()[-1]
    assert last["context_reset"]
    assert last["observation"] == "so far"
    assert last["prompt_ids"] == [1, 2, nodes[3]["token_ids"][0]]


def test_an_agent_that_is_not_trained_is_left_out_and_several_are_groups_of_their_own(tmp_path: Path) -> None:
    episodes = [files.episode(number) for number in range(2)]
    for episode in episodes:
        other, judge = (dict(episode["traces"][0]) for _ in range(2))
        other |= {"id": f"{other['id']}b", "agent": {"name": "helper", "trainable": True}}
        judge |= {"id": f"{judge['id']}c", "agent": {"name": "judge", "trainable": False}}
        episode["traces"] += [other, judge]
    table, report = imported("verifiers", files.lines(tmp_path / "traces.jsonl", episodes))
    assert sorted(set(table["group_id"].to_pylist())) == ["g0", "g0/helper"]
    assert report.notes == {"the agent 'judge' is not trained, and was left out": 2}


def test_steps_of_rllm_that_do_not_sum_to_the_reward_are_not_used(tmp_path: Path) -> None:
    folder = files.rllm(tmp_path)
    path = sorted(folder.glob("*.json"))[0]
    path.write_text(path.read_text().replace('"reward": 0.0', '"reward": 0.25'))
    table, report = imported("rllm", folder)
    assert report.notes == {"the rewards of the steps do not sum to the trajectory's, which is on the last turn": 1}
    assert table["reward"].to_pylist()[:2] == [0.0, 1.0]


def test_a_trajectory_of_rllm_without_a_reward_has_its_last_steps(tmp_path: Path) -> None:
    folder = files.rllm(tmp_path)
    for path in folder.iterdir():
        episode = json.loads(path.read_text())
        for trajectory in episode["trajectories"]:
            trajectory["reward"] = None
            trajectory["steps"][0]["reward"], trajectory["steps"][-1]["reward"] = 0.0, 0.75
        path.write_text(json.dumps(episode))
    found, _ = imported("rllm", folder)
    assert set(Turns(found).return_R.tolist()) == {0.75}


def test_scores_of_states_in_traces_are_progress_and_a_turn_without_one_changes_nothing(tmp_path: Path) -> None:
    """prime-rl's pull request 3282: `info["turn_rewards"]`, one number or null for each turn."""
    episodes = [files.episode(number) for number in range(4)]
    for episode, scores in zip(episodes, ([0.25, 1.0], [None, 0.5], [0.5, None], [None, None]), strict=True):
        episode["traces"][0]["info"] = {"turn_rewards": scores}
    table, report = imported("verifiers", files.lines(tmp_path / "traces.jsonl", episodes))
    by_rollout = table.to_pandas().groupby("rollout_id")[["progress_before", "progress"]]
    assert [rows.fillna(-1).to_numpy().tolist() for _, rows in by_rollout] == [
        [[0.25, 0.25], [0.25, 1.0]],
        [[0.5, 0.5], [0.5, 0.5]],
        [[0.5, 0.5], [0.5, 0.5]],
        [[-1, -1], [-1, -1]],
    ]
    assert report.notes["the scores of states (turn_rewards) are the column progress"] == 3
    episodes[0]["traces"][0]["info"] = {"turn_rewards": [1.0]}
    with pytest.raises(UserError, match=r"as many turn_rewards as turns are needed \(1 for 2 turns"):
        imported("verifiers", files.lines(tmp_path / "traces.jsonl", episodes))


def scored(path: Path, **scores: Any) -> Path:
    """A sample of Inspect with these scores."""
    values = {name: {"value": value} for name, value in scores.items()}
    (path / "log.json").write_text(json.dumps(files.sample(0) | {"scores": values}))
    return path / "log.json"


def test_of_several_scores_of_inspect_one_is_the_reward_if_it_is_named(tmp_path: Path) -> None:
    path = scored(tmp_path, match="C", parts={"style": 0.25})
    found, report = imported("inspect", path)
    assert found["reward"].null_count == 2
    assert "several scorers, so the reward is null: name one with --map reward=match|parts" in report.notes
    for name, reward in (("match", 1.0), ("parts.style", 0.25)):
        assert imported("inspect", path, reward=name)[0]["reward"].to_pylist() == [0.0, reward]


def test_a_score_of_inspect_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    path = scored(tmp_path, match="C", parts={"style": 0.25})
    for name, meant in (("mach", "match"), ("parts.stile", "parts.style")):
        with pytest.raises(UserError) as raised:
            imported("inspect", path, reward=name)
        assert f"no record has '{name}' (did you mean '{meant}'?); choose one of match, parts, parts.style" in str(
            raised.value
        )


def test_a_score_of_several_values_is_refused_with_their_names(tmp_path: Path) -> None:
    path = scored(tmp_path, parts={"style": 0.25, "length": 1})
    with pytest.raises(UserError, match=r"name one with --map reward=parts.style\|parts.length") as raised:
        imported("inspect", path)
    assert str(raised.value).startswith(f"{path}: a score of several values")


def test_trl_asks_which_columns_are_rewards(tmp_path: Path) -> None:
    table = pq.read_table(files.trl(tmp_path)).append_column("style", pa.array([0.25] * 4))
    pq.write_table(table, tmp_path / "completions_00003.parquet")
    with pytest.raises(UserError, match="Name one, or several to be summed, of solved, style with --map reward=NAME"):
        imported("trl", tmp_path / "completions_00003.parquet")
    both, _ = imported("trl", tmp_path / "completions_00003.parquet", reward="solved,style")
    assert Turns(both).return_R.tolist() == [1.25, 0.25, 0.75, 0.25]
    with pytest.raises(UserError, match=r"no column 'styl' \(did you mean 'style'\?\)"):
        imported("trl", tmp_path / "completions_00003.parquet", reward="styl")


def test_lines_that_are_turns_may_come_in_any_order(tmp_path: Path) -> None:
    rows = [
        {"group_id": 0, "rollout_id": number, "turn": turn, "reward": 1.0 * turn, "observation": "o", "action": "a"}
        for turn in (1, 0)
        for number in range(3)
    ]
    table, report = imported(None, files.lines(tmp_path / "turns.jsonl", rows))
    assert report.rollouts == 3
    assert Turns(table).return_R.tolist() == [1.0, 1.0, 1.0]
    assert "response_text" not in table.column_names


def test_files_of_a_folder_are_read_in_order_of_their_numbers(tmp_path: Path) -> None:
    for step in (10, 9):
        (tmp_path / str(step)).mkdir()
        files.art(tmp_path / str(step))
    files.art(tmp_path)
    labels = [source.label for source in importers.expand([tmp_path])]
    assert labels == [f"{tmp_path.name}/0003", "9/0003", "10/0003"]
    importers.run([tmp_path], tmp_path / "out.parquet", "art", strict=True)
    assert Turns(tables.read(tmp_path / "out.parquet")).groups == 6


@pytest.mark.slow
@pytest.mark.parametrize("name", ["verifiers", "verl", "verl-agent", "art", "rllm", "openenv", "trl", "jsonl", "atif"])
def test_every_command_works_on_what_was_imported(name: str, tmp_path: Path, monkeypatch) -> None:
    path = files.WRITERS[name](tmp_path)
    mapping = files.JSONL if name == "jsonl" else {}
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> str:
        done = turncredit(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    options = [option for key, field in mapping.items() for option in ("--map", f"{key}={field}")]
    if rewards := files.rewards_beside(tmp_path, name):
        options += ["--rewards", rewards.name]
    assert "4 rollouts" in run("import", path.name, "--from", name, *options, "--out", "turns.parquet")
    table = tables.read("turns.parquet")
    truth = {"advantage_true": pa.array([0.5, -0.5] * 4), "advantage_true_se": pa.array([0.1] * 8)}
    keys = {key: table[key] for key in ("group_id", "rollout_id", "turn")}
    pq.write_table(pa.table({**keys, **truth}), "branches.parquet")
    run("credit", "--method", "gigpo", "--turns", "turns.parquet", "--out", "credits.parquet")
    rollout = table["rollout_id"][0].as_py()
    assert "take key" in run("show", "turns.parquet", rollout, "--credits", "credits.parquet")
    run("page", "--turns", "turns.parquet", "--credits", "credits.parquet", "--rollout", rollout, "--out", "page.html")
    assert "take key" in Path("page.html").read_text(encoding="utf-8")
    query = "select count(*) as n from turns join credits using (group_id, rollout_id, turn) where action = 'take key'"
    answer = run("sql", query, "--file", "turns.parquet", "--file", "credits.parquet", "--format", "csv")
    assert answer.split() == ["n", "4"]
    scored = ["--turns", "turns.parquet", "--credits", "credits.parquet", "--branches", "branches.parquet"]
    assert "gigpo" in run("fidelity", *scored, "--json", "fidelity.json")
    assert tables.metadata("turns.parquet")["config"] == {"from": name, "map": mapping}


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in {"verl-agent", "who-and-when"}])
def test_a_judge_gets_the_first_observation_as_the_task_and_never_the_outcome(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_WAIT", lambda _: 0.01)
    table, _ = imported(name, files.WRITERS[name](tmp_path))
    with ChatServer() as server:
        config = JudgeConfig(kind="llm", model="tiny", base_url=server.url, thinking=False, timeout=5.0)
        labels = label_turns(table, config, cache=tmp_path / "cache")
        prompts = [request["messages"][1]["content"] for request in server.requests]
    assert labels["role"].to_pylist() == ["E"] * 8
    assert all("you are in the hall" in prompt.partition("TURN UNDER REVIEW")[0] for prompt in prompts)
    actions = {prompt.partition("[0] action: ")[2].split("\n")[0] for prompt in prompts}
    assert actions == {"go to A", "go to B", "take key"}


def test_turns_of_verl_agent_which_come_one_by_one_have_no_replies_for_a_judge(tmp_path: Path) -> None:
    table, _ = imported("verl-agent", files.verl_agent(tmp_path))
    with pytest.raises(UserError, match="a judge needs the column 'next_observation', which the table does not have"):
        label_turns(table, JudgeConfig())


def test_the_rules_judge_imported_turns_whose_environment_is_named(tmp_path: Path) -> None:
    said = [{"role": "user", "content": "start"}, {"role": "assistant", "content": "go to shelf 1"}]
    row = {"group_id": "g", "rollout_id": "r", "reward": 1.0, "goal": "put a mug in shelf.", "messages": said}
    imported("jsonl", files.lines(tmp_path / "mine.jsonl", [row]), reward="reward")
    turns, out = str(tmp_path / "turns.parquet"), str(tmp_path / "labels.parquet")
    assert turncredit("judge", "label", "--turns", turns, "--env", "household", "--out", out).returncode == 0
    assert tables.read(out, "labels").num_rows == 1
    said = turncredit("judge", "label", "--turns", turns, "--out", out).stderr
    assert "no column 'env'" in said
    assert "give it with --env NAME" in said


def test_credit_in_memory_equals_credit_of_the_file_it_came_from(tmp_path: Path) -> None:
    table, _ = imported("openenv", files.openenv(tmp_path))
    advantage = credit(table, "flat_grpo", norm="mean")["advantage"].to_pylist()
    assert advantage == [0.5, 0.5, -0.5, -0.5, 0.25, 0.25, -0.25, -0.25]


def test_importing_needs_nothing_heavy() -> None:
    code = f"import sys, turncredit.cli.importing; print([heavy for heavy in {HEAVY!r} if heavy in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"


def first_by(path: Path, **mapping: str) -> tuple[list[dict[str, Any]], Report]:
    """The rows of a file whose format is found."""
    out = path.parent / "found.parquet"
    report = importers.run([path], out, options=Options(mapping=mapping))
    return tables.read(out).to_pylist(), report


@pytest.mark.parametrize("name", ["history", "trajectory"])
def test_records_of_ones_own_are_not_taken_for_other_projects_files_by_the_name_of_a_field(tmp_path, name):
    """SWE-agent's files have these names too, and no reward."""
    rows = [
        {"group_id": "g", "rollout_id": str(number), "reward": 1.0, "success": True, name: files.messages(number)}
        for number in range(2)
    ]
    found, report = first_by(files.lines(tmp_path / "mine.jsonl", rows))
    assert report.formats == {"jsonl": 2}
    assert {(row["group_id"], row["rollout_id"], row["success"]) for row in found} == {
        ("g", "0", True),
        ("g", "1", True),
    }
    assert [row["reward"] for row in found] == [0.0, 1.0] * 2


def test_a_record_of_ones_own_with_an_epoch_keeps_its_reward(tmp_path):
    """Inspect's samples have `id`, `epoch` and `messages`, and scores."""
    row = {"id": "a", "epoch": 1, "reward": 0.5, "messages": files.messages(0)}
    found, report = first_by(files.lines(tmp_path / "mine.jsonl", [row]))
    assert report.formats == {"jsonl": 1}
    assert found[-1]["reward"] == 0.5


def test_an_assistants_message_that_the_task_of_inspect_gives_is_no_turn(tmp_path):
    said = files.messages(0)
    given = [{"role": "user", "content": "2+2"}, {"role": "assistant", "content": "4", "source": "input"}]
    sample = {"id": "a", "epoch": 1, "scores": {"match": {"value": "C"}}, "messages": [*given, *said]}
    found, _ = first_by(files.lines(tmp_path / "samples.jsonl", [sample]))
    assert [row["response_text"] for row in found] == ["go to A", "take key"]
    assert found[0]["observation"].startswith("2+2\n4\n")


def test_tokens_of_atropos_are_left_out_where_the_mask_trains_on_what_the_environment_said(tmp_path):
    record = json.loads(files.atropos(tmp_path).read_text().splitlines()[0])
    record["masks"][0][-2:] = [8, 9]
    found, report = first_by(files.lines(tmp_path / "mine.jsonl", [record]))
    assert [row["response_ids"] is None for row in found] == [True, True, False, False]
    assert any("trains on a message that the policy did not write" in flaw for flaw in report.flaws)


def test_rollouts_that_begin_with_the_policy_are_no_group_and_a_system_prompt_beside_the_messages_is_read(tmp_path):
    first = [{"role": "assistant", "content": text} for text in ("one", "two")]
    rows = [{"messages": first, "reward": 1.0}, {"messages": first[::-1], "reward": 0.0}]
    found, report = first_by(files.lines(tmp_path / "mine.jsonl", rows))
    assert len({row["group_id"] for row in found}) == 2
    assert NO_PROMPT in report.notes
    said = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "gone"}]
    rows = [{"system": f"Task {task}", "messages": said, "reward": 1.0} for task in "AAB"]
    found, _ = first_by(files.lines(tmp_path / "mine.jsonl", rows))
    assert [row["observation"] for row in found] == ["Task A\ngo", "Task A\ngo", "Task B\ngo"]
    groups = [row["group_id"] for row in found]
    assert groups[0] == groups[1]
    assert groups[0] != groups[2]


def test_a_task_0_has_its_number_and_a_null_reward_leaves_the_score(tmp_path):
    row = {"group_id": "g", "rollout_id": "r", "task_id": 0, "reward": None, "score": 1.0}
    found, _ = first_by(files.lines(tmp_path / "mine.jsonl", [{**row, "messages": files.messages(0)}]))
    assert {row["task_id"] for row in found} == {"0"}
    assert found[-1]["reward"] == 1.0


def test_messages_of_anthropic_are_one_turn_only_if_they_are_parts_of_one(tmp_path):
    """Claude Code writes each part of a message in a line of its own, with the message's id."""

    def said(name: str, text: str) -> dict[str, Any]:
        content = [{"type": "text", "text": text}]
        return {"type": "message", "role": "assistant", "id": name, "model": "claude", "content": content}

    user = {"role": "user", "content": "go"}
    for names, responses in ((("m1", "m1"), ["one\ntwo"]), (("m1", "m2"), ["one", "two"])):
        messages = [user, *map(said, names, ("one", "two"))]
        row = {"group_id": "g", "rollout_id": "r", "reward": 1.0, "messages": messages}
        found, _ = first_by(files.lines(tmp_path / "mine.jsonl", [row]))
        assert [row["response_text"] for row in found] == responses


def test_an_agents_group_is_the_same_where_another_agents_trace_is_missing(tmp_path):
    episodes = []
    for number in range(2):
        episode = files.episode(number)
        other = json.loads(json.dumps(episode["traces"][0]))
        episode["traces"][0]["agent"], other["agent"] = {"name": "solver"}, {"name": "critic"}
        other["id"] += "-critic"
        episode["traces"] += [other] if number else []
        episodes.append(episode)
    found, _ = first_by(files.lines(tmp_path / "mine.jsonl", episodes))
    assert {row["group_id"] for row in found if not row["rollout_id"].endswith("critic")} == {"g0/solver"}


def test_what_is_said_of_a_whole_episode_of_rllm_is_said_of_no_single_agent(tmp_path):
    folder = files.WRITERS["rllm"](tmp_path)
    episode = json.loads(next(path for path in sorted(folder.rglob("*.json"))).read_text())
    (trajectory,) = episode["trajectories"]
    both = [{**trajectory, "uid": f"t{place}", "name": f"agent{place}"} for place in range(2)]
    for trajectories, success in (([trajectory], {True}), (both, {None})):
        row = {**episode, "is_correct": True, "trajectories": trajectories}
        found, _ = first_by(files.lines(tmp_path / "mine.jsonl", [row]))
        assert {row.get("success") for row in found} == success
