"""A second pass over recorded turns: the log-probability that a policy gives each response, once more.

The prompts are those that the responses were sampled from, or, in hindsight, the same prompts from an agent that was
told how the rollout ended. Nothing of this is trained on: the only result is one number for each turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import torch

from turncredit import tables
from turncredit.agents import Agent, AgentSpec, Prompt
from turncredit.errors import UserError
from turncredit.heartbeat import progress
from turncredit.policy.sampling import device
from turncredit.training.sequences import (
    TokenSequence,
    batches,
    keys_of,
    list_column,
    read_only,
    stack,
    token_logprobs,
)

#: the columns of the turns that a second pass reads
COLUMNS = (
    *tables.KEYS, "context_reset", "prompt_ids", "response_ids", "response_logprobs", "temperature", "policy_id",
)  # fmt: skip
#: and those that it also reads in hindsight
HINDSIGHT_COLUMNS = (*COLUMNS, "goal", "observation", "admissible", "response_text", "next_observation")


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
        found = token_logprobs(model, ids, learned, temperature)
        rows = turn[:, 1:][learned[:, 1:]].cpu().numpy()
        out_N += np.bincount(rows, found.double().cpu().numpy(), turns)
        done += len(batch)
        progress(done, len(sequences))
    if bad := int((~(np.isfinite(out_N) & (out_N <= 0))).sum()):
        raise UserError(
            f"a second pass gave {bad} of {turns} responses a log-probability that is not finite; the policy "
            "that read them is damaged, or its training has diverged: lower the learning rate"
        )
    return out_N


def contexts(turns: pa.Table, where: str, prompts_N: Sequence[Prompt] | None = None) -> list[TokenSequence]:
    """The token sequences of turns, with other prompts if given. Raises UserError for a turn without a response."""
    return read_only(turns, where, "a second pass reads sampled tokens", prompts_N)


def hindsight_prompts(
    turns: pa.Table, spec: AgentSpec, new_agent: Callable[[], Agent], where: str = "turns"
) -> list[Prompt]:
    """The prompt of each turn from an agent that knows how the rollout ended, in the order of `turns`.

    The outcome is the rollout's last observation. Each rollout's agent is opened once more with `spec.hindsight(goal,
    outcome)` for its goal, and follows the recorded turns. A second agent follows them with the goal itself, and must
    arrive at the recorded prompts: otherwise the table does not hold what the prompts were made of.

    Raises UserError for an agent without `hindsight`, for prompts that do not come out as recorded, and for an agent
    whose prompts are the same with the outcome.
    """
    told_of = spec.hindsight
    if told_of is None:
        raise UserError(f"{where}: can't be read in hindsight: {spec.cannot_look_back()}")
    rows = turns.select([name for name in HINDSIGHT_COLUMNS if name != "response_logprobs"]).to_pylist()
    # Rows of a rollout are in the order of its turns: the last one that is met has the last observation.
    ends = {row["rollout_id"]: row["next_observation"] for row in rows}
    prompts_N: list[Prompt] = []
    plain, told = new_agent(), new_agent()
    for number, row in enumerate(rows):
        admissible = (row["admissible"] or ()) if spec.shows_admissible else ()
        if row["turn"] == 0:
            plain, told = new_agent(), new_agent()
            goal = told_of(row["goal"], ends[row["rollout_id"]])
            was = spec.opened(plain, row["goal"], row["observation"], admissible)
            prompt = spec.opened(told, goal, row["observation"], admissible)
        else:
            before = rows[number - 1]
            parsed = plain.parse(before["response_text"])
            was = plain.follow(before["response_ids"], parsed, row["observation"], admissible)
            prompt = told.follow(before["response_ids"], parsed, row["observation"], admissible)
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
    turns: pa.Table, logprob_N: np.ndarray, sampled_N: np.ndarray, reader_N: pa.ChunkedArray | pa.Array
) -> pa.Table:
    """A table `logprobs` of these turns: by the policies with the ids `reader_N`, and by the one that sampled."""
    bad = np.flatnonzero(~np.isfinite(logprob_N))
    if len(bad):
        raise UserError(f"the log-probability of {keys_of(turns, int(bad[0]))} is {logprob_N[bad[0]]}")
    tokens_N = pa.array([len(response) for response in list_column(turns, "response_ids")], pa.int32())
    keys = {key: turns.column(key) for key in tables.KEYS}
    return pa.table({**keys, "tokens": tokens_N, "logprob": logprob_N, "sampled": sampled_N, "policy_id": reader_N})
