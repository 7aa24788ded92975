"""A second pass over recorded turns: the log-probability of each response under a policy.

The prompts are the recorded ones or, in hindsight, those of an agent that knows how the rollout ended. For the gold
answer the response is replaced by one that gives the right answer. Nothing is trained: the result is one number a turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch

from turncredit.agents import Agent, AgentSpec, Encoder, Prompt
from turncredit.data import tables
from turncredit.data.progress import progress
from turncredit.errors import UserError
from turncredit.policy.sampling import device
from turncredit.training.sequences import (
    TokenSequence,
    batches,
    keys_of,
    list_column,
    stack,
    token_logprobs,
)

#: the columns of the turns that a second pass reads
COLUMNS = (
    *tables.KEYS, "context_reset", "prompt_ids", "response_ids", "response_logprobs", "temperature", "policy_id",
)  # fmt: skip
#: for the gold answer also these
GOLD_COLUMNS = (*COLUMNS, "task_id")
#: in hindsight also these
HINDSIGHT_COLUMNS = (*COLUMNS, "goal", "observation", "admissible", "response_text", "next_observation")


#: what stands in place of a turn that is deleted from a rollout
DELETED = "[DELETE]"


class Scored(NamedTuple):
    """The tokens of a response. Only a part, the answer, is scored."""

    before: list[int]
    answer: list[int]


@torch.no_grad()
def logprobs_N(
    model: torch.nn.Module,
    sequences: Sequence[TokenSequence],
    turns: int,
    *,
    temperature: float,
    tokens_per_pass: int,
) -> np.ndarray:
    """log pi of each of N turns' responses: the sum (N) float64 over its tokens, at `temperature`."""
    out_N = np.zeros(turns)
    done = 0
    for batch in batches(sequences, tokens_per_pass):
        ids, turn, _ = stack(batch, device())
        learned = turn >= 0
        logprobs = token_logprobs(model, ids, learned, temperature)
        rows = turn[:, 1:][learned[:, 1:]].cpu().numpy()
        out_N += np.bincount(rows, logprobs.double().cpu().numpy(), turns)
        done += len(batch)
        progress(done, len(sequences))
    if bad := int((~(np.isfinite(out_N) & (out_N <= 0))).sum()):
        raise UserError(
            f"a second pass gave {bad} of {turns} responses a log-probability that is not finite; the policy "
            "that read them is damaged, or its training has diverged: lower the learning rate"
        )
    return out_N


def fitting(sequences: Sequence[TokenSequence], positions: int | None) -> tuple[list[TokenSequence], np.ndarray]:
    """The sequences as far as the model can read them (`positions` tokens; None: any number), and the turns left out.

    A sequence is cut before the first turn whose response does not fit; one that has no turn left is dropped. What a
    second pass puts into a context (an outcome) is not in the length that rollouts are cut to.
    """
    if positions is None:
        return list(sequences), np.empty(0, dtype=np.int64)
    kept, left_out = [], [np.empty(0, dtype=np.int64)]
    for sequence in sequences:
        beyond = np.unique(sequence.turn[positions:])
        beyond = beyond[beyond >= 0]
        end = min([positions, *np.flatnonzero(np.isin(sequence.turn, beyond))])
        left_out.append(beyond)
        if (sequence.turn[:end] >= 0).any():
            parts = {name: getattr(sequence, name)[:end] for name in ("ids", "turn", "logprobs")}
            kept.append(replace(sequence, **parts))
    return kept, np.concatenate(left_out)


def check_positions(sequences: Sequence[TokenSequence], positions: int | None, turns: pa.Table, where: str) -> None:
    """Raise UserError, naming a turn, for a sequence with more tokens than the model has positions (None: any number).

    What a second pass puts into a context (an outcome, an answer) is not in the length that rollouts are cut to.
    """
    longest = max(sequences, key=lambda sequence: len(sequence.ids), default=None)
    if longest is not None and positions is not None and len(longest.ids) > positions:
        raise UserError(
            f"{where}: for a second pass the context of {keys_of(turns, int(longest.turn.max()))} has "
            f"{len(longest.ids)} tokens, and the model can read {positions} (max_position_embeddings); shorten what "
            "the agent shows, or use a model with more positions"
        )


