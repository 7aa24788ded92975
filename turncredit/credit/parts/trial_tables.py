"""What a small table of turns tells about a method: whether it credits a lone rollout, and whether it is broken."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from turncredit.credit.parts.compose import Method, credit_columns
from turncredit.data.turns import Turns
from turncredit.errors import NoSideTable, UserError, WrongResult


def needs_a_group(method: Method) -> bool:
    """Whether every advantage of `method` is 0 where each group is one rollout, so that nothing could be learned.

    Found by computing it on a small table of such rollouts, in which everything else that a method may compare differs:
    outcomes, lengths, states that occur twice, failed turns, progress. A method that reads side tables, or an agent's
    own columns, may give credit, and is not tested.
    """
    if method.needs:
        return False
    try:
        advantage_N = credit_columns(lone_rollouts(), method)["advantage"]
    except UserError:
        return False
    return not np.any(advantage_N)


def check_result(method: Method) -> None:
    """Raise UserError for a method whose estimator is wrong whatever the turns: no credit comes of it, it asks Turns
    for what they do not have, or it is a plain function that reads a side table, which a job does not give it.

    Found by computing it on a small table. Any other error may be the table's, which has made-up texts, no columns of
    an agent's own and no side tables; then the method passes.
    """
    try:
        credit_columns(small_turns(size=2), Method(method.name, method.summary, method.estimator))
    except WrongResult:
        raise
    except NoSideTable as error:
        if method.estimator.reads is None and error.name not in (*method.needs, "measures"):
            raise UserError(
                f"{method.estimator.name} reads {error.name}, but a function in a file gets turns and measures only; "
                "write a Method that declares what it reads (docs/own_method.md)"
            ) from error
    except UserError as error:
        cause = error.__cause__
        unknown = isinstance(cause, NameError) and not isinstance(cause, UnboundLocalError)
        if unknown or (isinstance(cause, AttributeError) and isinstance(cause.obj, Turns)):
            raise


def lone_rollouts() -> Turns:
    """`small_turns` with groups of one rollout."""
    return small_turns(size=1)


def small_turns(size: int) -> Turns:
    """Four rollouts in groups of `size`, with the columns that the pipeline writes for every agent (SYNTHETIC)."""
    rows = []
    for rollout, length in enumerate((3, 4, 5, 6)):
        won = rollout % 2 == 0
        for turn in range(length):
            last, place = turn == length - 1, turn % 3  # every third turn is back where it was
            rows.append(
                {
                    "group_id": f"task {rollout // size}",
                    "rollout_id": f"rollout {rollout}",
                    "turn": turn,
                    "env": "household",
                    "task_id": f"task {rollout // size}",
                    "goal": "put a mug on the shelf",
                    "observation": f"you are at shelf {place}",
                    "next_observation": f"you are at shelf {(turn + 1) % 3}",
                    "action": f"go to shelf {(turn + 1) % 3}",
                    "response_text": f"go to shelf {(turn + 1) % 3}",
                    "prompt_ids": [1] * (turn + 2),
                    "response_ids": [1, 2],
                    "response_logprobs": [-0.1 * (turn + 1), -0.2],
                    "context_reset": turn == 0,
                    "valid": place != 1,
                    "well_formed": True,
                    "failed": place == 1,
                    "error_reply": place == 1,
                    "reward": float(won and last),
                    "success": won,
                    "score": float(won),
                    "done": last,
                    "progress_before": turn / length,
                    "progress": (turn + 1) / length,
                    "distance_before": length - turn,
                    "distance": length - turn - 1,
                }
            )
    return Turns(pa.Table.from_pylist(rows))
