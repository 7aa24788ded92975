"""Requests to a language model over the OpenAI chat protocol: concurrency, retries, handling of failures.

If a single request fails, its label is missing, with a reason. Failures that would affect every request (a refused key,
an unknown model or address) end the job at once, as does a share of missing labels above the configured one. Nothing
that a server sends is kept with the API key in it.

All requests are made on one asyncio loop. A request takes half a millisecond of CPU time, so one core can send more
than a model's server answers.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from turncredit.config.judge import Ask, JudgeConfig
from turncredit.data.http_calls import is_here
from turncredit.errors import OutsideFault, UserError, is_from_outside
from turncredit.judges.cache import Answer, Cache, Question
from turncredit.judges.rubric import INSTRUCTIONS, Label, answer_schema, read_answer
from turncredit.judges.text import in_one_line

_WAIT = wait_random_exponential(multiplier=0.5, max=20)
#: Seconds to wait at most before a retry, even if the server's Retry-After asks for more.
_LONGEST_WAIT = 60.0
#: A shorter API key is a placeholder (EMPTY, none) and no secret; hiding it could damage what an answer says.
_SHORTEST_SECRET = 8


class Reply(NamedTuple):
    """An answer, from the cache or just paid for; or None and the reason.

    `outside`: there is none because the connection failed, or the server is down or busy.
    """

    answer: Answer | None
    cached: bool
    reason: str | None = None
    outside: bool = False


def parse_label(reply: Reply, ask: Ask) -> Label:
    """The label in a reply, or the reason why there is none."""
    if reply.answer is None:
        return Label(reason=reply.reason)
    return read_answer(reply.answer.answer, ask, reply.answer.finish_reason)


class _NoAnswer(Exception):
    """A failure of this question only."""


class _AskAgain(_NoAnswer):
    """A failure that may not recur; `after` is the delay in seconds that the server asks for.

    `outside`: the connection failed, or the server is down or busy.
    """

    def __init__(self, reason: str, after: float | None = None, *, outside: bool = False) -> None:
        super().__init__(reason)
        self.after, self.outside = after, outside


class _NoSchema(Exception):
    """A request with a schema is refused, perhaps because of the schema."""


def ask_all(
    questions: Mapping[str, Question],
    config: JudgeConfig,
    ask: Ask,
    cache: Cache,
    rows: Mapping[str, int],
    allowed: int,
    progress: Callable[[int], None] = lambda _: None,
) -> dict[str, Reply]:
    """A reply for each key of `questions`, from the cache or from the server.

    rows       how many labels the reply to a key gives: turns with equal windows, or of one rollout, share a question
    allowed    how many labels may be missing
    progress   called with the number of replies so far
    Raises UserError when more give none, or when the server refuses all requests; answers received so far are kept. It
    is an OutsideFault where fewer would be missing, had no connection failed and the server been neither down nor busy.

    An answer without a label is kept like any other. If more labels are missing by those that are kept than are
    `allowed`, all of them are asked for again: the server may have been repaired, and the job would fail otherwise.
    """
    cache.load(questions)
    replies = {key: Reply(answer, cached=True) for key in questions if (answer := cache.get(key)) is not None}
    useless = [key for key, reply in replies.items() if parse_label(reply, ask).reason is not None]
    if sum(rows[key] for key in useless) > allowed:
        for key in useless:
            cache.forget(key)
            del replies[key]
    progress(len(replies))
    missing = {key: question for key, question in questions.items() if key not in replies}
    if missing:
        asking = _Asking(missing, config, ask, cache, rows, allowed, lambda done: progress(len(replies) + done))
        replies |= asyncio.run(asking.all())
    return replies


class _Asking:
    """Workers that share a queue of questions, a connection pool and a count of failures."""

    def __init__(
        self,
        questions: Mapping[str, Question],
        config: JudgeConfig,
        ask: Ask,
        cache: Cache,
        rows: Mapping[str, int],
        allowed: int,
        progress: Callable[[int], None],
    ) -> None:
        self.questions, self.config, self.ask, self.cache = questions, config, ask, cache
        self.rows, self.allowed, self.progress = rows, allowed, progress
        # Each job has an order of its own, so that jobs with the same questions rarely ask the same one at once.
        self.queue = random.Random().sample(list(questions), len(questions))
        self.replies: dict[str, Reply] = {}
        self.failed = 0  # replies without a label
        self.missing = 0  # labels that they would have given
        self.outside = 0  # those of them that a failed connection or server has cost
        self.committing: asyncio.Task[None] | None = None
        self.url = f"{config.base_url.rstrip('/')}/chat/completions"
        self.proxy = _proxy(config.base_url)
        # With thinking on, most servers would apply the grammar from the first token and so forbid thinking.
        self.structured = config.structured == "always" or (config.structured == "auto" and not config.thinking)
        self.secret = _api_key(config.api_key_env)

    async def all(self) -> dict[str, Reply]:
        async with aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {self.secret}"} if self.secret else {},
            connector=aiohttp.TCPConnector(limit=self.config.in_flight),
            timeout=aiohttp.ClientTimeout(total=self.config.patience),
        ) as self.session:
            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(min(self.config.in_flight, len(self.queue))):
                        group.create_task(self._worker(group))
            except BaseExceptionGroup as errors:
                raise errors.exceptions[0] from None
        return self.replies

    async def _worker(self, group: asyncio.TaskGroup) -> None:
        while self.queue:
            key = self.queue.pop()
            reply = self.replies[key] = await self._reply(key)
            if reply.answer is not None and not reply.cached:
                self.cache.put(key, self.questions[key], reply.answer)
                if self.committing is None or self.committing.done():
                    self.committing = group.create_task(self._commit())
                elif len(self.cache.uncommitted) > self.config.in_flight:
                    await self.committing
            self.progress(len(self.replies))
            self._count_failure(key, reply)

    async def _commit(self) -> None:
        while self.cache.uncommitted:
            await asyncio.to_thread(self.cache.commit)

    async def _reply(self, key: str) -> Reply:
        if (answer := self.cache.get(key)) is not None:  # another job's, by now
            return Reply(answer, cached=True)
        try:
            return Reply(await self._ask_until_answered(self.questions[key]), cached=False)
        except _NoAnswer as error:
            outside = isinstance(error, _AskAgain) and error.outside
            return Reply(None, cached=False, reason=self._line(str(error)), outside=outside)

    async def _ask_until_answered(self, question: Question) -> Answer:
        retrying = AsyncRetrying(
            stop=stop_after_attempt(self.config.attempts),
            wait=_pause,
            retry=retry_if_exception_type(_AskAgain),
            reraise=True,
        )
        return await retrying(self._ask_once, question)

    async def _ask_once(self, question: Question) -> Answer:
        with_schema = self.structured
        try:
            return await self._request(question, with_schema)
        except _NoSchema:
            # If the server answers without a schema, it does not support them: answers are then parsed leniently. If it
            # refuses again, it is this question that it refuses.
            answer = await self._request(question, False)
            self.structured = False
            return answer

    async def _request(self, question: Question, with_schema: bool) -> Answer:
        started = time.perf_counter()
        try:
            body = self._body(question, with_schema)
            async with self.session.post(self.url, json=body, proxy=self.proxy) as response:
                text = await response.text(errors="replace")
        except TimeoutError:
            raise _AskAgain(f"no answer within {self.config.patience:g} s", outside=True) from None
        except (aiohttp.ClientError, OSError) as error:
            line = f"connection lost: {str(error) or type(error).__name__}"
            raise _AskAgain(line, outside=is_from_outside(error)) from None
        if response.status in (400, 415, 422) and with_schema and self.config.structured == "auto":
            raise _NoSchema
        if response.status >= 400:
            raise self._status_error(response, text)
        answer = _read_completion(text, time.perf_counter() - started)
        return answer._replace(
            answer=self._redacted(answer.answer), finish_reason=self._redacted(answer.finish_reason or "") or None
        )

    def _body(self, question: Question, with_schema: bool) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.config.model,
            "messages": [
                {"role": "system", "content": INSTRUCTIONS[question.prompt_version]},
                {"role": "user", "content": question.prompt},
            ],
            "temperature": self.config.temperature,
            "max_tokens": self.config.max_tokens,
        }
        settings = dict(self.config.chat_template)
        if self.config.thinking is not None:
            settings["enable_thinking"] = self.config.thinking
        if settings:
            body["chat_template_kwargs"] = settings
        if with_schema:
            schema = answer_schema(self.ask, self.config.evidence)
            named = {"name": f"turn_{self.ask}", "schema": schema, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        return body

    def _status_error(self, response: aiohttp.ClientResponse, text: str) -> Exception:
        code, message = response.status, self._line(_error_message(text) or str(response.reason))[:300]
        if code in (408, 409, 425, 429) or code >= 500:
            return _AskAgain(f"HTTP {code}: {message}", _retry_after(response), outside=True)
        if code in (401, 403):
            have = "contains a key that it does not accept" if self.secret else "is not set"
            return UserError(
                f"the judge's server {self.config.base_url} refuses ({code}); "
                f"the environment variable {self.config.api_key_env} {have}"
            )
        if code == 404:
            return UserError(
                f"the judge's server {self.config.base_url} has no chat model '{self.config.model}' (404: {message}); "
                "check base_url (it usually ends in /v1) and model"
            )
        return _NoAnswer(f"HTTP {code}: {message}")

    def _count_failure(self, key: str, reply: Reply) -> None:
        reason = parse_label(reply, self.ask).reason
        if reason is None:
            return
        self.failed, self.missing = self.failed + 1, self.missing + self.rows[key]
        self.outside += self.rows[key] if reply.outside else 0
        if self.missing > self.allowed:
            kind = OutsideFault if self.missing - self.outside <= self.allowed else UserError
            raise kind(
                f"the judge {self.config.model} at {self.config.base_url}: {self.failed} of {len(self.replies)} "
                f"replies so far give no label, more than max_missing allows; the last reason: {reason}"
            )

    def _redacted(self, text: str) -> str:
        """`text` without the API key, which some servers repeat."""
        return text.replace(self.secret, "***") if len(self.secret) >= _SHORTEST_SECRET else text

    def _line(self, text: str) -> str:
        """A server's message, or an error's, without the API key and in one line."""
        return in_one_line(self._redacted(text))


def _api_key(variable: str) -> str:
    """The key in this environment variable, empty if there is none. Raises UserError for one that no header holds."""
    key = os.environ.get(variable, "").strip()
    if not all("!" <= letter <= "~" for letter in key):
        raise UserError(
            f"the environment variable {variable} (api_key_env) holds no API key: it has white space within, or "
            "characters that are not ASCII; set it to the key alone"
        )
    return key


def _pause(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    after = error.after if isinstance(error, _AskAgain) else None
    return _WAIT(state) if after is None else min(after, _LONGEST_WAIT)


def _retry_after(response: aiohttp.ClientResponse) -> float | None:
    try:
        return max(0.0, float(response.headers.get("Retry-After", "")))
    except ValueError:  # absent, or a date
        return None


def _error_message(text: str) -> str:
    """What an error's body says: OpenAI's form, or all of it."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return text
    body = body.get("error", body) if isinstance(body, dict) else body
    return str(body.get("message", body) if isinstance(body, dict) else body)


def _proxy(url: str) -> str | None:
    """The proxy for this address in the environment (HTTPS_PROXY, ALL_PROXY, NO_PROXY).

    aiohttp can find it itself, but then looks for a password in ~/.netrc as well and refuses it beside an API key.
    """
    parts, proxies = urlsplit(url), getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if proxy is None or is_here(url) or proxy_bypass(parts.netloc):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _read_completion(text: str, seconds: float) -> Answer:
    """The answer in a chat completion. Its content must be text; odd numbers beside it are left out (`Answer.of`)."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _AskAgain(f"the reply is not JSON: {error}") from None
    try:
        choice = data["choices"][0]
        content, finish_reason, usage = choice["message"]["content"], choice.get("finish_reason"), data.get("usage")
        if not isinstance(content, str | None):
            raise TypeError
    except (KeyError, IndexError, TypeError, AttributeError):
        raise _AskAgain("the reply is not a chat completion") from None
    counts = usage if isinstance(usage, dict) else {}
    return Answer.of(
        content or "", finish_reason, counts.get("prompt_tokens"), counts.get("completion_tokens"), round(seconds, 4)
    )
