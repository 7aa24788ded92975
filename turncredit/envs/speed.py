"""What the benchmarks of several environments measure in the same way."""

from __future__ import annotations

import time
from typing import Any

from turncredit.envs.protocol import Expert, HasSnapshot

_RESTORES = 20_000


def snapshot_restore_us(env: HasSnapshot) -> float:
    """Microseconds of CPU time per snapshot and restore, the mean of 20,000."""
    start = time.process_time()
    for _ in range(_RESTORES):
        env.restore(env.snapshot())
    return 1e6 * (time.process_time() - start) / _RESTORES


def by_expert(env: Any, expert: Expert) -> tuple[bool, int]:
    """Whether a rollout that the expert plays succeeds, and after how many actions."""
    actions = 0
    expert.observe(env.reset())
    while True:
        step = env.step(expert.act())
        actions += 1
        if step.done:
            return step.success, actions
        expert.observe(step.observation)
