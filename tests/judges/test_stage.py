"""The stage `label`, and the server that a label job starts for itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from turncredit.config import from_mapping
from turncredit.config.judge import JudgeConfig, ServeConfig, decides, judge_name, labels_name
from turncredit.config.layout import JUDGE_CACHE, Layout
from turncredit.credit import resolve
from turncredit.credit.parts.configured import ask_of
from turncredit.data import provenance, tables
from turncredit.errors import UserError
from turncredit.judges.serve import serving
from turncredit.pipeline.job import Job
from turncredit.pipeline.plan import Plan, load

from .chat_server import ChatServer
from .test_cli import results_tree

STAND_IN = """
    # Speaks as much of vLLM's server as the judge needs: --model, --host, --port, /health, chat completions.
    import os, sys, time
    from tests.judges.chat_server import ChatServer, Handler, answer

    given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
    if given["--model"] == "broken":
        sys.exit(7)
    if os.environ["VLLM_USE_FLASHINFER_SAMPLER"] != "0":  # needs a compiler that not every node has
        sys.exit(8)
    ready = time.monotonic() + 0.7

    class Health(Handler):
        def do_GET(self):
            self.send(200 if time.monotonic() > ready else 503, b"")

    server = ChatServer((given["--host"], int(given["--port"])), Health)
    def behave(handler, *_):
        os._exit(9) if given["--model"] == "dies" else handler.say(answer("N"))

    server.behave = behave
    server.serve_forever()
"""


@pytest.fixture
def vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that stands in for vLLM, found by `python -m vllm.entrypoints.openai.api_server`."""
    root = Path(__file__).resolve().parents[2]
    package = tmp_path / "stand_in" / "vllm" / "entrypoints" / "openai"
    package.mkdir(parents=True)
    for folder in (package, *list(package.parents)[:2]):
        (folder / "__init__.py").write_text("")
    (package / "api_server.py").write_text(textwrap.dedent(STAND_IN))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "stand_in"), str(root)]))
    return package


def config(**changes) -> JudgeConfig:
    return JudgeConfig(kind="llm", model="tiny", thinking=False, serve=ServeConfig(python=sys.executable), **changes)


def healthy(base_url: str) -> bool:
    try:
        return urllib.request.urlopen(base_url.replace("/v1", "/health"), timeout=5).status == 200
    except (urllib.error.URLError, OSError):
        return False


@pytest.mark.parametrize(
    ("method", "ask"),
    [("triage", "role"), ("triage_no_regression", "role"), ("triage_scalar", "progress"), ("has_judge", "score")],
)
def test_each_method_asks_for_what_it_reads(method: str, ask: str) -> None:
    assert ask_of(resolve(method)) == ask


def test_labels_are_named_after_judge_and_question() -> None:
    assert labels_name(JudgeConfig(), "role") == "rule-role"
    assert judge_name(JudgeConfig(kind="llm", model="Qwen/Qwen3-8B")) == "qwen3-8b-think"
    assert judge_name(JudgeConfig(kind="llm", model="/models/My Model/", thinking=None)) == "my-model"
    assert labels_name(JudgeConfig(kind="llm", evidence=False), "role") == "qwen3-8b-think-no-evidence-role"


def test_only_a_language_model_can_be_asked_for_no_evidence() -> None:
    with pytest.raises(ValueError, match="evidence false is a wording for an LLM judge"):
        JudgeConfig(evidence=False)


def test_how_labels_are_got_does_not_decide_what_they_are() -> None:
    one = JudgeConfig(kind="llm", base_url="http://a/v1", concurrency=3, timeout=9, attempts=2, api_key_env="A")
    two = JudgeConfig(kind="llm", base_url="http://b/v1", serve=ServeConfig())
    assert decides(one) == decides(two)
    assert decides(one) != decides(JudgeConfig(kind="llm", thinking=False))
    assert decides(one) != decides(JudgeConfig(kind="llm", evidence=False))
    assert decides(JudgeConfig(model="x")) == decides(JudgeConfig()) == {"kind": "rule", "window": 5}


def label_job(folder: Path, name: str = "exp", **changes: Any) -> Job:
    """The job that labels the turns of a made-up results folder, with its experiment's judge changed."""
    results_tree(folder)
    plan = Plan(from_mapping({"experiment": name, "rollout": {"tasks": 4, "group_size": 2}, "judge": changes}), folder)
    at = plan.keys_of("labels", plan.turns_at("triage", 0, 1), "triage")
    job = plan.job("label", at)
    job.input["turns"] = Layout(folder / "exp").path("turns", at.keys)
    return job


