"""An example of your own method: flat GRPO plus a bonus for turns whose observation is new in the rollout.

Run it beside flat GRPO:   turncredit run --configfile config/novelty.yaml
Or on any table of turns:  turncredit credit --method examples/novelty.py --turns TURNS --out CREDITS
"""

from __future__ import annotations

import numpy as np

from turncredit.credit.flat_grpo import flat_grpo
from turncredit.data.turns import Turns


def novelty(turns: Turns, *, weight: float = 0.2) -> dict[str, np.ndarray]:
    """A = A_grpo + weight (new - mean of new over the rollout); `new` is 1 where the next observation is the first
    of its text in the rollout. Every array has one number for each turn (N), sorted by rollout and turn.
    """
    grpo_N = flat_grpo(turns)["advantage"]
    text_N, texts = turns.texts("next_observation")
    _, first = np.unique(turns.rollout_N * len(texts) + text_N, return_index=True)
    new_N = np.zeros(turns.n)
    new_N[first] = 1.0
    centred_N = new_N - turns.mean_R(new_N)[turns.rollout_N]
    return {"advantage_rollout": grpo_N, "novelty": new_N, "advantage": grpo_N + weight * centred_N}
