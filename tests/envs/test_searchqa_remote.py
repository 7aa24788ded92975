"""A retriever on another machine: the protocol, and every way in which a server can fail."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pytest

from turncredit.config.sections import EnvSlice
from turncredit.envs.searchqa import Settings, make_tasks, open_task, retrieve
from turncredit.envs.searchqa.retrieve import Document, Remote
from turncredit.errors import OutsideFault, UserError
from turncredit.rollouts.tasks import Games

ROWS = [
    {"document": {"id": "1", "contents": '"Dracula"\nA novel.'}, "score": 2.5},
    {"document": {"id": 2, "title": "Carmilla", "text": "A novella."}, "score": 1.0},
]


class Server:
    """A stand-in with the protocol: `answer` gives the status and body of a request, `asked` has those made so far."""

    def __init__(self, answer: Callable[[int], tuple[int, bytes]]):
        self.asked: list[dict] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                status, body = answer(len(outer.asked))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/retrieve"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()


def good(_: int) -> tuple[int, bytes]:
    return 200, json.dumps({"result": [ROWS]}).encode()


@pytest.fixture
def serve(monkeypatch) -> Iterator[Callable[[Callable], Server]]:
    monkeypatch.setattr(retrieve, "_FIRST_WAIT", 0.001)
    servers: list[Server] = []

    def start(answer: Callable[[int], tuple[int, bytes]]) -> Server:
        servers.append(Server(answer))
        return servers[-1]

    yield start
    for server in servers:
        server.http.shutdown()
        server.http.server_close()


@pytest.fixture
def questions(tmp_path: Path) -> dict:
    """Settings for a file of four questions."""
    path = tmp_path / "questions.jsonl"
    rows = [{"question": f"Who wrote number {n}?", "golden_answers": [f"Author {n}"]} for n in range(4)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"source": "files", "questions": {"train": str(path)}, "retriever": "remote"}


def test_a_query_is_posted_once_and_both_forms_of_documents_are_read(serve) -> None:
    server = serve(good)
    remote = Remote(server.url, 3, 5.0, 2)
    wanted = (Document("1", "Dracula", "A novel."), Document("2", "Carmilla", "A novella."))
    assert remote.search("a novel") == remote.search("a novel") == wanted
    assert server.asked == [{"queries": ["a novel"], "topk": 3, "return_scores": True}]


def test_rollouts_that_step_together_share_one_request(serve, questions) -> None:
    def answer(_: int) -> tuple[int, bytes]:
        return 200, json.dumps({"result": [ROWS, ROWS[1:]]}).encode()

    server = serve(answer)
    settings = {**questions, "url": server.url}
    rows = make_tasks("train", 4, 0, Settings(**settings))
    games = Games(EnvSlice(name="searchqa", settings=settings), pa.Table.from_pylist(rows))
    running = [games.open(row) for row in rows]
    for env in running:
        env.reset()
    steps = games.each(running, "step", ["search[one]", "answer[x]", "search[ two ]", "<search>one</search>"])
    assert [request["queries"] for request in server.asked] == [["one", "two"]]
    assert [step.observation.count("Doc ") for step in steps] == [2, 0, 1, 2]


def test_a_server_that_answers_fewer_queries_than_it_was_asked_is_an_error(serve) -> None:
    with pytest.raises(UserError, match="a list of documents for each of 2 queries"):
        Remote(serve(good).url, 3, 5.0, 1).search_all(["one", "two"])


def test_documents_without_scores_and_more_than_asked_for_are_read(serve) -> None:
    server = serve(lambda _: (200, json.dumps({"result": [[row["document"] for row in ROWS]]}).encode()))
    assert [one.title for one in Remote(server.url, 1, 5.0, 1).search("x")] == ["Dracula"]


def test_an_environment_searches_on_the_server(serve, questions) -> None:
    settings = Settings(**questions, url=serve(good).url)
    env = open_task(make_tasks("train", 1, 0, settings)[0], settings)
    env.reset()
    assert env.step("search[x]").observation == (
        "<information>Doc 1(Title: Dracula) A novel.\nDoc 2(Title: Carmilla) A novella.</information>"
    )


def test_a_server_that_recovers_costs_no_rollout(serve) -> None:
    server = serve(lambda number: (503, b"busy") if number < 3 else good(number))
    assert len(Remote(server.url, 3, 5.0, 3).search("x")) == 2
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("answer", "message", "asked"),
    [
        (lambda _: (500, b""), "answered with status 500 Internal Server Error, 2 attempts", 2),
        (lambda _: (404, b""), "answered with status 404 Not Found, 1 attempt; start", 1),
        (lambda _: (200, b"<html>"), "did not answer with JSON", 2),
        (lambda _: (200, b'"\xff"'), "did not answer with JSON", 2),
        (lambda _: (200, b'{"error": "no index"}'), r'answered \{"error": "no index"\}, not', 1),
        (lambda _: (200, b'{"result": []}'), "is this the address of its /retrieve", 1),
        (lambda _: (200, b'{"result": [[{"document": {}}]]}'), "is this the address of its /retrieve", 1),
        (lambda _: (time.sleep(0.3), (200, b""))[1], r"gave no answer within 0.05 s \(env.searchqa.timeout\)", 2),
    ],
    ids=["error", "no such page", "no JSON", "no text at all", "another form", "no result", "no text", "hangs"],
)
def test_a_server_that_fails_ends_the_job_with_one_line_and_is_no_empty_result(
    serve, questions, answer, message, asked
) -> None:
    server = serve(answer)
    settings = Settings(**questions, url=server.url, timeout=0.05 if "within" in message else 5, attempts=2)
    env = open_task(make_tasks("train", 1, 0, settings)[0], settings)
    env.reset()
    with pytest.raises(UserError, match=message) as error:
        env.step("search[x]")
    assert str(error.value).startswith(f"retriever {server.url}: ")
    assert isinstance(error.value, OutsideFault) == ("status 500" in message or "within" in message)
    assert "\n" not in str(error.value)
    assert len(server.asked) == asked
    assert env.snapshot().turns == 0


def test_a_dead_server_is_one_line(serve) -> None:
    server = serve(good)
    server.http.shutdown()
    server.http.server_close()
    with pytest.raises(
        OutsideFault, match=r"cannot be reached \(.*Connection refused\), 2 attempts; start it or correct"
    ):
        Remote(server.url, 3, 5.0, 2).search("x")
