"""verl: the advantage estimator `turncredit`, a plug-in.

    algorithm.adv_estimator=turncredit +algorithm.turncredit.method=step_grpo +algorithm.turncredit.params.gamma=0.9

verl loads it by the entry point group `verl.plugins`. It gives an estimator the rewards, the mask and the uid of each
sequence: a sequence is a rollout, the runs of the mask are its turns, and a turn's reward is that of its tokens. That
is enough for methods that read rewards alone. Other methods need data that verl does not pass: the texts, or which
sequences belong to one rollout. Provide it with `rows(...)`, in a trainer of your own:

    known = data.non_tensor_batch                # sequences are turns, as in verl-agent
    ids = {"rollout_id": known["traj_uid"], "turn": known["turn"]}
    with rows(**ids, reward=known["rewards"], observation=known["anchor_obs"]):
        data = compute_advantage(data, ...)
    with rows(keys=batch.keys):                  # {uid}_{session}_{index}, as in PPOTrainer of verl 0.9
        data = compute_advantage_for_multi_trajectories(data, ...)

Conventions are verl's (`preset="verl"`) unless `algorithm.turncredit.preset` says otherwise; `flat_grpo` is then verl's
GRPO. A sequence without a sampled token is left out of its group, and so is one that `rollout_correction` rejects;
its modes that reject single tokens are refused, since they would cut turns in two. Tested with verl 0.9.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf
from verl.trainer.ppo.core_algos import register_adv_est

from turncredit.bridges.spans import method_of, spans
from turncredit.credit.parts.compose import Method, compute
from turncredit.data import tables
from turncredit.data.turns import Turns
from turncredit.errors import UserError, nearest

SESSION = re.compile(r"(.+_\d+)_(\d+)")
#: of rows(): whether a sequence is the last one of its session
FINAL = "is_final"
SETTINGS = ("method", "params", "preset")
_rows: ContextVar[Mapping[str, Sequence[Any]] | None] = ContextVar("rows", default=None)


@contextmanager
def rows(*, keys: Sequence[str] | None = None, **columns: Sequence[Any]) -> Iterator[None]:
    """Say, for the estimator within the block, what is known of each sequence of the batch.

    keys      `{uid}_{session}_{index}` of each: sequences of a session are one rollout, in the order of their index,
              and its reward is that of the last one, as in verl's `compute_advantage_for_multi_trajectories`
    columns   one value for each sequence: `rollout_id` and `turn` (sequences with one rollout_id are one rollout, in
              the order of `turn`, which may have gaps), and, for sequences of one turn each, `reward` and what methods
              read (`observation`)

    Raises UserError for keys of another form or beside what they say, and for `turn` or `reward` without `rollout_id`.
    """
    about: dict[str, Sequence[Any]] = {name: _plain(values) for name, values in columns.items()}
    if keys is not None:
        for name in ("rollout_id", "turn"):
            if name in columns:
                raise UserError(f"verl: rows({name}=...) repeats the keys, which give it already; leave it out")
        matches = [SESSION.fullmatch(key) for key in keys]
        if None in matches:
            raise UserError(
                f"verl: the key {keys[matches.index(None)]!r} is not {{uid}}_{{session}}_{{index}}; "
                "write keys in this form"
            )
        about["rollout_id"] = [key[1] for key in matches if key]
        about["turn"] = [int(key[2]) for key in matches if key]
        last = dict(sorted(zip(about["rollout_id"], about["turn"], strict=True)))
        about[FINAL] = [last[rollout] == turn for rollout, turn in zip(about["rollout_id"], about["turn"], strict=True)]
    for name in ("turn", "reward"):
        if name in about and "rollout_id" not in about:
            raise UserError(f"verl: rows({name}=...) needs rollout_id=..., beside {', '.join(about)}")
    token = _rows.set(about)
    try:
        yield
    finally:
        _rows.reset(token)


def _plain(values: Sequence[Any]) -> list[Any]:
    """The values, of a list, an array or a tensor, as objects of Python: equal tensors have different hashes."""
    return [value.tolist() if hasattr(value, "tolist") else value for value in values]


@register_adv_est("turncredit")
def advantages(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: np.ndarray,
    config: Any = None,
    **others: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(B, L) advantages, twice: verl's estimators return advantages and returns, and GRPO's are the same.

    token_level_rewards, response_mask   (B, L); the mask is false for tokens of prompts and the environment
    index                                (B): the uid of each sequence, which is its group
    config                               verl's `algorithm`, with `turncredit` in it

    A sequence that repeats another (`_copies`) counts once and gets the same advantages. Raises UserError for a method
    that reads what it is not given, for a column of `rows` that neither the method reads nor a table of turns has,
    for two different sequences that are the same turn of a rollout, and for settings of `_check_algorithm`.
    """
    del others
    settings = _settings(config or {})
    about = dict(_rows.get() or {})
    where = "algorithm.turncredit.method"
    name, params = str(settings.get("method", "flat_grpo")), dict(settings.get("params") or {})
    method = method_of(name, params, settings.get("preset", "verl"), where, list(about))
    _check_algorithm(config or {}, method, params)
    known = {"rollout_id", "turn", "reward", FINAL, *method.reads, *tables.schema("turns").names}
    for column in about:
        if column not in known and method.declares_reads:
            raise UserError(f"verl: rows({column}=...): {method.name} reads no such column{nearest(column, known)}")
    for column, values in about.items():
        if len(values) != len(index):
            raise UserError(
                f"verl: rows({column}=...) has {len(values)} values for {len(index)} sequences; give one for each"
            )
    rewards_BL, mask_BL = token_level_rewards.double().cpu().numpy(), response_mask.bool().cpu().numpy()
    kept_B, source_B = _copies(rewards_BL, mask_BL, index, about)
    about = {column: [values[row] for row in kept_B] for column, values in about.items()}
    advantage_BL = torch.from_numpy(
        _credit(rewards_BL[kept_B], mask_BL[kept_B], index[kept_B], about, method)[source_B]
    )
    advantage_BL = advantage_BL.to(device=token_level_rewards.device, dtype=torch.float32)
    return advantage_BL, advantage_BL


