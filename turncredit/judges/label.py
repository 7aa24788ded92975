"""Labels for a table of turns, from the rule judge or a language model."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from turncredit.config.judge import Ask, JudgeConfig, judge_name
from turncredit.data import tables
from turncredit.errors import UserError
from turncredit.judges.cache import Cache, Question
from turncredit.judges.rubric import Label, prompt_version, rubric_of
from turncredit.judges.window import Rollouts, read_rollouts, render, render_logs, windows

#: The rule judge's number for a role, on each question's own scale. Our choice.
RULE_SCORES: dict[Ask, dict[str, float]] = {
    "role": {"D": 1.0, "E": 0.5, "N": 0.0, "R": -0.5},
    "progress": {"D": 1.0, "E": 0.5, "N": 0.0, "R": -0.5},
    "score": {"D": 1.0, "E": 0.5, "N": 0.25, "R": 0.0},
}


def label_turns(
    turns: Any,
    config: JudgeConfig,
    *,
    ask: Ask = "role",
    cache: str | Path | None = None,
    where: str = "turns",
    progress: Callable[[int], None] = lambda _: None,
) -> pa.Table:
    """A "labels" table for `turns` (Arrow, pandas or a mapping of columns), one row for each of its rows, in order.

    Reads `group_id, rollout_id, turn, env, goal, action, next_observation` and nothing else (for `decisive_step` also
    `agent, step`, if they are there). A language model answers
    `ask` with a role or a score; the rule judge gives both. `cache` is the folder of the language model's answers.
    A label that could not be obtained has a null role and score, and a reason. `tokens_*` and `seconds` are the
    answer's cost when it was requested; `cached` marks rows that did not incur it. `decisive_step` is asked once for a
    rollout: its score is 1 on the step that the model names, and 0 on the others.

    Raises UserError for a table or a judge that cannot be used, and when more than `config.max_missing` of the labels
    are missing.
    """
    rollouts = read_rollouts(turns, where)
    if config.kind == "rule" and ask not in RULE_SCORES:
        raise UserError(f"the rule judge has no answer to '{ask}'; use an LLM judge (--judge llm)")
    if config.kind == "rule":
        columns = _by_rule(rollouts, config, ask)
    elif cache is None:
        raise UserError("an LLM judge needs a folder for its answers, so that none is requested twice")
    else:
        columns = _by_model(rollouts, config, ask, Path(cache), progress)
    # The columns are in sorted order; the table goes back to the order of its input.
    place = np.empty(len(rollouts.order_N), dtype=np.int64)
    place[rollouts.order_N] = np.arange(len(place))
    table = pa.table({"judge": [judge_name(config)] * len(place), **columns}).take(pa.array(place))
    for at, key in enumerate(tables.KEYS):
        kind = tables.schema("labels").field(key).type
        table = table.add_column(at, key, rollouts.keys.column(key).cast(kind))
    labels = tables.conform(table, "labels", where)
    check_missing(labels, config, where)
    return labels


def prompt_hashes(turns: Any, config: JudgeConfig, ask: Ask, where: str = "turns") -> list[str]:
    """The `prompt_hash` of each turn's label, in the order of `turns`, computed without a request."""
    rollouts = read_rollouts(turns, where)
    if config.kind == "rule":
        hash_N = _by_rule(rollouts, config, ask)["prompt_hash"]
    else:
        hash_N = [key[:16] for key in _questions(rollouts, config, ask)[0]]
    out = [""] * len(hash_N)
    for row, prompt_hash in zip(rollouts.order_N.tolist(), hash_N, strict=True):
        out[row] = prompt_hash
    return out


def check_missing(labels: pa.Table, config: JudgeConfig, where: str) -> None:
    """Raise UserError when more than `max_missing` of the labels are missing, with the most common reason."""
    reasons = [reason for reason in labels.column("reason").to_pylist() if reason is not None]
    share = len(reasons) / max(labels.num_rows, 1)
    if share > config.max_missing:
        reason, count = Counter(reasons).most_common(1)[0]
        raise UserError(
            f"{where}: {len(reasons)} of {labels.num_rows} labels are missing ({share:.1%}; max_missing is "
            f"{config.max_missing:.1%}); {count} times: {reason}"
        )


