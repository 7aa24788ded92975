"""TRL: `completions/completions_{step}.parquet` of GRPOTrainer with `log_completions`, a row for each rollout.

`step`, `prompt`, `completion` (text or messages), a column for each reward function, whatever was logged with
`log_extra`, `advantage`. Source: trl 1.16.0, `GRPOTrainer.log`. The file names neither groups nor which columns are
rewards: rows that follow each other with the same prompt are a group, and `--map reward=NAME[,NAME]` names the reward
columns, unless there is only one more column than these. A reward function that gave None for a row does not count
there, as in TRL, which sums the others (`GRPOTrainer._calculate_rewards`, `nansum`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from turncredit.bridges.importers.base import About, Context, Format, Record, Rollout, Skip, Turn, each, finite, outcome
from turncredit.bridges.importers.messages import turns_of
from turncredit.bridges.importers.parts import flat
from turncredit.bridges.importers.said import spoken
from turncredit.errors import UserError, nearest

OTHERS = ("step", "prompt", "completion", "advantage")


def read(records: Iterable[Record], context: Context) -> Iterator[Rollout]:
    """The rollouts of a file. Raises UserError where the columns do not tell which are rewards."""
    rewards: list[str] = []
    group, prompt = -1, None
    report, label = context.report, context.source.label

    def row(where: str, row: dict[str, Any]) -> Iterator[Rollout]:
        nonlocal group, prompt
        if not rewards:
            rewards.extend(_rewards(where.rpartition(":")[0], list(row), context.options.mapping.get("reward")))
        key = json.dumps([row["step"], row["prompt"]], default=str)
        group, prompt = group + (key != prompt), key
        turns = _turns(row["prompt"], row["completion"], context, where)
        scores = {name: row.get(name) for name in rewards}
        given = [finite(score, f"reward '{name}'") for name, score in scores.items() if score is not None]
        outcome(turns, sum(given) if given else None)
        if given and len(given) < len(scores):
            missing = next(name for name, score in scores.items() if score is None)
            report.note(f"the reward '{missing}' is null: the reward is the sum of the others, as in TRL")
        report.note(f"the reward is {' + '.join(rewards)}; rows with the same prompt in a row are a group")
        name = f"{label}/{group}"
        yield Rollout(name, f"{name}/{where.rpartition(':')[2]}", turns, where, None, {"task_id": name})

    yield from each(records, report, row)


def _turns(prompt: Any, completion: Any, context: Context, where: str) -> list[Turn]:
    if isinstance(completion, str):
        text = flat(prompt, context.report.note) if isinstance(prompt, str) else _texts(prompt, context)
        return [{"observation": text, "next_observation": "", **spoken(completion)}]
    asked = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    policys = {id(message) for message in completion if isinstance(message, dict)}
    # Whoever wrote the messages of the prompt, the policy did not write them now.
    return turns_of(
        asked + list(completion),
        context,
        where,
        lambda message: id(message) in policys and message.get("role") == "assistant",
    )


def _texts(prompt: Any, context: Context) -> str:
    if not isinstance(prompt, list) or not all(isinstance(message, dict) for message in prompt):
        raise Skip("prompt is neither text nor messages")
    return "\n".join(flat(message.get("content"), context.report.note) for message in prompt)


def _rewards(path: str, names: list[str], reward: str | None) -> list[str]:
    others = [name for name in names if name not in OTHERS]
    if reward is None:
        if len(others) == 1:
            return others
        raise UserError(
            f"{path}: which columns are rewards? Name one, or several to be summed, of {', '.join(others) or 'none'} "
            "with --map reward=NAME[,NAME]"
        )
    for name in reward.split(","):
        if name not in names:
            raise UserError(
                f"{path}: --map reward={reward}: there is no column '{name}'{nearest(name, others)}; "
                f"choose one of {', '.join(others) or 'none'}"
            )
    return reward.split(",")


def _matches(record: Mapping[str, Any]) -> bool:
    return {"prompt", "completion", "advantage"} <= set(record) and "step" in record


FORMAT = Format(
    "trl",
    _matches,
    read,
    takes=("reward",),
    about=About(
        files="completions_*.parquet",
        group="rows in a row with one prompt",
        turns="messages of the assistant",
        reward="the columns of --map reward=A,B",
        checked="code of trl 1.16.0",
    ),
)