def run(job: Job) -> dict[str, float]:
    return load("label").run(job)


def test_the_stage_writes_labels_that_say_what_they_were_made_from(tmp_path: Path) -> None:
    job = label_job(tmp_path)
    assert run(job)["labels"] == tables.read(job.output["labels"], "labels").num_rows == 4
    meta = tables.metadata(job.output["labels"])
    assert meta["config"]["judge"] == {"kind": "rule", "window": 5}
    assert meta["config"]["ask"] == "role"
    assert meta["inputs"] == {"turns": provenance.file_hash(job.path("turns"))}
    assert not (tmp_path / JUDGE_CACHE).exists()


def test_experiments_share_the_answers_of_a_server(server: ChatServer, tmp_path: Path) -> None:
    judge = {"kind": "llm", "model": "tiny", "base_url": server.url, "thinking": False}
    for name, cached in (("one", 0), ("two", 4)):
        assert run(label_job(tmp_path, name, **judge))["cached"] == cached
    assert len(server.requests) == 4


@pytest.mark.usefixtures("vllm")
def test_a_job_starts_its_server_waits_for_health_labels_and_stops_it(tmp_path: Path) -> None:
    serve = {"python": sys.executable}
    job = label_job(tmp_path, kind="llm", model="tiny", thinking=False, serve=serve)
    run(job)
    assert tables.read(job.output["labels"], "labels").column("role").to_pylist() == ["N"] * 4


@pytest.mark.usefixtures("vllm")
def test_a_server_of_this_node_is_not_asked_through_a_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes often have one, and it knows nothing of this machine's 127.0.0.1."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    serve = {"python": sys.executable, "health_timeout": 20}
    job = label_job(tmp_path, kind="llm", model="tiny", thinking=False, serve=serve)
    run(job)
    assert tables.read(job.output["labels"], "labels").column("role").to_pylist() == ["N"] * 4


@pytest.mark.usefixtures("vllm")
def test_the_server_is_gone_after_the_job_even_when_that_fails() -> None:
    addresses = []

    def failing_job() -> None:
        with serving(config()) as served:
            addresses.append(served.base_url)
            assert healthy(served.base_url)
            raise RuntimeError("the job fails")

    with pytest.raises(RuntimeError, match="the job fails"):
        failing_job()
    assert not healthy(addresses[0])


@pytest.mark.usefixtures("vllm")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's death")
def test_the_server_is_gone_when_the_job_is_killed() -> None:
    code = (
        "import sys\nfrom turncredit.judges.serve import serving\nfrom turncredit.config.judge import JudgeConfig\n"
        "with serving(JudgeConfig.model_validate_json(sys.argv[1])) as served:\n"
        "    print(served.base_url, flush=True)\n    sys.stdin.read()\n"
    )
    job = subprocess.Popen(
        [sys.executable, "-c", code, config().model_dump_json()],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert job.stdout is not None
    url = job.stdout.readline().strip()
    assert healthy(url)
    os.kill(job.pid, signal.SIGKILL)
    job.communicate()
    deadline = time.monotonic() + 10
    while healthy(url) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not healthy(url)


@pytest.mark.usefixtures("vllm")
def test_the_job_ends_when_its_server_dies_and_does_not_wait_out_the_hour_for_its_answers(tmp_path: Path) -> None:
    job = label_job(tmp_path, kind="llm", model="dies", thinking=False, serve={"python": sys.executable})
    begun = time.monotonic()
    with pytest.raises(UserError, match=r"give no label, .* connection lost"):
        run(job)
    assert time.monotonic() - begun < 60


@pytest.mark.usefixtures("vllm")
def test_the_server_samples_with_flashinfer_only_if_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_USE_FLASHINFER_SAMPLER", raising=False)
    with serving(config()) as served:
        assert healthy(served.base_url)
    monkeypatch.setenv("VLLM_USE_FLASHINFER_SAMPLER", "1")
    with pytest.raises(UserError, match="ended with status 8"), serving(config()):
        pass


@pytest.mark.usefixtures("vllm")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "broken"}, "the server ended with status 7 before it was ready"),
        ({"serve": ServeConfig(python="no-such-python")}, "'no-such-python' is not found"),
        ({"serve": ServeConfig(python=sys.executable, health_timeout=0.1)}, "was not healthy within 0.1 s"),
    ],
)
def test_a_server_that_does_not_come_up_is_one_clear_line(changes: dict, message: str) -> None:
    with pytest.raises(UserError, match=message), serving(config().model_copy(update=changes)):
        pass
