"""AppWorld's client on a stand-in server of the same protocol; tests/adapters has the real one, as far as it goes."""

from __future__ import annotations

import asyncio
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from tests import tiny
from tests.envs import appworld_server
from tests.helpers import cases
from turncredit import agents, envs
from turncredit.config import EnvSlice, merge
from turncredit.envs.appworld import ENVIRONMENT, MGR_ERRORS, Settings, open_task, read_tasks, servers, world
from turncredit.envs.appworld.client import Server, ServerLost
from turncredit.envs.appworld.tasks import MGR_SCENARIOS, list_tasks
from turncredit.envs.failures import PUBLISHED
from turncredit.envs.protocol import Step
from turncredit.errors import OutsideFault, UserError
from turncredit.pipeline import checks
from turncredit.rollouts.tasks import Games, make_tasks

TASK = {"task_id": "aaaaaa1_1", "game": "aaaaaa1_1", "goal": ""}
FINISH = "apis.notes.write('done')\napis.supervisor.complete_task()"


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    """AppWorld's root folder with two splits, the executable in it, and the folder of faults."""
    appworld_server.install(tmp_path)
    (tmp_path / "faults").mkdir()
    monkeypatch.setenv("JUDGE_API_KEY", "secret")
    monkeypatch.setattr(world, "SPARE_SECONDS", 1.0)
    return tmp_path


@pytest.fixture
def settings(root):
    made = Settings(root=str(root), command=str(root / "appworld"), servers=2, code_seconds=1, horizon=4)
    yield made
    servers.servers(made).close()


def play(settings, *actions, row=TASK):
    """The first observation, the steps, and how often the rollout was redone."""

    async def run():
        env = open_task(row, settings)
        try:
            return [await env.reset(), *[await env.step(action) for action in actions]], env.redone
        finally:
            await env.close()

    return asyncio.run(run())


def test_a_rollout_keeps_its_variables_and_is_evaluated_when_the_task_is_complete(settings):
    seen, redone = play(settings, "x = 2\nfor _ in range(2):\n    x += apis is not None", "print(x)", FINISH)
    who = "You act for Ada Byron (e-mail ada@example.org, phone 123). The date and time are 2023-05-18T12:00:00."
    assert seen == [
        who,
        Step("Execution successful.", 0.0, False, valid=False),
        Step("4\n", 0.0, False, valid=False),
        Step("Execution successful.", 1.0, True, success=True),
    ]
    assert redone == 0


def test_the_code_of_a_policy_finds_no_keys_in_the_servers_environment(settings):
    seen, _ = play(settings, "import os\nprint('PATH' in os.environ, 'JUDGE_API_KEY' in os.environ)")
    assert seen[1].observation == "True False\n"


@pytest.mark.parametrize(("reward", "expected"), [("success", 0.0), ("tests", 5.0)])
def test_at_the_horizon_the_world_is_evaluated_as_it_is(settings, reward, expected):
    changed = settings.model_copy(update={"reward": reward, "success_reward": 10.0, "horizon": 2})
    seen, _ = play(changed, "apis.notes.write('done')", "")
    assert seen[1:] == [
        Step("Execution successful.", 0.0, False),
        Step("No code available to execute.", expected, True, valid=False),
    ]
    servers.servers(changed).close()


def test_one_action_can_complete_a_task_so_no_horizon_is_too_short(settings):
    changed = settings.model_copy(update={"horizon": 1})
    assert play(changed, FINISH)[0][1].success
    assert ENVIRONMENT.least_actions(changed) == {"easy": 1, "medium": 1, "difficult": 1}
    servers.servers(changed).close()


def test_a_long_reply_is_cut_and_says_by_how_much(settings):
    changed = settings.model_copy(update={"longest_reply": 100})
    seen, _ = play(changed, "print('y' * 149)")
    assert seen[1].observation == f"{'y' * 100}\n[50 more characters]"
    servers.servers(changed).close()


