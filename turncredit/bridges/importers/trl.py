"""TRL: `completions/completions_{step}.parquet` of GRPOTrainer with `log_completions`, a row for each rollout.

`step`, `prompt`, `completion` (text or messages), a column for each reward function, whatever was logged with
`log_extra`, `advantage`. Source: trl 1.16.0, `GRPOTrainer.log`. The file names neither groups nor which columns are
rewards: rows that follow each other with the same prompt are a group, and `--map reward=NAME[,NAME]` names the reward
columns, unless there is only one more column than these.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from turncredit.bridges.importers.base import Format, Report, Rollout, Source, Turn, each, finite, outcome
from turncredit.bridges.importers.messages import text_of, turns_of
from turncredit.data.json_lines import parquet_rows
from turncredit.errors import UserError, nearest

OTHERS = ("step", "prompt", "completion", "advantage")


def read(source: Source, report: Report, mapping: Mapping[str, str]) -> Iterator[Rollout]:
    """The rollouts of a file. Raises UserError where the columns do not tell which are rewards."""
    rewards = _rewards(source.path, mapping.get("reward"))
    group, prompt = -1, None

    def row(where: str, row: dict[str, Any]) -> Iterator[Rollout]:
        nonlocal group, prompt
        key = json.dumps([row["step"], row["prompt"]], default=str)
        group, prompt = group + (key != prompt), key
        turns = _turns(row["prompt"], row["completion"])
        outcome(turns, sum(finite(row[name], f"reward '{name}'") for name in rewards))
        report.note(f"the reward is {' + '.join(rewards)}; rows with the same prompt in a row are a group")
        name = f"{source.label}/{group}"
        yield Rollout(name, f"{name}/{where.rpartition(':')[2]}", turns, where, None, {"task_id": name})

    yield from each(parquet_rows(source.path), report, row)


def _turns(prompt: Any, completion: Any) -> list[Turn]:
    if isinstance(completion, str):
        text = prompt if isinstance(prompt, str) else "\n".join(text_of(part.get("content")) for part in prompt)
        return [{"observation": text, "response_text": completion, "action": completion, "next_observation": ""}]
    asked = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    for message in asked:  # whoever wrote them, the policy did not write them now
        message["role"] = "user"
    return turns_of(asked + list(completion))


def _rewards(path: Path, reward: str | None) -> list[str]:
    try:
        names = pq.read_schema(path).names
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{path}: not a readable Parquet file ({str(error).splitlines()[0]})") from None
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
            raise UserError(f"{path}: --map reward={reward}: there is no column '{name}'{nearest(name, others)}")
    return reward.split(",")


def _fits(path: Path, record: Mapping[str, Any]) -> bool:
    del path
    return {"prompt", "completion", "advantage"} <= set(record)


FORMAT = Format("trl", ".parquet", _fits, read, takes=("reward",))
