"""A language-model judge against a server that misbehaves."""

from __future__ import annotations

import json
import logging
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from turncredit.config import from_mapping
from turncredit.config.judge import JudgeConfig, ServeConfig
from turncredit.errors import OutsideFault, UserError
from turncredit.judges import client
from turncredit.judges.label import costs, label_turns

from .chat_server import ChatServer, Handler, answer, first, slow
from .conftest import turns_table

Llm = Callable[..., JudgeConfig]


def roles(labels: pa.Table) -> list[str | None]:
    return labels.column("role").to_pylist()


def reviewed(body: dict[str, Any]) -> int:
    """The number of the shelf that the turn under review goes to."""
    review = body["messages"][1]["content"].partition("TURN UNDER REVIEW\n[0] action: go to shelf ")[2]
    return int(review.split("\n")[0])


def test_each_window_is_labelled_with_its_evidence_and_its_cost(server: ChatServer, llm: Llm, tmp_path: Path) -> None:
    labels = label_turns(turns_table(), llm(), cache=tmp_path)
    row = labels.slice(0, 1).to_pylist()[0]
    assert roles(labels) == ["E"] * 6
    assert (row["judge"], row["evidence"], row["cached"], row["reason"]) == ("tiny", "first visit", False, None)
    assert (row["tokens_in"], row["tokens_out"]) == (500, 20)
    assert row["seconds"] > 0
    assert costs(labels)["tokens_in"] == 3000
    assert len(server.requests) == 6


@pytest.mark.slow
@pytest.mark.parametrize(
    "misbehave",
    [
        pytest.param(lambda handler: handler.error(429, "slow down"), id="429"),
        pytest.param(lambda handler: handler.error(500, "oops"), id="500"),
        pytest.param(lambda handler: handler.error(503, "overloaded"), id="503"),
        pytest.param(lambda handler: handler.hang_up(), id="cut connection"),
        pytest.param(lambda handler: handler.half(answer("D")), id="half an answer"),
        pytest.param(lambda handler: handler.half_chunked(answer("D")), id="half a stream"),
        pytest.param(lambda handler: handler.half_events(answer("D")), id="half a stream of events"),
        pytest.param(lambda handler: handler.send(200, b'{"choices": [{'), id="malformed JSON"),
        pytest.param(lambda handler: handler.send(200, b"<html>busy</html>", "text/html"), id="a page"),
        pytest.param(lambda handler: handler.send(200, b'{"choices": []}'), id="no choices"),
        pytest.param(lambda handler: handler.send(200, b'"ok"'), id="not an object"),
        pytest.param(lambda handler: handler.send(200, b'{"choices":' * 100_000), id="JSON nested too deeply"),
        pytest.param(lambda handler: handler.send(200, b'{"n": %s}' % (b"9" * 5000)), id="a number too long"),
        pytest.param(slow(1.5), id="slow"),
    ],
)
def test_a_failure_that_passes_is_asked_again_and_never_becomes_a_label(
    server: ChatServer, llm: Llm, tmp_path: Path, misbehave: Callable[[Handler], None]
) -> None:
    server.behave = first(3, misbehave)
    labels = label_turns(turns_table(), llm(timeout=0.5), cache=tmp_path)
    assert roles(labels) == ["E"] * 6
    assert len(server.requests) == 9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("misbehave", "reason"),
    [
        pytest.param(lambda handler: handler.error(500, "oops"), "HTTP 500: oops", id="500"),
        pytest.param(lambda handler: handler.error(429, "slow down"), "HTTP 429: slow down", id="429"),
        pytest.param(lambda handler: handler.hang_up(), "connection lost", id="cut connection"),
        pytest.param(lambda handler: handler.half(answer()), "connection lost", id="half an answer"),
        pytest.param(lambda handler: handler.send(200, b'{"cho'), "not JSON", id="malformed JSON"),
        pytest.param(lambda handler: handler.error(500, "a\nb"), "HTTP 500: a b", id="a message of two lines"),
        pytest.param(slow(1.5), "no answer within 0.2 s", id="slow"),
    ],
)
def test_a_failure_that_stays_is_a_missing_label_with_its_reason(
    server: ChatServer, llm: Llm, tmp_path: Path, misbehave: Callable[[Handler], None], reason: str
) -> None:
    def behave(handler: Handler, _: int, body: dict) -> None:
        misbehave(handler) if reviewed(body) == 1 else handler.say(answer())

    server.behave = behave
    labels = label_turns(turns_table(1, 4), llm(timeout=0.2, attempts=3, max_missing=0.25), cache=tmp_path)
    assert roles(labels) == ["E", None, "E", "E"]
    row = labels.slice(1, 1).to_pylist()[0]
    assert reason in row["reason"]
    assert (row["score"], row["evidence"], row["tokens_in"], row["cached"]) == (None, None, None, False)
    assert costs(labels)["missing"] == 1
    assert len(server.requests) == 3 + 3  # three tries for the bad one, and nothing of it is kept:
    server.behave = lambda handler, *_: handler.say(answer("R"))
    again = label_turns(turns_table(1, 4), llm(timeout=0.2, max_missing=0.25), cache=tmp_path)
    assert roles(again) == ["E", "R", "E", "E"]