@pytest.mark.parametrize("action", ["", "\x00\x1b[2J", "x" * 10_000, "def f(:", "1/0", "while"])
def test_any_action_has_a_reply_and_the_rollout_goes_on(settings, action):
    seen, redone = play(settings, action, "print('apis.')")
    assert ENVIRONMENT.failed(seen[1]) == (True, True)
    assert seen[2] == Step("apis.\n", 0.0, False)
    assert redone == 0


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["die", "hang", "break"])
@pytest.mark.parametrize("reset_before", [False, True])
def test_a_lost_server_is_replaced_and_the_rollout_goes_on_where_it_was(settings, root, capfd, fault, reset_before):
    actions = ("x = 1", f"once('{fault}')\nx += 1\nprint(x)", FINISH)
    expected, none = play(settings, *actions)
    (root / "faults" / fault).touch()
    before = time.monotonic()

    async def run():
        env = open_task(TASK, settings)
        if reset_before:
            await env.reset()
            await env.step("x = 5")
        seen = [await env.reset(), *[await env.step(action) for action in actions]]
        await env.close()
        return seen, env.redone

    seen, redone = asyncio.run(run())
    assert (none, redone) == (0, 1)
    assert seen == expected
    assert seen[2].observation == "2\n"
    assert time.monotonic() - before < 20
    said = {"die": "cannot be reached|broke off", "hang": "did not answer within 2 s", "break": "answered 500"}[fault]
    line = capfd.readouterr().err
    assert "(task 'aaaaaa1_1', turn 1); on another server" in line
    assert any(part in line for part in said.split("|"))


def test_a_server_that_is_lost_again_and_again_is_an_error_with_its_name(settings, root):
    (root / "faults" / "always die").touch()
    with pytest.raises(
        OutsideFault, match=r"server http://127.0.0.1:\d+, .* \(task 'aaaaaa1_1', turn 1\), in each of 3"
    ):
        play(settings, "x = 1", "once('always die')")


def test_a_rollout_that_is_answered_otherwise_when_it_is_repeated_is_an_error(settings, root):
    (root / "faults" / "die").touch()
    with pytest.raises(OutsideFault, match=r"its action of turn 0 is answered otherwise \(task 'aaaaaa1_1', turn 1\)"):
        play(settings, "print(port)", "once('die')")


def test_an_unknown_task_is_an_error_with_its_name(settings):
    with pytest.raises(UserError, match=r"/initialize, answered 500.*task 'zzzzzz9_9', turn 0.*data have the task"):
        play(settings, row={**TASK, "task_id": "zzzzzz9_9", "game": "zzzzzz9_9"})


def test_servers_are_reused_bounded_and_end_with_their_pool(settings):
    pool = servers.servers(settings)
    one, two = pool.lend(), pool.lend()
    with pytest.raises(UserError, match=r"all 2 servers have a rollout; set rollout.slots to env.appworld.servers"):
        pool.lend()
    pool.give_back(one)
    assert pool.lend() is one
    processes = list(pool._processes.values())
    pool.close()
    assert [process.poll() is not None for process in processes] == [True, True]
    assert not one.ready(1)
    assert not two.ready(1)


def test_two_servers_never_have_one_port_although_it_is_drawn_twice(settings, monkeypatch):
    ports = []
    for _ in range(2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            ports.append(free.getsockname()[1])
    bound = MagicMock()
    bound.__enter__().getsockname.side_effect = [("127.0.0.1", ports[place]) for place in (0, 0, 1)]
    monkeypatch.setattr(servers, "socket", SimpleNamespace(socket=lambda: bound))
    pool = servers.servers(settings)
    assert [pool.lend().url for _ in range(2)] == [f"http://127.0.0.1:{port}" for port in ports]


def test_a_server_that_has_ended_is_not_taken_for_another_program_that_answers_at_its_port(settings, monkeypatch):
    started = []
    popen = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda *given, **named: started.append(popen(*given, **named)) or started[0]
    )
    monkeypatch.setattr(Server, "ready", lambda *_: started[0].wait(30) is not None)
    with pytest.raises(UserError, match=r"ended: .*Did not find any ./data"):
        servers.Servers(settings.model_copy(update={"root": "."})).lend()