def costs(labels: pa.Table) -> dict[str, float]:
    """The cost of a "labels" table: labels, missing ones, share from the cache, and tokens and seconds paid for."""
    cached = np.array(labels.column("cached").to_pylist(), dtype=bool)
    paid = {
        name: float(sum(x or 0 for x, free in zip(labels.column(name).to_pylist(), cached, strict=True) if not free))
        for name in ("tokens_in", "tokens_out", "seconds")
    }
    missing = labels.num_rows - labels.column("reason").null_count
    return {"labels": float(labels.num_rows), "missing": float(missing), "cached": float(cached.sum()), **paid}


def _by_rule(rollouts: Rollouts, config: JudgeConfig, ask: Ask) -> dict[str, Any]:
    from turncredit.judges.rule import judge_rollouts

    scores = RULE_SCORES[ask]
    roles, evidence, hashes = judge_rollouts(rollouts, config.window)
    rows = len(roles)
    return {
        "role": roles,
        "score": [scores[role] for role in roles],
        "evidence": evidence,
        "reason": pa.nulls(rows, pa.string()),
        "prompt_hash": hashes,
        "cached": [False] * rows,
        "tokens_in": pa.nulls(rows, pa.int32()),
        "tokens_out": pa.nulls(rows, pa.int32()),
        "seconds": pa.nulls(rows, pa.float64()),
    }


def _by_model(
    rollouts: Rollouts, config: JudgeConfig, ask: Ask, folder: Path, progress: Callable[[int], None]
) -> dict[str, Any]:
    from turncredit.judges.client import Reply, ask_all, parse_label

    key_N, questions = _questions(rollouts, config, ask)
    allowed = math.floor(config.max_missing * len(key_N))
    with Cache(folder) as cache:
        replies: dict[str, Reply] = ask_all(questions, config, ask, cache, Counter(key_N), allowed, progress)
    labels: dict[str, Label] = {key: parse_label(reply, ask) for key, reply in replies.items()}
    label_N = [labels[key] for key in key_N]
    if ask == "decisive_step":
        label_N = _on_turns(label_N, rollouts)
    answers = [replies[key].answer for key in key_N]
    # A window that occurs in several rollouts is requested once: the first row pays, the others read the cache.
    first_row = {key: row for row, key in reversed(list(enumerate(key_N)))}
    first_N = [first_row[key] == row for row, key in enumerate(key_N)]
    return {
        **{name: [getattr(label, name) for label in label_N] for name in Label._fields},
        "prompt_hash": [key[:16] for key in key_N],
        "cached": [
            replies[key].answer is not None and (replies[key].cached or not first)
            for key, first in zip(key_N, first_N, strict=True)
        ],
        **{
            name: [getattr(answer, name) if answer else None for answer in answers]
            for name in ("tokens_in", "tokens_out", "seconds")
        },
    }


def _on_turns(label_N: list[Label], rollouts: Rollouts) -> list[Label]:
    """The answers for rollouts as labels of their turns: 1 on the named step, 0 on the others."""
    out = []
    for first, length in zip(rollouts.first_R.tolist(), rollouts.length_R.tolist(), strict=True):
        answer, steps = label_N[first], rollouts.step_N[first : first + length]
        if answer.score is not None and answer.score not in steps:
            answer = Label(reason=f"the answer names step {answer.score:.0f}, which no agent wrote")
        out += [
            answer if answer.score is None else answer._replace(score=float(step == answer.score)) for step in steps
        ]
    return out


def _asked(rollouts: Rollouts, config: JudgeConfig, ask: Ask) -> Iterator[tuple[str, str]]:
    """For each turn the environment, and what the model is shown."""
    if ask == "decisive_step":
        yield from render_logs(rollouts)
        return
    for window in windows(rollouts, config.window):
        yield window.env, render(window)


def _questions(rollouts: Rollouts, config: JudgeConfig, ask: Ask) -> tuple[list[str], dict[str, Any]]:
    """The cache's key for each turn, and the question behind each distinct key."""
    keys = {"temperature", "max_tokens", "thinking", "structured"}
    keys |= {"chat_template"} if config.chat_template else set()
    decoding = json.dumps(config.model_dump(include=keys), sort_keys=True)
    key_N, questions = [], {}
    for env, shown in _asked(rollouts, config, ask):
        version = prompt_version(ask, rubric_of(env), config.evidence)
        question = Question(config.model, ask, version, shown, decoding)
        key = question.key()
        key_N.append(key)
        questions.setdefault(key, question)
    return key_N, questions