def _settings(algorithm: Mapping[str, Any]) -> dict[str, Any]:
    """`algorithm.turncredit` as dicts and lists. Raises UserError for anything else."""
    given = algorithm.get("turncredit")
    settings = OmegaConf.to_container(given, resolve=True) if OmegaConf.is_config(given) else given or {}
    if not isinstance(settings, Mapping):
        raise UserError(f"algorithm.turncredit={settings}: not settings; write algorithm.turncredit.method={settings}")
    for key in settings:
        if key not in SETTINGS:
            raise UserError(
                f"algorithm.turncredit.{key}: no such setting{nearest(key, SETTINGS)}; "
                f"choose one of {', '.join(SETTINGS)}"
            )
    return dict(settings)


def _check_algorithm(algorithm: Mapping[str, Any], method: Method, params: Mapping[str, Any]) -> None:
    """Raise UserError for settings of verl's own that would have no effect, or that cut turns into pieces."""
    scales = any("norm" in part.settable() for part in method.parts)
    if not algorithm.get("norm_adv_by_std_in_grpo", True) and scales and "norm" not in params:
        raise UserError(
            f"algorithm.norm_adv_by_std_in_grpo=false would have no effect on {method.name}; set "
            "algorithm.turncredit.params.norm to mean, or to mean_std"
        )
    correction = algorithm.get("rollout_correction") or {}
    rejects = [mode.strip() for mode in str(correction.get("rollout_rs") or "").split(",")]
    token = next((mode for mode in rejects if mode.startswith("token")), None)
    if token and not correction.get("bypass_mode"):
        raise UserError(
            f"algorithm.rollout_correction.rollout_rs: {token} takes single tokens out of the mask, by which turns "
            "are told, so that one turn would count as several; choose a mode of sequences (seq_mean_k1), or rollout_is"
        )


