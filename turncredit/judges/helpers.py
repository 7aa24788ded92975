"""Many requests to an LLM: cached answers are not requested again, and helper processes start where they save time.

One Python process needs about a millisecond of CPU time per request, so 32 concurrent requests to a fast server
saturate a core. Above that, helper processes (`python -m turncredit.judges.helpers`) send requests, too: all go through
the same questions from different starting points, in pairs that move towards each other, and the cache's locks tell
them where they meet. The work thus balances itself, and a helper that dies loses nothing.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from turncredit.config.judge import Ask, JudgeConfig
from turncredit.data.process_lifetime import end_with_parent
from turncredit.errors import UserError
from turncredit.judges.cache import Cache, Question
from turncredit.judges.client import JudgeClient, Reply, parse_label
from turncredit.judges.rubric import INSTRUCTIONS

#: Requests in flight that one process can handle, at 50 ms per request.
_PER_PROCESS = 32
#: With fewer questions, all are answered before a helper has started.
_WORTH_HELP = 2000


def ask_all(
    questions: Mapping[str, Question],
    config: JudgeConfig,
    ask: Ask,
    cache: Cache,
    allowed: int,
    progress: Callable[[int], None] = lambda _: None,
) -> dict[str, Reply]:
    """A reply for each key of `questions`.

    allowed    how many replies may give no label
    progress   called with the number of replies so far
    Raises UserError when more give none, or when the server refuses all requests; answers received so far are kept.

    An answer without a label is kept like any other. Only where more of them are kept than are `allowed` are they asked
    for again: the server may have been mended, and the job would fail otherwise, after paying for all the others.
    """
    cache.load(questions)
    replies = {key: Reply(answer, cached=True) for key in questions if (answer := cache.get(key)) is not None}
    useless = [key for key, reply in replies.items() if parse_label(reply, ask).reason is not None]
    if len(useless) > allowed:
        for key in useless:
            cache.forget(key)
            del replies[key]
    progress(len(replies))
    missing = {key: question for key, question in questions.items() if key not in replies}
    if missing:
        cached = len(replies)
        processes = min(os.cpu_count() or 1, -(-config.concurrency // _PER_PROCESS))
        if len(missing) < _WORTH_HELP:
            processes = 1
        client = JudgeClient(missing, config, ask, cache, allowed, lambda done: progress(cached + done))
        gc.freeze()  # the questions stay alive: scanning them in every garbage collection costs a tenth of the time
        try:
            replies.update(asyncio.run(_ask_together(client, processes)))
        finally:
            gc.unfreeze()
    return replies


async def _ask_together(client: JudgeClient, processes: int) -> dict[str, Reply]:
    """Send requests from this process and `processes - 1` helpers, at most `config.concurrency` at once.

    This process starts with the full number and gives each helper its share once it has started.
    """
    share = client.config.concurrency // processes
    at_work: set[int] = set()
    helpers = {
        at: asyncio.ensure_future(_helper(client, share, (at, processes), at_work)) for at in range(1, processes)
    }
    own = asyncio.ensure_future(client.work())
    try:
        # A helper that gives up (a refused key, too many failures) ends the job; one that is done early does not.
        waiting = {own, *helpers.values()}
        while own in waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        # Helpers that are still starting are no longer needed; the others are at their last question.
        paid = {key for at in at_work for key in await helpers[at]}
    finally:
        for task in (own, *helpers.values()):
            task.cancel()
        await asyncio.gather(own, *helpers.values(), return_exceptions=True)
    return {key: reply._replace(cached=reply.cached and key not in paid) for key, reply in own.result().items()}


async def _helper(client: JudgeClient, workers: int, part: tuple[int, int], at_work: set[int]) -> list[str]:
    """Run a helper to its end; returns the keys that it paid for, none if it died: the others do its part.

    part   which of how many processes it is
    """
    config = client.config.model_copy(update={"concurrency": workers})
    job: dict[str, Any] = {
        "config": config.model_dump(mode="json"),
        "ask": client.ask,
        "folder": str(client.cache.folder),
        "part": part,
    }
    job |= {"allowed": client.allowed, "questions": client.questions, "instructions": INSTRUCTIONS}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with suppress(BrokenPipeError, ConnectionResetError):  # it died; its exit status is reported
            process.stdin.write(json.dumps(job).encode() + b"\n")
            await process.stdin.drain()
            if await process.stdout.readline() == b"ready\n":
                await client.give_up(workers)
                at_work.add(part[0])
                process.stdin.write(b"go\n")
                await process.stdin.drain()
        output = await process.stdout.read()
        await process.wait()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode != 0:
        print(
            f"a helper of the judge ended with status {process.returncode}; the remaining ones continue",
            file=sys.stderr,
        )
        return []
    report = json.loads(output)
    if report["error"] is not None:
        raise UserError(report["error"])
    return report["paid"]


def main() -> None:
    """A helper: reads one job as a line of JSON, reports that it is ready, waits for "go", reports the result.

    The answers go to the cache.
    """
    end_with_parent()
    job = json.loads(sys.stdin.readline())
    questions = {key: Question(*parts) for key, parts in job["questions"].items()}
    config = JudgeConfig.model_validate(job["config"])
    INSTRUCTIONS.update(job["instructions"])
    error, replies = None, {}
    with Cache(job["folder"]) as cache:
        client = JudgeClient(questions, config, job["ask"], cache, job["allowed"], lambda _: None, tuple(job["part"]))
        print("ready", flush=True)
        if sys.stdin.readline() != "go\n":
            return
        cache.refresh()  # the caller has left out what is in the table
        for key in questions:
            answer = cache.get(key)
            if answer is not None and parse_label(Reply(answer, cached=True), job["ask"]).reason is not None:
                cache.forget(key)  # of an earlier job, in a journal that others still use
        gc.freeze()
        try:
            replies = asyncio.run(client.work())
        except UserError as refusal:
            error = str(refusal)
    paid = [key for key, reply in replies.items() if reply.answer is not None and not reply.cached]
    print(json.dumps({"paid": paid, "error": error}))


if __name__ == "__main__":
    main()
