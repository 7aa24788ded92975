"""verl-agent: `{step}.jsonl`, a line for each turn: `input`, `output`, `score`, `step`, in the order of the update.

That order is the one in which verl balances sequences over ranks, and the lines have no ids: neither rollouts nor
groups can be told. A dump with four more fields can be imported: `uid`, `traj_uid`, `turn` and `rewards`; `anchor_obs`,
which GiGPO compares, becomes `observation` where it is text. The update repeats some lines (`adjust_batch`): a copy
counts once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from turncredit.bridges.importers.base import (
    About,
    Context,
    Format,
    Part,
    Record,
    Rollout,
    Skip,
    Turn,
    each,
    finite,
    id_of,
)
from turncredit.bridges.importers.said import spoken
from turncredit.bridges.importers.verl import step_of
from turncredit.errors import UserError

NEEDED = ("uid", "traj_uid", "turn", "rewards")
#: What to add to verl-agent: to the loop over steps in rollout_loop.py, and before `_dump_generations` is called.
ADD = (
    "in vanilla_multi_turn_loop: batch.non_tensor_batch['turn'] = np.full(len(batch), _step); before the dump: "
    "reward_extra_infos_dict.update({k: batch.non_tensor_batch[k].tolist() for k in "
    "('uid', 'traj_uid', 'turn', 'rewards', 'anchor_obs')})"
)


def read(records: Iterable[Record], context: Context) -> Iterator[Rollout]:
    """The turns of a file, each a part of its rollout. Raises UserError for a dump without ids."""

    def part_of(row: dict[str, Any]) -> Part:
        name, group = id_of(row.get("traj_uid")), id_of(row.get("uid"))
        step = step_of(row)
        return Part(None if name is None else f"{step}{name}", None if group is None else f"{step}{group}")

    def line(where: str, row: dict[str, Any]) -> Iterator[Rollout]:
        missing = [name for name in NEEDED if name not in row]
        if missing:
            raise UserError(
                f"{where}: a dump of verl-agent without {', '.join(missing)}: its lines cannot be put into rollouts. "
                f"Add to verl-agent, {ADD}"
            )
        rollout_id, group_id = part_of(row)
        if rollout_id is None or group_id is None:
            raise Skip(f"{'traj_uid' if rollout_id is None else 'uid'} is null, or no id")
        anchor = row.get("anchor_obs")
        turn: Turn = {
            "turn": row["turn"],
            "observation": anchor if isinstance(anchor, str) else row["input"],
            "reward": finite(row["rewards"]),
            "context_reset": True,
            **spoken(row["output"]),
        }
        yield Rollout(group_id, rollout_id, [turn], where, None, part=True)

    yield from each(records, context.report, line, part_of=part_of)


def _matches(record: Mapping[str, Any]) -> bool:
    return "traj_uid" in record and {"input", "output"} <= set(record)


FORMAT = Format(
    "verl-agent",
    _matches,
    read,
    about=About(
        files="{step}.jsonl with uid, traj_uid, turn and rewards, as docs/integrations.md has it written",
        group="uid",
        turns="lines, by turn",
        reward="rewards of each turn",
        checked="code of public forks",
    ),
)