@pytest.mark.parametrize("usage", [None, [1], "10", {}, {"prompt_tokens": None}])
def test_a_usage_that_counts_nothing_is_left_out(server: ChatServer, llm: Llm, tmp_path: Path, usage: Any) -> None:
    server.behave = lambda handler, *_: handler.say(answer(), usage=usage)
    labels = label_turns(turns_table(), llm(), cache=tmp_path)
    assert roles(labels) == ["E"] * 6
    assert labels.column("tokens_in").null_count == 6


@pytest.mark.parametrize("count", ["10", 10.5, True, -1, 2**31, 2**40, 10**400, [1]])
@pytest.mark.parametrize("finish_reason", [3, None, "sto\ud83d"])
def test_odd_counts_and_finish_reasons_are_left_out_and_break_no_later_job(
    server: ChatServer, llm: Llm, tmp_path: Path, count: Any, finish_reason: Any
) -> None:
    usage = {"prompt_tokens": count, "completion_tokens": 20}
    server.behave = lambda handler, *_: handler.say(answer(), finish_reason, usage)
    labels = label_turns(turns_table(), llm(), cache=tmp_path)
    assert roles(labels) == ["E"] * 6
    assert set(labels.column("tokens_in").to_pylist()) == {None}
    assert set(labels.column("tokens_out").to_pylist()) == {20}
    assert roles(label_turns(turns_table(), llm(model="other"), cache=tmp_path)) == ["E"] * 6


@pytest.mark.parametrize(
    ("content", "evidence"),
    [
        ('{"evidence": "bad \ud83d", "role": "E"}', "bad ?"),
        (r'{"evidence": "bad \ud83d", "role": "E"}', "bad ?"),
        (r'{"evidence": "good \ud83d\ude00", "role": "E"}', "good \U0001f600"),
    ],
)
def test_half_of_a_surrogate_pair_is_replaced_in_the_labels_and_in_the_cache(
    server: ChatServer, llm: Llm, tmp_path: Path, content: str, evidence: str
) -> None:
    server.behave = lambda handler, *_: handler.say(content)
    for _ in range(2):
        labels = label_turns(turns_table(), llm(), cache=tmp_path / "cache")
        pq.write_table(labels, tmp_path / "labels.parquet")
    assert labels.column("evidence").to_pylist() == [evidence] * 6
    assert len(server.requests) == 6


def test_a_wrong_label_is_missing_and_is_not_paid_for_again(server: ChatServer, llm: Llm, tmp_path: Path) -> None:
    server.behave = lambda handler, _, body: handler.say(answer("X" if reviewed(body) == 0 else "D"))
    config = llm(max_missing=0.5)
    labels = label_turns(turns_table(1, 3), config, cache=tmp_path)
    assert roles(labels) == [None, "D", "D"]
    assert labels.column("reason")[0].as_py() == 'no valid role in the answer: {"evidence": "first visit", "role": "X"}'
    again = label_turns(turns_table(1, 3), config, cache=tmp_path)
    assert roles(again) == [None, "D", "D"]
    assert len(server.requests) == 3


def test_too_many_missing_labels_end_the_run_before_everything_is_asked(
    server: ChatServer, llm: Llm, tmp_path: Path
) -> None:
    server.behave = lambda handler, *_: handler.error(500, "no GPU")
    with pytest.raises(UserError, match="more than max_missing allows; the last reason: HTTP 500: no GPU"):
        label_turns(turns_table(20, 10), llm(attempts=2, max_missing=0.02, concurrency=4), cache=tmp_path)
    assert len(server.requests) < 40


