"""Rollouts as padded tensors for the learned credit models, and how often each one is drawn.

A replay holds the rollouts of all rounds so far. Nothing is trimmed: a rollout that is `a` rounds older than the newest
has the weight 0.5^(a / half_life).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import torch

from turncredit.data import tables
from turncredit.data.turns import SideTable, Turns
from turncredit.errors import UserError

PROGRESS = tables.MEASURES["progress"]
#: the columns of the turns that are read
COLUMNS = (*tables.KEYS, "reward")
#: those that a kind which `reads_pairs` needs as well
PAIR = ("goal", "observation", "action")


@dataclass(frozen=True)
class Rollouts:
    """R rollouts of at most T turns, zeros after a rollout's last turn.

    hidden (R, T, D) float16   the policy's hidden state at each turn
    present (R, T) bool        whether the rollout has this turn
    reward (R, T) float32      the environment's reward
    goal (R, D) float16        the goal's vector, if the hiddens have one
    gain (R, T) float32        change of the environment's progress over the turn, if it is known
    old, target (R, T) float32 a critic's value when the turn was credited; what a value should be
    pair (R, T) int64          the same number for the same goal, history and action (`pairs_N`)
    """

    hidden: torch.Tensor
    present: torch.Tensor
    reward: torch.Tensor
    goal: torch.Tensor | None = None
    gain: torch.Tensor | None = None
    old: torch.Tensor | None = None
    target: torch.Tensor | None = None
    pair: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.hidden)

    @property
    def returns(self) -> torch.Tensor:
        """The undiscounted sum of rewards (R)."""
        return self.reward.sum(1)

    @property
    def lengths(self) -> torch.Tensor:
        """The number of turns (R)."""
        return self.present.sum(1)

    @property
    def last(self) -> torch.Tensor:
        """Whether a turn is its rollout's last (R, T)."""
        return torch.arange(self.present.shape[1], device=self.present.device) == self.lengths[:, None] - 1

    def take(self, index: np.ndarray | torch.Tensor, where: torch.device) -> Rollouts:
        """Some of the rollouts, as many turns wide as the longest of them, in float32 on `where`."""
        index = torch.as_tensor(index)
        longest = int(self.present[index].sum(1).max())

        def part(name: str) -> torch.Tensor | None:
            tensor = getattr(self, name)
            if tensor is None:
                return None
            chosen = tensor[index] if name == "goal" else tensor[index, :longest]
            return (chosen if name in {"present", "pair"} else chosen.float()).to(where)

        return Rollouts(**{field.name: part(field.name) for field in fields(self)})

    def cut(self, turns: int) -> Rollouts:
        """Only the rollouts that have at least `turns` turns, and of them only the first `turns`.

        The return stays that of the whole rollout: it goes to the last turn that is left.
        """
        keep = self.lengths >= turns
        returns = self.returns[keep]
        shorter = {
            name: tensor[keep] if name == "goal" else tensor[keep, :turns]
            for name in (field.name for field in fields(self))
            if (tensor := getattr(self, name)) is not None
        }
        reward = shorter["reward"].clone()
        reward[:, -1] += returns - reward.sum(1)
        return replace(self, **{**shorter, "reward": reward})


