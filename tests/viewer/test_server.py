"""What the server lets in, and what it never does."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from urllib.parse import quote

import pytest

from tests.helpers import nonempty, turncredit
from tests.viewer import world
from tests.viewer.serving import TOKEN, served
from turncredit.errors import UserError
from turncredit.views.viewer.given import Given
from turncredit.views.viewer.server import LOCAL, LOOPBACK, PORT, bind, hosts_of, is_loopback
from turncredit.views.viewer.viewer import Viewer

PATHS = ("/", "/experiment/synthetic", f"/round/synthetic/{world.ROUND}", "/static/style.css", "/compare/synthetic")


@pytest.mark.parametrize("path", PATHS)
def test_without_token_or_cookie_nothing_is_shown(server, path):
    for headers in ({}, {"Cookie": f"turncredit-{server.port}=wrong"}, {"Cookie": f"turncredit-{server.port}=\xff"}):
        answer = server.get(path, headers)
        assert answer.status == 403
        assert "synthetic" not in answer.text
    assert server.get(f"{path}?token=wrong", {}).status == 403


def test_the_token_is_exchanged_for_a_strict_cookie_that_scripts_cannot_read(server):
    answer = server.get(f"/experiment/synthetic?token={TOKEN}&text=a%22b", {})
    cookie = answer.headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=Strict"} <= {part.strip() for part in cookie.split(";")}
    (target,) = re.findall(r'content="0; url=([^"]*)"', answer.text)
    assert target.startswith("/experiment/synthetic?text=a")
    assert TOKEN not in target
    assert server.get("/experiment/synthetic", {"Cookie": cookie.partition(";")[0]}).status == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "", "[::2]:80"])
def test_a_name_that_is_not_this_server_is_refused_even_with_the_cookie(server, host):
    assert server.get("/", {**server.cookie, "Host": host}).status == 403


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "[::1]:80", "LOCALHOST:3"])
def test_the_names_of_this_machine_are_answered(server, host):
    assert server.get("/", {**server.cookie, "Host": host}).status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_sent(server, method):
    assert server.get("/", method=method).status == 405


@pytest.mark.parametrize("path", [*PATHS, "/nowhere", "/experiment/none"])
def test_every_answer_forbids_scripts_and_frames_from_elsewhere(server, path):
    for headers in (server.cookie, {}):
        answer = server.get(path, headers)
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py",
        "/static/%2e%2e%2fserver.py",
        "/static/base.html.j2",
        "/round/synthetic/..%2f..%2f..%2fetc/seed0/round01",
        "/round/synthetic/../../etc/passwd",
        f"/round/..%2f..%2fetc/{world.ROUND}",
        "/round/synthetic/flat_grpo/seed0/round02%2f..%2fround03",
        "/round/synthetic/flat_grpo/seed*/round02",
        "/trail/synthetic?file=../../../../etc/passwd",
        "/trail/synthetic?file=/etc/passwd",
        "/trail/synthetic?file=config.json/../../../tables/turns.parquet",
        f"/rollout/synthetic/{world.ROUND}?group=..%2f&rollout=..%2f..%2fetc%2fpasswd",
    ],
)
def test_no_path_leads_out_of_what_was_given(server, path):
    answer = server.get(path)
    assert answer.status == 404
    assert "root:" not in answer.text


def test_looking_changes_nothing(own):
    made, viewer = own
    before = world.contents(made.results)
    with served(viewer) as server:
        pages = [server.get("/experiment/synthetic").text]
        for link in nonempty(re.findall(r'class="k [^"]*" href="([^"]+)"', pages[0])):
            pages.append(server.get(link.replace("&amp;", "&")).text)
        query = f"group={quote(world.EVIL_GROUP)}&rollout={quote(world.EVIL_ROLLOUT)}&also=rloo"
        assert server.get(f"/rollout/synthetic/{world.ROUND}?{query}").status == 200
        assert server.get(f"/round/synthetic/{world.ROUND}?where=success&text=mug").status == 200
    assert world.contents(made.results) == before


def test_a_mistake_of_the_viewer_is_a_line_and_the_next_page_works(monkeypatch):
    viewer = Viewer(Given([]))
    monkeypatch.setattr(viewer, "experiment", lambda _: 1 / 0)
    with served(viewer) as server:
        answer = server.get("/experiment/x")
        assert answer.status == 500
        assert "ZeroDivisionError" in answer.text
        assert "Traceback" not in answer.text
        assert server.get("/").status == 200


def test_a_file_that_the_system_refuses_is_one_line(monkeypatch):
    def refused(_: str) -> str:
        raise PermissionError(13, "Permission denied", "x/<b>config.json")

    viewer = Viewer(Given([]))
    monkeypatch.setattr(viewer, "experiment", refused)
    with served(viewer) as server:
        answer = server.get("/experiment/x")
    assert "x/&lt;b&gt;config.json: Permission denied" in answer.text


def test_an_unchanged_page_is_not_sent_again(server):
    first = server.get("/experiment/synthetic")
    again = server.get("/experiment/synthetic", {**server.cookie, "If-None-Match": first.headers["ETag"]})
    assert (again.status, again.text) == (304, "")


def test_two_viewers_take_two_ports_and_a_port_in_use_is_one_line():
    with bind(LOOPBACK, None) as one, bind(LOOPBACK, None) as other:
        port = one.getsockname()[1]
        assert port != other.getsockname()[1]
        with pytest.raises(UserError, match=rf"port {port} of 127\.0\.0\.1 cannot be used .*; .*--port"):
            bind(LOOPBACK, port)
    assert port >= PORT


def test_only_loopback_names_are_answered_unless_another_host_was_asked_for():
    assert hosts_of(LOOPBACK) == LOCAL
    assert "lab.example" in hosts_of("lab.example")
    assert socket.gethostname().lower() in hosts_of("0.0.0.0")
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "10.0.0.3", "lab")] == [
        True, True, True, False, False, False
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("host", "warned"), [(LOOPBACK, False), ("0.0.0.0", True)])
def test_the_first_line_is_the_address_and_ctrl_c_ends_it(made, host, warned):
    start = [sys.executable, "-c", "from turncredit.cli.main import main; main()", "view", str(made.results)]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*start, "--no-browser", "--host", host], **options) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=60)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{32}\n", line)
    assert rest == ""
    assert ("warning: other machines can reach 0.0.0.0" in errors) == warned
    assert "Ctrl-C ends it" in errors
    assert "Traceback" not in errors
    assert process.returncode == 0


def test_what_is_not_there_or_not_about_turns_is_one_line(made, tmp_path):
    absent = turncredit("view", tmp_path / "none", "--no-browser")
    assert absent.returncode == 2
    assert "no such folder" in absent.stderr
    evals = next(made.layout.find("evals")).path
    other = turncredit("view", evals, "--no-browser")
    assert other.returncode == 2
    assert f"{evals}: a 'evals' table, not one about turns" in other.stderr
    alone = turncredit("view", made.tables.branches, "--no-browser")
    assert "give the table of its turns before it" in alone.stderr