def test_a_cached_run_with_too_many_unusable_answers_fails_as_well(
    server: ChatServer, llm: Llm, tmp_path: Path
) -> None:
    server.behave = lambda handler, *_: handler.say("I cannot say.")
    label_turns(turns_table(), llm(max_missing=1.0), cache=tmp_path)
    with pytest.raises(UserError, match="more than max_missing allows; the last reason: no JSON object in the answer"):
        label_turns(turns_table(), llm(concurrency=1), cache=tmp_path)
    assert len(server.requests) == 6 + 1


@pytest.mark.parametrize(
    ("status", "message"),
    [(401, "refuses \\(401\\); the environment variable OPENAI_API_KEY"), (404, "has no chat model 'tiny'")],
)
def test_a_refusal_that_no_retry_can_mend_ends_the_run_at_once(
    server: ChatServer, llm: Llm, tmp_path: Path, status: int, message: str
) -> None:
    server.behave = lambda handler, *_: handler.error(status, "no")
    with pytest.raises(UserError, match=message) as caught:
        label_turns(turns_table(), llm(concurrency=1, max_missing=1.0), cache=tmp_path)
    assert "\n" not in str(caught.value)
    assert len(server.requests) == 1


def test_a_server_that_is_not_there_is_one_clear_line(llm: Llm, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="connection lost") as caught:
        label_turns(turns_table(), llm(base_url="http://127.0.0.1:9/v1", attempts=2), cache=tmp_path)
    assert "\n" not in str(caught.value)