@pytest.mark.parametrize("ending", ["hangs", "breaks off"])
def test_an_error_whose_message_does_not_arrive_is_a_lost_server(ending):
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        asked = threading.Event()

        def answer():
            connection, _ = listening.accept()
            connection.recv(9999)
            connection.sendall(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 21\r\n\r\n")
            if ending == "breaks off":
                time.sleep(0.1)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.close()
            asked.wait(10)
            connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            with pytest.raises(ServerLost, match="asked for /execute, answered 500"):
                Server(f"http://127.0.0.1:{listening.getsockname()[1]}").call("execute", 0.5, code="x")
        finally:
            asked.set()
            thread.join()


def test_rollouts_of_one_task_do_not_share_a_folder_of_results(settings, monkeypatch):
    names = []
    for machine, url in (("a", "127.0.0.1:1"), ("a", "127.0.0.1:2"), ("a", "b:1"), ("c", "127.0.0.1:1")):
        monkeypatch.setattr("socket.gethostname", lambda machine=machine: machine)
        server = Server(f"http://{url}")
        server.call = lambda *_, experiment_name, **__: names.append(experiment_name)
        env = open_task(TASK, settings)
        env._server = server
        env._open()
    assert names[0] == "turncredit-a-127.0.0.1-1"
    assert len(set(names)) == 4


def test_servers_that_run_already_are_locked_dropped_when_lost_and_named(root):
    started = Settings(root=str(root), command=str(root / "appworld"), servers=2, code_seconds=1)
    theirs = servers.servers(started)
    urls = tuple(theirs.lend().url for _ in range(2))
    for lock in theirs._locks.values():
        lock.close()
    one = servers.Servers(Settings(urls=(*urls, "http://127.0.0.1:1")))
    assert {one.lend().url, one.lend().url} == set(urls)
    with pytest.raises(UserError, match=r"none of the 3 servers of env.appworld.urls is free"):
        one.lend()
    with pytest.raises(UserError, match=r"none of the 2 servers of env.appworld.urls is free"):
        servers.Servers(Settings(urls=urls)).lend()
    for server in list(one._locks):
        one.discard(server)
    settings = Settings(urls=urls, code_seconds=1)
    (root / "faults" / "die").touch()
    assert play(settings, "once('die')")[1] == 1
    (root / "faults" / "die").touch()
    with pytest.raises(OutsideFault, match=r"none of the 2 servers .*; before that, the AppWorld server http://127"):
        play(settings, "once('die')")
    theirs.close()


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"command": "no-such-appworld"}, "no executable 'no-such-appworld'; install AppWorld"),
        ({"root": "."}, "serve environment --port .* ended: .*Did not find any ./data"),
    ],
)
def test_a_server_that_does_not_start_is_one_line(settings, changes, error):
    with pytest.raises(UserError, match=error):
        play(settings.model_copy(update=changes))


# ---------------------------------------------------------------- tasks


def test_tasks_come_from_the_lists_with_their_difficulty_and_instruction(settings, root):
    rows = read_tasks("train", settings)
    assert [(row["task_id"], row["family"]) for row in rows] == [
        ("aaaaaa1_1", "easy"), ("aaaaaa1_2", "easy"), ("bbbbbb2_1", "medium"),
    ]  # fmt: skip
    assert rows[0]["goal"] == "do aaaaaa1_1."
    only = settings.model_copy(update={"difficulties": (2,)})
    assert [row["task_id"] for row in read_tasks("train", only)] == ["bbbbbb2_1"]
    servers.servers(only).close()
    assert list_tasks("dev", settings) == [("bbbbbb2_2", 3)]
    elsewhere = root / "lists"
    elsewhere.mkdir()
    (elsewhere / "mine.txt").write_text("aaaaaa1_1 2\n")
    assert list_tasks("mine", Settings(task_lists=str(elsewhere))) == [("aaaaaa1_1", 2)]


def test_mgr_trains_on_three_tasks_of_24_scenarios():
    tasks = [task for task, _ in list_tasks("mgr_train", Settings())]
    assert len(set(MGR_SCENARIOS)) == 24
    assert len(set(tasks)) == 72
    assert (tasks[0], tasks[-1]) == ("07b42fd_1", "302c169_3")


@pytest.mark.parametrize(
    ("text", "split", "error"),
    [
        ("aaaaaa1_1\n", "other", "other.txt: No such file or directory; splits with a list there: s, and mgr_train"),
        ("rm -rf\n", "s", "s.txt:1: 'rm -rf' is not a task's id"),
        ("aaaaaa1_1\n", "s", "the difficulty of task 'aaaaaa1_1' is not known"),
    ],
)
def test_a_list_that_cannot_be_used_is_one_line(tmp_path, monkeypatch, text, split, error):
    monkeypatch.delenv("APPWORLD_ROOT", raising=False)
    (tmp_path / "s.txt").write_text(text)
    with pytest.raises(UserError, match=error):
        read_tasks(split, Settings(task_lists=str(tmp_path), difficulties=(1,)))


def test_without_a_root_folder_one_is_asked_for(monkeypatch):
    monkeypatch.delenv("APPWORLD_ROOT", raising=False)
    with pytest.raises(UserError, match=r"set env.appworld.root \(or \$APPWORLD_ROOT\)"):
        list_tasks("train", Settings())


# ---------------------------------------------------------------- failed actions


@pytest.mark.parametrize("text", MGR_ERRORS)
def test_each_of_mgrs_strings_is_an_error_reply_and_all_of_them_are_in_its_published_list(text):
    step = Step(f"the app said: {text} (1)", 0.0, False)
    assert ENVIRONMENT.failed(step)[1]
    assert PUBLISHED["mgr"](step.observation)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("Execution successful.", (False, False)),
        ("[{'title': 'No error: all fine'}]", (False, False)),
        ("Execution failed. Traceback:\nNameError: x", (True, True)),
        ("the log has an Exception", (False, True)),
        ("No code available to execute.", (True, True)),
    ],
)
def test_an_action_has_failed_where_its_code_did_and_reads_as_an_error_by_mgrs_strings(reply, expected):
    assert ENVIRONMENT.failed(Step(reply, 0.0, False)) == expected