def gold_response(new_agent: Callable[[], Agent], encoder: Encoder, gold: tuple[str, str], where: str) -> Scored:
    """The tokens of a response that gives the gold answer: those before the answer, and the answer's own.

    gold   an action that gives it, and the answer as it stands there (`Environment.gold_answer`)

    The agent writes the response as it writes a demonstration's (`Agent.target`), so that it has the agent's format.
    Raises UserError for an agent whose response does not have the answer in it, or needs more than the action.
    """
    action, answer = gold
    try:
        response = new_agent().target({"action": action})
    except KeyError as missing:
        raise UserError(
            f"{where}: an answer cannot be written as this agent's response without its column {missing}; choose "
            "another agent (agent.name), or another method"
        ) from None
    before, separator, _ = response.rpartition(answer)
    if not answer.strip() or not separator:
        raise UserError(f"{where}: the response {response!r} does not have the answer {answer!r} in it")
    return Scored(encoder.encode(before), encoder.encode(answer))


def gold_contexts(turns: pa.Table, scored: Mapping[str, Scored]) -> list[TokenSequence]:
    """A sequence for each turn: its context as recorded, then the gold answer's response in place of its own.

    `scored` has the response of each task. Only the answer's tokens belong to the turn, not those around it.
    """
    prompts_N, responses_N = list_column(turns, "prompt_ids"), list_column(turns, "response_ids")
    resets_N, tasks_N = turns.column("context_reset").to_pylist(), turns.column("task_id").to_pylist()
    sequences, context = [], np.zeros(0, dtype=np.int64)
    for row, (prompt, response) in enumerate(zip(prompts_N, responses_N, strict=True)):
        context = np.concatenate([context[:0] if resets_N[row] else context, prompt])
        before, answer = scored[tasks_N[row]]
        ids = np.concatenate([context, before, answer]).astype(np.int64)
        turn = np.full(len(ids), -1, dtype=np.int64)
        turn[len(ids) - len(answer) :] = row
        sequences.append(TokenSequence(row, ids, turn, np.zeros(len(ids), dtype=np.float32)))
        context = np.concatenate([context, response])
    return sequences


def deleted_contexts(
    turns: pa.Table, scored: Mapping[str, Scored], deleted: Sequence[int], where: str = "turns"
) -> list[TokenSequence]:
    """A sequence for each turn: its rollout's last context without the turn, then the gold answer's response.

    scored    the response of each task; only the answer's tokens belong to the turn, not those around it
    deleted   tokens in place of the turn's response and of what its action was answered with

    Nothing is deleted for the last turn, in whose place the answer is given: its sequence is that of the whole rollout.
    Raises UserError for a context that was begun anew, in which earlier turns cannot be told apart.
    """
    prompts_N, responses_N = list_column(turns, "prompt_ids"), list_column(turns, "response_ids")
    turn_N, resets_N = turns.column("turn").to_pylist(), turns.column("context_reset").to_pylist()
    tasks_N = turns.column("task_id").to_pylist()
    starts = [row for row, turn in enumerate(turn_N) if turn == 0]
    sequences = []
    for start, end in pairwise([*starts, len(turn_N)]):
        if any(resets_N[start + 1 : end]):
            anew = keys_of(turns, resets_N.index(True, start + 1))
            raise UserError(
                f"{where}: {anew} begins a context anew, and a turn can only be deleted from one that grows; take an "
                "append-only agent (agent.name)"
            )
        before, answer = scored[tasks_N[start]]
        for row in range(start, end):
            parts: list[Iterable[int]] = [prompts_N[start]]
            for earlier in range(start, end - 1):
                parts += [deleted] if earlier == row else [responses_N[earlier], prompts_N[earlier + 1]]
            ids = np.fromiter(chain(*parts, before, answer), dtype=np.int64)
            turn = np.full(len(ids), -1, dtype=np.int64)
            turn[len(ids) - len(answer) :] = row
            sequences.append(TokenSequence(row, ids, turn, np.zeros(len(ids), dtype=np.float32)))
    return sequences


