"""verl-agent: `{step}.jsonl`, a line for each turn: `input`, `output`, `score`, `step`, in the order of the update.

That order is the one in which verl balances sequences over ranks, and the lines have no ids: neither rollouts nor
groups can be told. A dump with four more fields can be imported: `uid`, `traj_uid`, `turn` and `rewards`; `anchor_obs`,
which GiGPO compares, becomes `observation` where it is text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from turncredit.errors import UserError
from turncredit.importers.base import Format, Report, Rollout, Skip, Source, Turn, each, finite
from turncredit.importers.lines import json_lines
from turncredit.importers.verl import step_of

NEEDED = ("uid", "traj_uid", "turn", "rewards")
#: What to add to verl-agent: to the loop over steps in rollout_loop.py, and before `_dump_generations` is called.
ADD = (
    "in vanilla_multi_turn_loop: batch.non_tensor_batch['turn'] = np.full(len(batch), _step); before the dump: "
    "reward_extra_infos_dict.update({k: batch.non_tensor_batch[k].tolist() for k in "
    "('uid', 'traj_uid', 'turn', 'rewards', 'anchor_obs')})"
)


def read(source: Source, report: Report, mapping: Mapping[str, str]) -> Iterator[Rollout]:
    """The turns of a file, each a part of its rollout. Raises UserError for a dump without ids."""
    del mapping

    def told(row: dict[str, Any]) -> str | None:
        return f"{step_of(row)}{row['traj_uid']}" if isinstance(row.get("traj_uid"), str) else None

    def line(where: str, row: dict[str, Any]) -> Iterator[Rollout]:
        missing = [name for name in NEEDED if name not in row]
        if missing:
            raise UserError(
                f"{where}: a dump of verl-agent without {', '.join(missing)}: its lines cannot be put into rollouts. "
                f"Add to verl-agent, {ADD}"
            )
        rollout_id = told(row)
        if rollout_id is None or not isinstance(row["uid"], str):
            raise Skip(f"{'traj_uid' if rollout_id is None else 'uid'} is null or not text")
        anchor = row.get("anchor_obs")
        turn: Turn = {
            "turn": row["turn"],
            "observation": anchor if isinstance(anchor, str) else row["input"],
            "response_text": row["output"],
            "action": row["output"],
            "reward": finite(row["rewards"]),
            "context_reset": True,
        }
        yield Rollout(f"{step_of(row)}{row['uid']}", rollout_id, [turn], where, None, part=True)

    yield from each(json_lines(source.path, report), report, line, part_of=told)


def _fits(path: Path, record: Mapping[str, Any]) -> bool:
    del path
    return "traj_uid" in record and {"input", "output"} <= set(record)


FORMAT = Format("verl-agent", ".jsonl", _fits, read)