# ---------------------------------------------------------------- in the pipeline


def test_rollouts_step_at_the_same_time_and_without_the_guards_time_limit(settings, monkeypatch):
    monkeypatch.setattr(world, "SPARE_SECONDS", 20.0)
    slice_ = EnvSlice(name="appworld", settings=settings.model_dump())
    games = Games(slice_, make_tasks(slice_, "train", 2, 0, key="tasks.train"), timeout=0.2)
    assert envs.load("appworld").capabilities == {"tasks_from_files"}
    assert envs.load("appworld").counts_redone
    running = [games.open(row) for row in games.rows]
    games.each(running, "reset")
    before = time.monotonic()
    steps = games.each(running, "step", ["import time\ntime.sleep(1.5)"] * 2)
    assert 1.4 < time.monotonic() - before < 2.8
    assert [step.observation for step in steps] == ["Execution successful."] * 2
    games.close_each(running)


APPWORLD = {
    "env": {"name": "appworld", "appworld": {"root": "/appworld"}}, "policy": {"source": "some/model"},
    "sft": {"epochs": 0}, "audit": {"rounds": []}, "methods": ["flat_grpo"],
}  # fmt: skip


@pytest.mark.parametrize(
    "agent",
    [{"name": "transcript"}, {"name": "window", "window": {"show_admissible": False}}, {"name": "react"}],
    ids=lambda agent: agent["name"],
)
def test_agents_that_give_one_line_are_refused_before_any_job(agent):
    message = f"config: agent: actions of 'appworld' are code of several lines, and '{agent['name']}' gives one line"
    with pytest.raises(UserError, match=message):
        checks.check(tiny.experiment(**APPWORLD, agent=agent))
    for name in ("code", "verl_agent"):
        checks.check(tiny.experiment(**APPWORLD, agent={"name": name}))


def test_verl_agents_prompt_names_the_supervisor_of_the_world_and_its_replies_are_carried_out(settings):
    spec, encoder = agents.load("verl_agent"), SimpleNamespace(encode=list, has_chat_template=False, special_tokens=())
    agent = agents.agent_factory(spec, encoder, {}, ENVIRONMENT.words)()
    replies = [agent.target({"action": action, "thought": "so"}) for action in ("x = 2\nprint(x)", FINISH)]
    seen, _ = play(settings, *(agent.parse(reply).action for reply in replies))
    assert "\nMy name is: Ada Byron. My personal email is ada@example.org and phone number is 123.\n" in "".join(
        agent.open("do it.", seen[0], ()).ids
    )
    assert (seen[1].observation, seen[2].success) == ("2\n", True)


LACKS = """
env: {appworld: {root: null}} -> environment 'appworld': there is no executable 'appworld' and no root folder
sft: {epochs: 1} -> config: demos: demonstrations need the environment's expert, which 'appworld' does
policy: {source: scratch} -> config: demos: demonstrations need the environment's expert
methods: [triage], judge: {kind: rule} -> config: methods: 'triage' reads labels, and the rule judge does not know
methods: [oracle_progress] -> config: methods: 'oracle_progress' needs the environment's distance
methods: [has_progressive] -> config: methods: 'has_progressive' needs the environment's progress
audit: {rounds: [1], methods: [flat_grpo]} -> config: audit.rounds: branching needs the environment's snapshot
"""


@pytest.mark.parametrize(("changes", "message"), cases(LACKS))
def test_what_appworld_lacks_is_refused_in_one_line_before_any_job(monkeypatch, changes, message):
    monkeypatch.delenv("APPWORLD_ROOT", raising=False)
    with pytest.raises(UserError) as refused:
        checks.check(tiny.experiment(**merge(APPWORLD, {"agent": {"name": "code"}}, changes)))
    assert str(refused.value).startswith(message)
    assert "\n" not in str(refused.value)


def test_appworld_is_taken_for_installed_where_anything_says_where_it_is(root, monkeypatch):
    monkeypatch.delenv("APPWORLD_ROOT", raising=False)
    for settings in ({"root": "/appworld"}, {"urls": ["http://127.0.0.1:1"]}, {"command": str(root / "appworld")}):
        servers.check_installed(Settings(**settings))
    with pytest.raises(UserError, match="no executable 'elsewhere' and no root folder"):
        servers.check_installed(Settings(command="elsewhere"))