def hindsight_prompts(
    turns: pa.Table, spec: AgentSpec, new_agent: Callable[[], Agent], where: str = "turns"
) -> list[Prompt]:
    """The prompt of each turn from an agent that knows how the rollout ended, in the order of `turns`.

    The outcome is the rollout's last observation. Each rollout's agent is opened once more with `spec.hindsight(goal,
    outcome)` for its goal, and follows the recorded turns. A second agent follows them with the goal itself, and must
    arrive at the recorded prompts: otherwise the table lacks something that the prompts were made from.

    Raises UserError for an agent without `hindsight`, for prompts that differ from the recorded ones, and for an agent
    whose prompts are the same with the outcome.
    """
    hindsight_goal = spec.hindsight
    if hindsight_goal is None:
        raise UserError(f"{where}: can't be read in hindsight: {spec.cannot_look_back()}")
    rows = turns.select([name for name in HINDSIGHT_COLUMNS if name != "response_logprobs"]).to_pylist()
    # Rows of a rollout are in the order of its turns: the last one that is met has the last observation.
    ends = {row["rollout_id"]: row["next_observation"] for row in rows}
    prompts_N: list[Prompt] = []
    plain, informed = new_agent(), new_agent()
    for number, row in enumerate(rows):
        admissible = (row["admissible"] or ()) if spec.shows_admissible else ()
        if row["turn"] == 0:
            plain, informed = new_agent(), new_agent()
            goal = hindsight_goal(row["goal"], ends[row["rollout_id"]])
            was = spec.opened(plain, row["goal"], row["observation"], admissible)
            prompt = spec.opened(informed, goal, row["observation"], admissible)
        else:
            before = rows[number - 1]
            parsed = plain.parse(before["response_text"])
            was = plain.follow(before["response_ids"], parsed, row["observation"], admissible)
            prompt = informed.follow(before["response_ids"], parsed, row["observation"], admissible)
        if (was.ids, was.reset) != (row["prompt_ids"], row["context_reset"]):
            raise UserError(
                f"{where}: agent '{spec.name}' does not make the recorded prompt of {keys_of(turns, number)} again; "
                "were the turns sampled with other settings of the agent?"
            )
        if prompt.reset and prompt.ids == was.ids:
            raise UserError(
                f"agent '{spec.name}': its prompts are the same with the outcome in the goal; they must show the goal "
                "they are opened with, or the agent must not declare hindsight"
            )
        prompts_N.append(prompt)
    return prompts_N


def table(
    turns: pa.Table,
    logprob_N: np.ndarray,
    sampled_N: np.ndarray,
    reader_N: pa.ChunkedArray | pa.Array,
    tokens_N: Sequence[int] | None = None,
) -> pa.Table:
    """A table `logprobs` of these turns: by the policies with the ids `reader_N`, and by the one that sampled.

    `tokens_N` are the numbers of tokens that were read, if not the responses' own.
    """
    bad = np.flatnonzero(~np.isfinite(logprob_N))
    if len(bad):
        raise UserError(f"the log-probability of {keys_of(turns, int(bad[0]))} is {logprob_N[bad[0]]}")
    if tokens_N is None:
        tokens_N = [len(response) for response in list_column(turns, "response_ids")]
    keys = {key: turns.column(key) for key in tables.KEYS}
    return pa.table(
        {
            **keys,
            "tokens": pa.array(tokens_N, pa.int32()),
            "logprob": logprob_N,
            "sampled": sampled_N,
            "policy_id": reader_N,
        }
    )