def test_a_server_that_is_down_for_longer_than_a_requests_attempts_is_a_fault_from_outside(
    llm: Llm, tmp_path: Path
) -> None:
    """Another attempt of the job, when the server is up, has the labels."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = free.getsockname()
    config = llm(base_url=f"http://{address[0]}:{address[1]}/v1", attempts=2)
    with pytest.raises(OutsideFault, match="connection lost"):
        label_turns(turns_table(), config, cache=tmp_path)
    with ChatServer(address):
        assert roles(label_turns(turns_table(), config, cache=tmp_path)) == ["E"] * 6


@pytest.mark.parametrize(
    ("misbehave", "outside"),
    [
        (lambda handler: handler.error(503, "overloaded"), True),
        (lambda handler: handler.error(429, "slow down"), True),
        (lambda handler: handler.hang_up(), True),
        (slow(0.5), True),
        (lambda handler: handler.error(400, "no such field"), False),
        (lambda handler: handler.send(200, b"<html>hello</html>", "text/html"), False),
        (lambda handler: handler.say("I cannot say."), False),
    ],
    ids=["503", "429", "cut connection", "slow", "400", "a page", "no label"],
)
def test_only_what_another_attempt_may_not_meet_is_a_fault_from_outside(
    server: ChatServer, llm: Llm, tmp_path: Path, misbehave: Callable[[Handler], None], outside: bool
) -> None:
    server.behave = lambda handler, *_: misbehave(handler)
    with pytest.raises(UserError, match="more than max_missing allows") as caught:
        label_turns(turns_table(), llm(attempts=1, timeout=0.2, concurrency=1), cache=tmp_path)
    assert isinstance(caught.value, OutsideFault) == outside


def test_a_connection_that_costs_the_one_label_too_many_is_a_fault_from_outside(
    server: ChatServer, llm: Llm, tmp_path: Path
) -> None:
    """One of six labels may be missing: one answer has none, and one connection fails."""

    def behave(handler: Handler, _: int, body: dict) -> None:
        bad = {0: lambda: handler.say("I cannot say."), 1: handler.hang_up}
        bad.get(reviewed(body), lambda: handler.say(answer()))()

    server.behave = behave
    with pytest.raises(OutsideFault, match="more than max_missing allows"):
        label_turns(turns_table(1, 6), llm(attempts=1, max_missing=0.2), cache=tmp_path)


def test_retry_after_is_waited_for(server: ChatServer, llm: Llm, tmp_path: Path) -> None:
    server.behave = first(1, lambda handler: handler.error(429, "later", Retry_After="0.4"))
    started = time.perf_counter()
    label_turns(turns_table(1, 1), llm(), cache=tmp_path)
    assert time.perf_counter() - started > 0.4


def test_a_server_that_asks_for_an_hours_patience_is_asked_again_after_a_minute() -> None:
    for asked, waited in ((3600.0, 60.0), (2.5, 2.5)):
        outcome = SimpleNamespace(exception=lambda asked=asked: client._AskAgain("later", asked))
        assert client._pause(SimpleNamespace(outcome=outcome)) == waited  # type: ignore[arg-type]


def test_pauses_grow_where_the_server_names_none() -> None:
    from tenacity import RetryCallState, wait_random_exponential

    assert isinstance(original_wait, wait_random_exponential)
    state = RetryCallState(None, None, (), {})  # type: ignore[arg-type]
    longest = []
    for attempt in (1, 4, 9):
        state.attempt_number = attempt
        longest.append(max(original_wait(state) for _ in range(200)))
    assert longest[0] <= 0.5 < longest[1] < longest[2] <= 20


original_wait = client._WAIT


def test_no_more_requests_than_allowed_are_in_flight(server: ChatServer, llm: Llm, tmp_path: Path) -> None:
    server.behave = lambda handler, *_: slow(0.03)(handler)
    label_turns(turns_table(10, 4), llm(concurrency=5), cache=tmp_path)
    assert server.most_in_flight == 5


def test_a_server_of_the_jobs_own_gets_as_many_requests_as_vllm_takes_at_once(llm: Llm) -> None:
    served = ServeConfig(python="python")
    assert [llm(serve=serve).in_flight for serve in (None, served)] == [64, 256]
    assert llm(serve=served, concurrency=5).in_flight == 5


def test_a_server_of_the_jobs_own_may_queue_a_request_for_an_hour(llm: Llm) -> None:
    """vLLM queues what its cache has no room for: a question of has_table1 is answered after eight minutes."""
    served = ServeConfig(python="python")
    assert [llm(serve=serve, timeout=None).patience for serve in (None, served)] == [180, 3600]
    assert llm(serve=served, timeout=9).patience == 9


def test_answers_are_asked_for_under_a_schema_and_without_one_where_the_server_has_none(
    server: ChatServer, llm: Llm, tmp_path: Path
) -> None:
    def behave(handler: Handler, _: int, body: dict) -> None:
        refused = "response_format" in body
        handler.error(400, "response_format is not supported") if refused else handler.say(answer())

    server.behave = behave
    labels = label_turns(turns_table(1, 3), llm(concurrency=1), cache=tmp_path)
    assert roles(labels) == ["E"] * 3
    with_schema = [body for body in server.requests if "response_format" in body]
    assert len(with_schema) == 1  # it is told once
    schema = with_schema[0]["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["role"]["enum"] == ["D", "E", "N", "R"]
    assert len(server.requests) == 4


def test_a_question_that_the_server_refuses_in_any_form_ends_the_schema_of_no_other(
    server: ChatServer, llm: Llm, tmp_path: Path
) -> None:
    def behave(handler: Handler, _: int, body: dict) -> None:
        too_long = reviewed(body) == 2
        handler.error(400, "longer than the context") if too_long else handler.say(answer())

    server.behave = behave
    labels = label_turns(turns_table(1, 6), llm(concurrency=1, max_missing=0.5), cache=tmp_path)
    assert roles(labels) == ["E", "E", None, "E", "E", "E"]
    assert labels.column("reason").to_pylist()[2] == "HTTP 400: longer than the context"
    assert sum("response_format" not in body for body in server.requests) == 1


@pytest.mark.parametrize(("thinking", "sent"), [(True, True), (False, False), (None, None)])
def test_thinking_is_switched_by_the_chat_template(
    server: ChatServer, llm: Llm, tmp_path: Path, thinking: bool | None, sent: bool | None
) -> None:
    label_turns(turns_table(1, 1), llm(thinking=thinking), cache=tmp_path)
    body = server.requests[0]
    assert body.get("chat_template_kwargs", {}).get("enable_thinking") is sent
    assert ("response_format" in body) is (not thinking)  # a grammar would forbid the thinking
    assert body["temperature"] == 0


def test_the_configured_decoding_and_an_answer_without_evidence_are_what_is_asked_for(
    server: ChatServer, llm: Llm, tmp_path: Path
) -> None:
    label_turns(turns_table(1, 1), llm(temperature=0.5, max_tokens=64, evidence=False), cache=tmp_path)
    (body,) = server.requests
    assert (body["temperature"], body["max_tokens"]) == (0.5, 64)
    schema = body["response_format"]["json_schema"]["schema"]
    assert list(schema["properties"]) == schema["required"] == ["role"]


def test_further_settings_of_the_chat_template_are_sent_and_belong_to_the_answer(
    server: ChatServer, llm: Llm, tmp_path: Path
) -> None:
    for settings in ({}, {"reasoning_effort": "low"}, {"reasoning_effort": "high"}):
        label_turns(turns_table(1, 1), llm(chat_template=settings), cache=tmp_path)
    sent = [body["chat_template_kwargs"] for body in server.requests]
    assert sent == [
        {"enable_thinking": False} | settings
        for settings in ({}, *({"reasoning_effort": one} for one in ("low", "high")))
    ]


def test_the_same_window_in_several_rollouts_is_asked_about_once(server: ChatServer, llm: Llm, tmp_path: Path) -> None:
    one = turns_table(1, 3)
    names = [f"copy{n}" for n in range(4) for _ in range(3)]
    table = pa.concat_tables([one] * 4).set_column(1, "rollout_id", pa.array(names))
    labels = label_turns(table, llm(), cache=tmp_path)
    assert len(server.requests) == 3
    assert labels.column("cached").to_pylist() == [False] * 3 + [True] * 9
    assert costs(labels)["tokens_in"] == 1500


def test_the_key_comes_from_the_environment_and_reaches_no_log_table_or_message(
    server: ChatServer,
    llm: Llm,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    secret = "sk-very-secret-0123456789"
    monkeypatch.setenv("JUDGE_KEY", secret)
    caplog.set_level(logging.DEBUG)
    replies = [
        lambda handler: handler.error(400, f"{'a' * 290} key\n{secret} may not ask this"),
        lambda handler: handler.say(answer(evidence=f"key {secret}"), f"stop {secret}"),
        lambda handler: handler.say(f"I refuse: key {secret}"),
    ]
    server.behave = lambda handler, _, body: replies[reviewed(body)](handler)
    config = llm(api_key_env="JUDGE_KEY", structured="never", max_missing=1.0, concurrency=1)
    labels = label_turns(turns_table(1, 3), config, cache=tmp_path / "cache")
    assert server.headers[0]["Authorization"] == f"Bearer {secret}"
    assert labels.column("evidence")[1].as_py() == "key ***"
    assert labels.column("reason").to_pylist() == [
        f"HTTP 400: {'a' * 290} key *** m",
        None,
        "no JSON object in the answer: I refuse: key ***",
    ]
    pq.write_table(labels, tmp_path / "labels.parquet", compression="none")
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"Bearer" not in written
    for text in (written, caplog.text.encode(), config.model_dump_json().encode()):
        assert secret.encode() not in text

    server.behave = lambda handler, *_: handler.error(401, f"Incorrect API key: {secret}")
    with pytest.raises(UserError) as caught:
        label_turns(turns_table(3, 3), config, cache=tmp_path / "other")
    assert secret not in str(caught.value)


def test_a_placeholder_of_a_key_is_nothing_to_hide(llm: Llm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "first")
    labels = label_turns(turns_table(1, 1), llm(), cache=tmp_path)
    assert labels.column("evidence").to_pylist() == ["first visit"]


def test_white_space_around_a_key_is_not_sent(
    server: ChatServer, llm: Llm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", " sk-0123456789\n")
    assert roles(label_turns(turns_table(1, 1), llm(), cache=tmp_path)) == ["E"]
    assert server.headers[0]["Authorization"] == "Bearer sk-0123456789"


@pytest.mark.parametrize("key", ["sk-01234\n56789", "sk-0123 456789", "sk-\u00fc0123456789"])
def test_a_key_that_no_header_can_hold_is_told_by_its_variable(
    server: ChatServer, llm: Llm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("JUDGE_KEY", key)
    with pytest.raises(UserError, match=r"variable JUDGE_KEY \(api_key_env\) holds no API key") as caught:
        label_turns(turns_table(), llm(api_key_env="JUDGE_KEY"), cache=tmp_path)
    assert key[:6] not in str(caught.value)
    assert not server.requests


def test_an_address_with_a_password_is_refused_without_repeating_it() -> None:
    for address in ("https://me:hunter2@judge.example/v1", "https://judge.example/v1?key=hunter2"):
        with pytest.raises(ValueError, match="must not contain a key or a password"):
            JudgeConfig(kind="llm", base_url=address)
    with pytest.raises(UserError, match="must not contain a key or a password") as caught:
        from_mapping({"judge": {"kind": "llm", "base_url": "https://me:hunter2@judge.example/v1"}})
    assert "hunter2" not in str(caught.value)


def test_a_server_elsewhere_is_asked_through_the_proxy_of_the_environment(
    server: ChatServer, llm: Llm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = f"http://me:secret@127.0.0.1:{server.server_address[1]}"
    for name, value in (("http_proxy", proxy), ("all_proxy", "http://127.0.0.1:9"), ("no_proxy", "other.example")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789")
    (tmp_path / ".netrc").write_text("default login x password y\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UserError, match="no such path"):  # the stand-in for a proxy has none of other servers
        label_turns(turns_table(1, 1), llm(base_url="http://judge.example/v1", attempts=1), cache=tmp_path)
    headers = server.headers[0]
    assert headers["Host"] == "judge.example"
    assert headers["Authorization"] == "Bearer sk-0123456789"
    assert headers["Proxy-Authorization"] == "Basic bWU6c2VjcmV0"
    assert client._proxy("https://judge.example/v1") == "http://127.0.0.1:9"
    assert client._proxy("http://other.example/v1") is None


LABELLING = """
import sys, pyarrow.parquet as pq
from turncredit.judges import client
from turncredit.config.judge import JudgeConfig
from turncredit.judges.label import costs, label_turns
print(sys.stdin.readline().strip(), flush=True)
config = JudgeConfig.model_validate_json(sys.argv[1])
table = label_turns(pq.read_table(sys.argv[2]), config, cache=sys.argv[3])
assert set(table.column("role").to_pylist()) == {"E"}
print(int(costs(table)["tokens_in"]))
"""


def label_jobs(count: int, config: JudgeConfig, table: pa.Table, folder: Path) -> list[subprocess.Popen[str]]:
    """Processes that begin to label `table` at once, with their cache in `folder`."""
    pq.write_table(table, folder / "turns.parquet")
    given = [config.model_dump_json(), str(folder / "turns.parquet"), str(folder / "cache")]
    command, pipe = [sys.executable, "-c", LABELLING, *given], subprocess.PIPE
    jobs = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1) for _ in range(count)]
    for job in jobs:
        job.stdin.write("begin\n")  # type: ignore[union-attr]
    assert {job.stdout.readline() for job in jobs} == {"begin\n"}  # type: ignore[union-attr]
    return jobs


@pytest.mark.slow
def test_two_processes_at_once_share_the_windows_and_store_each_answer_once(
    server: ChatServer, llm: Llm, tmp_path: Path
) -> None:
    server.behave = lambda handler, *_: slow(0.05)(handler)
    jobs = label_jobs(2, llm(concurrency=4), turns_table(20, 10), tmp_path)
    paid = [int(job.communicate(timeout=60)[0]) for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0]
    assert min(paid) > 0
    assert sum(paid) == len(server.requests) * 500
    assert 200 <= len(server.requests) < 300
    assert sum(pq.read_metadata(path).num_rows for path in (tmp_path / "cache").glob("*.parquet")) == 200


@pytest.mark.slow
def test_a_job_killed_in_the_middle_has_lost_nothing_it_paid_for(server: ChatServer, llm: Llm, tmp_path: Path) -> None:
    server.behave = lambda handler, *_: slow(0.02)(handler)
    config, table = llm(concurrency=2), turns_table(10, 10)
    (job,) = label_jobs(1, config, table, tmp_path)
    while len(server.requests) < 30:
        time.sleep(0.005)
    job.kill()
    job.communicate()
    time.sleep(0.1)
    assert len(server.requests) < 100
    assert roles(label_turns(table, config, cache=tmp_path / "cache")) == ["E"] * 100
    # Asked again are the two questions in flight, and what arrived during the last commit.
    assert len(server.requests) <= 100 + 4


def test_progress_is_told_up_to_the_number_of_windows(llm: Llm, tmp_path: Path) -> None:
    seen: list[int] = []
    label_turns(turns_table(2, 3), llm(), cache=tmp_path, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 6


def test_questions_carry_what_a_cached_answer_depends_on(server: ChatServer, llm: Llm, tmp_path: Path) -> None:
    table = turns_table(1, 2)
    label_turns(table, llm(), cache=tmp_path)
    for changed in (
        {"model": "other"},
        {"max_tokens": 64},
        {"thinking": True},
        {"window": 0},
        {"temperature": 0.5},
        {"evidence": False},
    ):
        before = len(server.requests)
        label_turns(table, llm(**changed), cache=tmp_path)
        assert len(server.requests) == before + 2, changed
    server.behave = lambda handler, *_: handler.say('{"evidence": "x", "score": 0.5}')
    before = len(server.requests)
    scores = label_turns(table, llm(), ask="progress", cache=tmp_path)
    assert scores.column("score").to_pylist() == [0.5, 0.5]
    assert roles(scores) == [None, None]
    assert len(server.requests) == before + 2
    before = len(server.requests)
    label_turns(table, llm(concurrency=3, timeout=9.0, attempts=2), cache=tmp_path)
    assert len(server.requests) == before


def test_answers_without_a_label_are_asked_for_again_where_too_many_are_kept(
    server: ChatServer, llm: Llm, tmp_path: Path
) -> None:
    """A server that was started wrongly, and mended: what it said before must not cost the labels of all later runs."""
    server.behave = lambda handler, *_: handler.say("")
    with pytest.raises(UserError, match="more than max_missing allows"):
        label_turns(turns_table(), llm(concurrency=1), cache=tmp_path)
    kept = len(server.requests)
    assert 0 < kept < 6
    server.behave = lambda handler, *_: handler.say(answer())
    assert roles(label_turns(turns_table(), llm(), cache=tmp_path)) == ["E"] * 6
    assert len(server.requests) == kept + 6
    assert roles(label_turns(turns_table(), llm(), cache=tmp_path)) == ["E"] * 6
    assert len(server.requests) == kept + 6, "the later answers are the ones that are kept"


def test_an_answer_without_a_label_counts_for_each_turn_that_would_have_it(
    server: ChatServer, llm: Llm, tmp_path: Path
) -> None:
    names = [f"copy{n}" for n in range(4) for _ in range(3)]
    table = pa.concat_tables([turns_table(1, 3)] * 4).set_column(1, "rollout_id", pa.array(names))
    server.behave = lambda handler, _, body: handler.say("" if reviewed(body) == 0 else answer())
    with pytest.raises(UserError, match="more than max_missing allows"):  # 4 of 12 labels, by one answer
        label_turns(table, llm(max_missing=0.3), cache=tmp_path)
    server.behave = lambda handler, *_: handler.say(answer())
    assert roles(label_turns(table, llm(max_missing=0.3), cache=tmp_path)) == ["E"] * 12


def test_few_answers_without_a_label_are_not_paid_for_twice(server: ChatServer, llm: Llm, tmp_path: Path) -> None:
    server.behave = lambda handler, _, body: handler.say("" if reviewed(body) == 0 else answer())
    table = label_turns(turns_table(), llm(max_missing=0.5), cache=tmp_path)
    again = label_turns(turns_table(), llm(max_missing=0.5), cache=tmp_path)
    assert roles(table) == roles(again) == [None, *["E"] * 5]
    assert len(server.requests) == 6


def test_a_language_model_judge_needs_a_cache(llm: Llm) -> None:
    with pytest.raises(UserError, match="a folder for its answers"):
        label_turns(turns_table(), llm())


def test_the_cache_holds_what_was_asked(server: ChatServer, llm: Llm, tmp_path: Path) -> None:
    label_turns(turns_table(1, 1), llm(), cache=tmp_path)
    (path,) = tmp_path.glob("answers-*.parquet")
    row = pq.read_table(path).to_pylist()[0]
    assert row["model"] == "tiny"
    assert row["prompt"] == server.requests[0]["messages"][1]["content"]
    assert json.loads(row["decoding"]) == {
        "temperature": 0.0,
        "max_tokens": 4096,
        "thinking": False,
        "structured": "auto",
    }
    assert json.loads(row["answer"]) == {"evidence": "first visit", "role": "E"}
