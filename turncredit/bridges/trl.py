"""TRL: a `GRPOTrainer` whose advantages are those of a method, one for each turn.

    CreditGRPOTrainer(model, ..., credit="gigpo", credit_params={"gamma": 0.9})

A turn is a run of a completion's own tokens: what `tools` or a `rollout_func`'s `env_mask` marks as the environment's
lies between turns. Groups are TRL's (`num_generations`), a rollout's return is its weighted reward, on its last turn. A
`rollout_func` that returns a further field `turns`, a list of dicts for each rollout, one for each turn, says more:
`reward` (of the turn; what is left of the rollout's is the last one's), `observation`, `success` or any other column
that a method reads. Without it, `observation` is the text before the turn, `action` its own, `next_observation` what
follows. Where a method only asks which observations are equal (GiGPO, HGPO), nothing is decoded: two are equal if their
tokens are, special ones left out. Texts would also be equal if only the white space at their ends differs.

Conventions are TRL's (`preset="trl"`: eps 1e-4); with `credit="flat_grpo"` loss and gradients are GRPOTrainer's own.
TRL's `scale_rewards` and `multi_objective_aggregation` have no effect here: the method's own parameters say how
advantages are scaled. Other values than the defaults are refused, but `scale_rewards="none"` goes with `norm` "mean".
Completions without any reward are left out of the groups' statistics, as in TRL. Tested with trl 1.16.0. The trainer
overrides private methods of TRL's, so a version in which they are gone or return something else is refused.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from hashlib import blake2b
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from trl import GRPOTrainer

from turncredit.bridges.spans import Spans, method_of, spans
from turncredit.credit.gigpo import gigpo
from turncredit.credit.hgpo import hgpo
from turncredit.credit.parts.compose import Method, compute
from turncredit.data.turns import Turns
from turncredit.errors import UserError

TEXTS = ("observation", "action", "next_observation")
#: what asks of `observation` only which ones are equal, unless `anchors` is "similar"
COMPARE = (gigpo, hgpo)
#: private methods of GRPOTrainer that are overridden, and the version that they are known from
OVERRIDDEN, TESTED = ("_generate", "_calculate_rewards", "_generate_and_score_completions"), "1.16.0"


class CreditGRPOTrainer(GRPOTrainer):
    """GRPOTrainer with a method's advantages, (B, T).

    credit          the method's name, or FILE.py:NAME
    credit_params   its parameters, those of TRL's conventions included

    Raises UserError for a method that needs labels, values or other side tables: a trainer has none; for settings of
    advantages in `args` that the method does not read; and for a version of TRL with other private methods.
    """

    def __init__(
        self, *args: Any, credit: str = "gigpo", credit_params: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> None:
        for name in OVERRIDDEN:
            if not hasattr(GRPOTrainer, name):
                raise _other_trl(f"GRPOTrainer has no {name}")
        self.credit_method = method_of(credit, credit_params or {}, "trl", "CreditGRPOTrainer")
        given = inspect.signature(GRPOTrainer).bind_partial(*args, **kwargs).arguments
        _check_settings(given.get("args"), credit, credit_params or {})
        super().__init__(*args, **kwargs)

    def _generate(self, prompts: Any) -> Any:
        generated = super()._generate(prompts)
        self._masks = _masks_of(generated)
        return generated

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        rewards_per_func = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        weighted = rewards_per_func * self.reward_weights.to(rewards_per_func.device)
        reward = weighted.nansum(dim=1)
        reward[torch.isnan(rewards_per_func).all(dim=1)] = torch.nan
        self._scored = (inputs, [len(ids) for ids in completion_ids_list], reward.double().cpu().numpy())
        return rewards_per_func

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        if (self._masks is None) == ("tool_mask" in output):
            raise _other_trl("the third value of GRPOTrainer._generate is not the mask that it trains with")
        examples, lengths, reward_A = self._scored  # _A: of all processes
        own = _own_tokens(output, lengths, self._masks)
        first = self.accelerator.process_index * len(examples)
        mine = slice(first, first + len(examples))
        rows = self._rows(output, own, examples, reward_A[mine], first)
        everyone = gather_object(rows)
        advantage_A = self._advantages(everyone)
        advantage_N = np.array([advantage_A.get((row["rollout_id"], row["turn"]), 0.0) for row in rows])
        advantage_BT = own.spread(advantage_N)
        device = output["completion_ids"].device
        output["advantages"] = torch.tensor(advantage_BT, dtype=torch.float32, device=device)
        self._log_advantages(advantage_A, len(reward_A))
        return output

    def _rows(
        self, output: Mapping[str, Any], own: Spans, examples: list[Any], reward_B: np.ndarray, first: int
    ) -> list[dict[str, Any]]:
        """A row of the table of turns for each turn of this process's rollouts."""
        generations = self.num_generations if self.model.training else self.num_generations_eval
        rows: list[dict[str, Any]] = []
        for row, number in np.stack([own.row_N, own.number_N], axis=1).tolist():
            rollout = first + row
            keys = {"group_id": rollout // generations, "rollout_id": rollout, "turn": number}
            rows.append({**keys, "reward": 0.0 if math.isfinite(reward_B[row]) else math.nan})
        for name, texts in self._texts(output, own, examples).items():
            for turn, text in zip(rows, texts, strict=True):
                turn[name] = text
        logprobs = output.get("sampling_per_token_logps", output.get("old_per_token_logps"))
        undeclared = not self.credit_method.declares_reads
        if "response_logprobs" in self.credit_method.reads or (undeclared and logprobs is not None):
            for turn, row, start, end in zip(rows, own.row_N, own.start_N, own.end_N, strict=True):
                turn["response_logprobs"] = None if logprobs is None else logprobs[row, start:end].tolist()
        begin_B = own.last_B - own.turns_B + 1
        for row, example in enumerate(examples):
            turns = rows[begin_B[row] : own.last_B[row] + 1]
            extras = _turn_extras(example)
            if extras is not None:
                _add(turns, extras, first + row)
            turns[-1]["reward"] += reward_B[row] - sum(turn["reward"] for turn in turns)
        return rows

    def _texts(self, output: Mapping[str, Any], own: Spans, examples: list[Any]) -> dict[str, list[str]]:
        """Those of `observation`, `action` and `next_observation` that the method reads, by the tokenizer.

        All of them for a method that does not declare what it reads.
        """
        wanted = set(self.credit_method.reads if self.credit_method.declares_reads else TEXTS)
        if wanted.isdisjoint(TEXTS):
            return {}
        # A group may be on several processes, so all of them compare the same: hashes, or texts.
        has_extras = any(_turn_extras(example) for example in examples)
        if _only_compares(self.credit_method) and not any(gather_object([has_extras])):
            return {"observation": _token_hashes(output, own, _special(self._tokenizer))}
        ids_BT, length_B = output["completion_ids"].tolist(), self._scored[1]
        prompts = [
            ids[mask].tolist() for ids, mask in zip(output["prompt_ids"], output["prompt_mask"].bool(), strict=True)
        ]
        last = own.number_N + 1 == own.turns_B[own.row_N]
        before: list[list[int]] = []
        after: list[list[int]] = []
        for place, (row, start, end) in enumerate(zip(own.row_N, own.start_N, own.end_N, strict=True)):
            previous = 0 if own.number_N[place] == 0 else own.end_N[place - 1]
            before.append((prompts[row] if previous == 0 else []) + ids_BT[row][previous:start])
            after.append(ids_BT[row][end : length_B[row] if last[place] else own.start_N[place + 1]])
        mine = [ids_BT[row][start:end] for row, start, end in zip(own.row_N, own.start_N, own.end_N, strict=True)]
        decode = self._tokenizer.batch_decode
        return {
            name: [text.strip() for text in decode(ids, skip_special_tokens=True)]
            for name, ids in zip(TEXTS, (before, mine, after), strict=True)
            if name in wanted
        }

    def _advantages(self, rows: list[dict[str, Any]]) -> dict[tuple[int, int], float]:
        """The advantage of each turn of a rollout that has a reward."""
        scored = [row for row in rows if math.isfinite(row["reward"])]
        if not scored:
            return {}
        names = dict.fromkeys(name for row in scored for name in row)
        table = {name: [row.get(name) for row in scored] for name in names}
        credits = compute(Turns(table, where="CreditGRPOTrainer"), self.credit_method, seed=self.state.global_step)
        keys = [(row["rollout_id"], row["turn"]) for row in scored]
        return {key: float(value) for key, value in zip(keys, credits["advantage"].to_pylist(), strict=True)}

    def _log_advantages(self, advantage_A: Mapping[tuple[int, int], float], rollouts: int) -> None:
        """What TRL logs for a completion is one number: the mean over its turns."""
        total, count = np.zeros(rollouts), np.zeros(rollouts)
        for (rollout, _), advantage in advantage_A.items():
            total[rollout] += advantage
            count[rollout] += 1
        log: Any = self._logs["advantages"]
        for place, mean in enumerate(total / np.maximum(count, 1)):
            if place - rollouts >= -len(log):
                log[place - rollouts] = float(mean)


def _check_settings(args: Any, credit: str, params: Mapping[str, Any]) -> None:
    """Raise UserError where `args` asks for a scale of advantages that the method would not have."""
    scale, aggregation = (getattr(args, name, None) for name in ("scale_rewards", "multi_objective_aggregation"))
    if aggregation not in (None, "sum_then_normalize"):
        raise UserError(
            f"CreditGRPOTrainer: {credit} reads the weighted sum of the rewards, so multi_objective_aggregation="
            f"{aggregation!r} would have no effect; leave it out"
        )
    if scale not in (None, "group") and not (scale == "none" and params.get("norm") == "mean"):
        raise UserError(
            f"CreditGRPOTrainer: scale_rewards={scale!r} would have no effect on {credit}, which scales by its own "
            "parameters; leave it out, or for 'none' also give credit_params={'norm': 'mean'}"
        )


def _other_trl(what: str, instead: str = "") -> UserError:
    return UserError(
        f"CreditGRPOTrainer: {what}; {instead}install the version that this is tested with, trl=={TESTED} "
        f"(here is {version('trl')})"
    )


def _masks_of(generated: Any) -> Any:
    """The policy's tokens of what `_generate` returns, before `mask_truncated_completions`. None: all are its own.

    Raises UserError unless there is a 0 or 1 for each token of each completion.
    """
    try:
        _, ids, masks, *_ = generated
        fits = masks is None or all(
            len(mask) == len(row) and all(own in (0, 1) for own in mask) for mask, row in zip(masks, ids, strict=True)
        )
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise _other_trl(
            "the third value of GRPOTrainer._generate has no 0 or 1 for each token of each completion",
            "check the rollout_func's env_mask, or ",
        )
    return masks


def _own_tokens(output: Mapping[str, Any], lengths: list[int], masks: Any = None) -> Spans:
    """The turns. A rollout that `mask_truncated_completions` takes out of the loss keeps its turns, by `masks`.

    A rollout without any token of the policy counts as one turn.
    """
    mask_BT = output["completion_mask"].bool()
    if "tool_mask" in output:
        mask_BT = mask_BT & output["tool_mask"].bool()
    mask_BT = mask_BT.cpu().numpy().copy()
    for row in np.flatnonzero(~mask_BT.any(axis=1)):
        known = masks is not None and any(masks[row])
        mask_BT[row, : max(lengths[row], 1)] = masks[row] if known else True
    return spans(mask_BT)


def _only_compares(method: Method) -> bool:
    """Whether the method reads no text but observations, and asks of these only which ones are equal."""
    readers = [part for part in method.parts if set(part.columns) & set(TEXTS)]
    return method.declares_reads and all(
        part.function in COMPARE and part.settable().get("anchors") != "similar" for part in readers
    )


def _token_hashes(output: Mapping[str, Any], own: Spans, special: list[int]) -> list[str]:
    """For each turn a hash of the tokens before it and after the turn before; in a first turn, of the prompt too."""
    ids_BT, prompt_BL = (output[name].cpu().numpy() for name in ("completion_ids", "prompt_ids"))
    kept_BL = output["prompt_mask"].bool().cpu().numpy() & ~np.isin(prompt_BL, special)
    kept_BT = ~np.isin(ids_BT, special)
    place_BT = np.pad(np.cumsum(kept_BT, axis=1), ((0, 0), (1, 0))) * ids_BT.itemsize
    text_B = [ids_T[kept_T].tobytes() for ids_T, kept_T in zip(ids_BT, kept_BT, strict=True)]
    prompt_B = [ids_L[kept_L].tobytes() for ids_L, kept_L in zip(prompt_BL, kept_BL, strict=True)]
    previous_N = np.where(own.number_N == 0, 0, np.roll(own.end_N, 1))
    begin_N, end_N = place_BT[own.row_N, previous_N], place_BT[own.row_N, own.start_N]
    return [
        blake2b((prompt_B[row] if number == 0 else b"") + text_B[row][begin:end], digest_size=16).hexdigest()
        for row, number, begin, end in zip(
            own.row_N.tolist(), own.number_N.tolist(), begin_N.tolist(), end_N.tolist(), strict=True
        )
    ]


def _special(tokenizer: Any) -> list[int]:
    """The tokens that decoding leaves out."""
    added = (number for number, token in tokenizer.added_tokens_decoder.items() if token.special)
    return sorted({*tokenizer.all_special_ids, *added})


def _turn_extras(example: Any) -> Any:
    """What the `rollout_func` says of a rollout's turns; None where it says nothing."""
    return example.get("turns") if isinstance(example, Mapping) else None


def _add(turns: list[dict[str, Any]], extras: Any, rollout: int) -> None:
    """Add what the `rollout_func` says of a rollout's turns."""
    if not isinstance(extras, list) or len(extras) != len(turns):
        count = len(extras) if isinstance(extras, list) else type(extras).__name__
        raise UserError(
            f"CreditGRPOTrainer: rollout {rollout} has {len(turns)} turns by its env_mask, and {count} in the field "
            "'turns'; give a dict for each run of the policy's tokens, and tokens of the environment between two turns"
        )
    for number, (turn, more) in enumerate(zip(turns, extras, strict=True)):
        if not isinstance(more, Mapping) or not _is_finite(more.get("reward", 0.0)):
            raise UserError(
                f"CreditGRPOTrainer: rollout {rollout}, turn {number} of the field 'turns' is {str(more)[:60]}; give a "
                "dict, with a finite reward or without one"
            )
        reward = turn["reward"] + float(more.get("reward", 0.0))
        turn.update({key: value for key, value in more.items() if key not in ("group_id", "rollout_id", "turn")})
        turn["reward"] = reward


def _is_finite(reward: Any) -> bool:
    try:
        return math.isfinite(float(reward))
    except (TypeError, ValueError):
        return False