def _copies(
    rewards_BL: np.ndarray, mask_BL: np.ndarray, index: np.ndarray, about: Mapping[str, Sequence[Any]]
) -> tuple[np.ndarray, np.ndarray]:
    """The sequences without copies, and for each sequence (B) which of these it is or copies.

    Trainers repeat sequences where their number has to be a multiple of the GPUs' (verl-agent's `adjust_batch`). A copy
    is the same turn of the same rollout in the same group, in whose rewards, mask and columns nothing differs. Raises
    UserError for two sequences that are the same turn and differ, or whose order is not said.
    """
    if "rollout_id" not in about:
        return (everything := np.arange(len(mask_BL))), everything
    order_B = about.get("turn", [0] * len(mask_BL))
    compared: list[Any] = [rewards_BL, mask_BL, *about.values()]
    first: dict[tuple[str, str, Any], int] = {}
    source_B = np.arange(len(mask_BL))
    for row in np.flatnonzero(mask_BL.any(axis=1)).tolist():
        rollout, turn = str(about["rollout_id"][row]), order_B[row]
        source_B[row] = source = first.setdefault((str(index[row]), rollout, turn), row)
        equal = all(np.array_equal(x_B[source], x_B[row]) for x_B in compared)
        if source != row and not (equal and "turn" in about):
            raise UserError(
                f"verl: two sequences are turn {turn} of rollout {rollout!r}; rows(turn=...) gives each its own number"
            )
    kept_B, source_B = np.unique(source_B, return_inverse=True)
    return kept_B, source_B


def _credit(
    rewards_BL: np.ndarray, mask_BL: np.ndarray, index: np.ndarray, known_B: Mapping[str, Sequence[Any]], method: Method
) -> np.ndarray:
    """The method's advantage of each sampled token (B, L), 0 elsewhere; `known_B` is what `rows` says."""
    about = dict(known_B)
    own = spans(mask_BL)
    row_N = own.row_N
    rollout_B, order_B = about.pop("rollout_id", range(len(index))), about.pop("turn", np.zeros(len(index), dtype=int))
    final_B = np.asarray(about.pop(FINAL, np.ones(len(index), dtype=bool)))
    if about and (own.turns_B > 1).any():
        raise UserError(
            f"verl: rows({next(iter(about))}=...) is one value for a sequence, but a sequence has several turns; "
            "leave it out"
        )
    reward_N = own.sums(rewards_BL) * final_B[row_N]
    rollout_N = np.array([str(rollout) for rollout in rollout_B], dtype=object)[row_N]
    for row in np.flatnonzero(final_B & ~mask_BL.any(axis=1) & rewards_BL.any(axis=1)).tolist():
        # The last output of a session has no token: the reward is that of the turn before.
        same_N = (rollout_N == str(rollout_B[row])) & (index[row_N] == index[row])
        if same_N.any():
            turns = np.flatnonzero(same_N)
            last = turns[np.lexsort((own.number_N[turns], np.asarray(order_B)[row_N][turns]))[-1]]
            reward_N[last] += rewards_BL[row].sum()
    if "reward" in about:
        reward_N = np.asarray(about.pop("reward"), dtype=np.float64)[row_N]
    table = {
        "group_id": [str(group) for group in np.asarray(index)[row_N]],
        "rollout_id": rollout_N.tolist(),
        "turn": _numbers(rollout_N, np.asarray(order_B)[row_N], own.number_N),
        "reward": reward_N,
        **{column: [values[row] for row in row_N] for column, values in about.items()},
    }
    credits = compute(Turns(table, where="verl's batch"), method)
    return own.spread(credits["advantage"].to_numpy())


def _numbers(rollout_N: np.ndarray, order_N: np.ndarray, within_N: np.ndarray) -> np.ndarray:
    """0, 1, 2, ... within each rollout, by the sequences' order and the turns' order within them."""
    _, code_N = np.unique(rollout_N.astype(str), return_inverse=True)
    by = np.lexsort((within_N, order_N, code_N))
    first = np.ones(len(by), dtype=bool)
    first[1:] = code_N[by][1:] != code_N[by][:-1]
    start = np.maximum.accumulate(np.where(first, np.arange(len(by)), 0))
    number_N = np.empty(len(by), dtype=np.int64)
    number_N[by] = np.arange(len(by)) - start
    return number_N