def load(
    turns: pa.Table,
    hiddens: pa.Table,
    credits: pa.Table | None = None,
    measures: pa.Table | None = None,
    where: str = "turns",
    *,
    pairs: bool = False,
) -> tuple[Turns, Rollouts]:
    """The rollouts of one round: its turns (sorted by group, rollout, turn, as `Rollouts` are) and their tensors.

    `credits` is the round's credits table, for a critic: its columns `value` and `value_target` become `old` and
    `target`. `measures` are those of these turns, for a kind that learns from progress. With `pairs`, the columns
    `PAIR` of the turns are read too. Raises UserError, naming `where`, where a table lacks a column or a turn.
    """
    own = [name for name in PROGRESS if name in turns.column_names]
    table = turns.select([*COLUMNS, *(PAIR if pairs else ()), *own])
    given = {"hiddens": hiddens, "credits": credits, "measures": measures}
    side = {name: part for name, part in given.items() if part is not None}
    view = Turns(table, side, where=where)
    states = view.side["hiddens"]
    hidden_ND = _vectors(states.table, "hidden")[states.row_N]
    if len(bad := np.flatnonzero(~np.isfinite(hidden_ND).all(axis=1))):
        raise UserError(
            f"{where}: the hidden state of {view.row_name(int(bad[0]))} is not finite; the table of hiddens, or the "
            "policy that made it, is damaged; delete it and run again"
        )
    flat = {"reward": view.reward_N}
    if all(view.has(name) for name in PROGRESS):
        before, after = (view.numbers(name, "a credit model") for name in PROGRESS)
        flat["gain"] = after - before
    if credits is not None:
        judged = view.side["credits"]
        flat["old"] = judged.numbers("value", "a critic")
        flat["target"] = judged.numbers("value_target", "a critic")
    shape = (view.rollouts, int(view.length_R.max()))
    at = (torch.from_numpy(view.rollout_N), torch.from_numpy(view.turn_N.astype(np.int64)))

    def padded(x_N: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
        out = torch.zeros((*shape, *x_N.shape[1:]), dtype=dtype)
        out[at] = torch.from_numpy(np.ascontiguousarray(x_N)).to(dtype)
        return out

    return view, Rollouts(
        hidden=padded(hidden_ND, torch.float16),
        present=padded(np.ones(view.n), torch.bool),
        goal=_goals(view, states),
        **{name: padded(x_N, torch.float32) for name, x_N in flat.items()},
        pair=padded(pairs_N(view), torch.int64) if pairs else None,
    )


def pairs_N(view: Turns) -> np.ndarray:
    """A number (N) int64 for each turn's state and action: equal numbers, equal pairs.

    The state is the goal with all observations and actions up to the turn's observation, so a pair recurs where
    rollouts of one task begin alike. Numbers agree between tables; collisions (64 bits) are ignored.
    """
    goal, observation, action = (view.column(name, "a credit model").tolist() for name in PAIR)
    out_N = np.empty(view.n, dtype=np.int64)
    state = b""
    for row in range(view.n):
        if view.turn_N[row] == 0:
            state = _digest(b"", goal[row])
        state = _digest(_digest(state, observation[row]), action[row])
        out_N[row] = int.from_bytes(state, "big", signed=True)
    return out_N


def _digest(state: bytes, text: str) -> bytes:
    return blake2b(state + text.encode(), digest_size=8).digest()


def join(parts: Sequence[Rollouts]) -> Rollouts:
    """Rollouts of several rounds in one; a field that one of them lacks is left out."""
    longest = max(part.present.shape[1] for part in parts)

    def all_of(name: str) -> torch.Tensor | None:
        tensors = [getattr(part, name) for part in parts]
        if any(tensor is None for tensor in tensors):
            return None
        return torch.cat([tensor if name == "goal" else _widened(tensor, longest) for tensor in tensors])

    return Rollouts(**{field.name: all_of(field.name) for field in fields(Rollouts)})


def recency(sizes: Sequence[int], half_life: float) -> np.ndarray:
    """The weight of each rollout (R): 0.5^(age / half_life), age in rounds, 0 for the newest.

    `sizes` are the numbers of rollouts of consecutive rounds, oldest first. Source: HAS, table 4 (half-life 4 rounds).
    """
    ages = np.arange(len(sizes))[::-1]
    return np.repeat(0.5 ** (ages / half_life), sizes)


def epochs(weight_R: np.ndarray, count: int, batch: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Minibatches (indices) of `count` passes; in each, a rollout is visited once with its weight as probability.

    So the newest round is seen in full at every pass, and a pass costs the sum of the weights, which stays bounded (6.3
    rounds' worth at half-life 4) while the replay grows. The paper weights minibatches by recency without saying how;
    this is our choice.
    """
    for _ in range(count):
        visited = np.flatnonzero(rng.random(len(weight_R)) < weight_R)
        order = rng.permutation(visited)
        for start in range(0, len(order), batch):
            yield order[start : start + batch]


def draws(weight_R: np.ndarray, count: int, batch: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """`count` minibatches (indices), each drawn with replacement in proportion to the weights."""
    share_R = weight_R / weight_R.sum()
    for _ in range(count):
        yield rng.choice(len(share_R), size=batch, p=share_R)


def _vectors(table: pa.Table, name: str) -> np.ndarray:
    """The vectors of a list column without its nulls (M, D). Raises UserError where their lengths differ."""
    column = table.column(name).drop_null().combine_chunks()
    flat = column.flatten().to_numpy(zero_copy_only=False)
    rows = len(column)
    sizes = np.diff(column.offsets.to_numpy())
    if rows == 0 or sizes.min() != sizes.max():
        raise UserError(f"hiddens: the vectors of column '{name}' differ in length; delete the table and run again")
    return flat.reshape(rows, -1)


def _goals(view: Turns, states: SideTable) -> torch.Tensor | None:
    """The goal vector of each rollout (R, D), from the row of its first turn."""
    if not states.has("goal"):
        return None
    given = states.table.column("goal").is_valid().to_numpy()
    row_R = states.row_N[view.first_R]
    if not given[row_R].all():
        raise UserError(f"{states.name}: turn 0 of a rollout has no goal vector; delete the table and run again")
    place = np.cumsum(given) - 1
    return torch.from_numpy(np.ascontiguousarray(_vectors(states.table, "goal")[place[row_R]]))


def _widened(tensor: torch.Tensor, turns: int) -> torch.Tensor:
    out = tensor.new_zeros((tensor.shape[0], turns, *tensor.shape[2:]))
    out[:, : tensor.shape[1]] = tensor
    return out
