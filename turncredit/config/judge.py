"""The configuration of the judge."""

from __future__ import annotations

import re
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from turncredit.data.strict_model import Closed, TemplateSetting

#: What a judge is asked for: TRIAGE's role, its comparator (a scalar progress), or HAS's score of a turn; of a whole
#: failed rollout the step that decided it (Who&When).
Ask = Literal["role", "progress", "score", "decisive_step"]

#: The lowest and the highest score that answers a question with a number.
SCALES: dict[Ask, tuple[float, float]] = {"progress": (-1.0, 1.0), "score": (0.0, 1.0)}

MOST_WINDOW = 5


class ServeConfig(Closed):
    """A vLLM server that a label job starts on its own node and stops at its end."""

    python: str = Field("python", description="Python interpreter of the environment in which vLLM is installed")
    args: tuple[str, ...] = Field((), description="further arguments of the server, such as --max-model-len 16384")
    health_timeout: float = Field(900.0, gt=0, description="seconds until the server must answer")


class JudgeConfig(Closed):
    """The judge. Everything but `kind` is read by the language-model judge only.

    An API key is never part of a configuration: `api_key_env` names the environment variable that holds it.
    """

    kind: Literal["rule", "llm"] = "rule"
    model: str = Field("Qwen/Qwen3-8B", min_length=1, description="as the server calls it")
    base_url: str = Field("http://127.0.0.1:8000/v1", description="of any server that speaks the OpenAI protocol")
    api_key_env: str = Field("OPENAI_API_KEY", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    thinking: bool | None = Field(
        True, description="the chat template's enable_thinking; null sends nothing, for models that have no such switch"
    )
    chat_template: dict[str, TemplateSetting] = Field(
        default_factory=dict,
        exclude_if=lambda settings: not settings,
        description="further settings of the model's chat template, such as reasoning_effort",
    )
    evidence: bool = Field(
        True, description="whether the answer must give evidence before its label; false is TRIAGE's 'no evidence'"
    )
    temperature: float = Field(0.0, ge=0)
    max_tokens: int = Field(4096, ge=16, description="longest answer, its reasoning included")
    structured: Literal["auto", "always", "never"] = Field(
        "auto", description="JSON-schema decoding; auto: where the server has it and thinking is off"
    )
    window: int = Field(MOST_WINDOW, ge=0, le=MOST_WINDOW, description="turns shown before, and after, the judged one")
    concurrency: int | None = Field(
        None, ge=1, le=1024, description="requests in flight; null: 256 at a server that the job starts, else 64"
    )
    timeout: float | None = Field(
        None,
        gt=0,
        description="seconds for one request, its wait in the server's queue included; null: an hour at a server that "
        "the job starts, else 180",
    )
    attempts: int = Field(5, ge=1, description="tries of one request before its label is recorded as missing")
    max_missing: float = Field(0.02, ge=0, le=1, description="share of labels that may be missing")
    serve: ServeConfig | None = None

    @property
    def in_flight(self) -> int:
        """Requests in flight: a server of the job's own, on a GPU of its own, answers as many as vLLM takes at once."""
        return self.concurrency or (64 if self.serve is None else 256)

    @property
    def patience(self) -> float:
        """Seconds for one request. A server of the job's own queues those whose context its cache has no room for."""
        return self.timeout or (180.0 if self.serve is None else 3600.0)

    # A validator of the model, not of the field: pydantic quotes a field's value in its message, and it may hold a key.
    @model_validator(mode="after")
    def _no_secrets_in_the_address(self) -> JudgeConfig:
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("base_url must be an address such as http://127.0.0.1:8000/v1")
        if parts.username or parts.password or parts.query:
            raise ValueError("base_url must not contain a key or a password; name the key's variable in api_key_env")
        return self

    @model_validator(mode="after")
    def _thinking_has_a_key(self) -> JudgeConfig:
        if "enable_thinking" in self.chat_template:
            raise ValueError("chat_template: enable_thinking is set by the key thinking; write thinking: true or false")
        return self

    @model_validator(mode="after")
    def _only_for_a_model(self) -> JudgeConfig:
        if self.serve is not None and self.kind != "llm":
            raise ValueError("serve starts a server for an LLM judge, but kind is rule; set kind to llm")
        if not self.evidence and self.kind != "llm":
            raise ValueError("evidence false is a wording for an LLM judge; set kind to llm")
        return self


def judge_name(config: JudgeConfig) -> str:
    """The judge's name in tables and file names, such as `rule` or `qwen3-8b-think`."""
    if config.kind == "rule":
        return "rule"
    name = re.sub(r"[^a-z0-9.]+", "-", config.model.rstrip("/").rsplit("/", 1)[-1].lower()).strip("-.")
    return name + ("-think" if config.thinking else "") + ("" if config.evidence else "-no-evidence")


def labels_name(config: JudgeConfig, ask: Ask) -> str:
    """The file name of labels, without its suffix, such as `rule-role`."""
    return f"{judge_name(config)}-{ask}"


def decides(config: JudgeConfig) -> dict[str, Any]:
    """The part of a judge's configuration that decides its labels; the rest is about how they are obtained."""
    keys = {"kind", "window"}
    if config.kind == "llm":
        keys |= {"model", "thinking", "evidence", "temperature", "max_tokens", "structured"}
        keys |= {"chat_template"} if config.chat_template else set()  # labels of before stay valid
    return config.model_dump(mode="json", include=keys)
