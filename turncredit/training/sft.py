"""The supervised warm start on demonstrations, loss on the expert's own actions only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import torch

from turncredit import agents
from turncredit.agents import Parsed
from turncredit.config import AgentSlice, SftConfig
from turncredit.data.env_wording import Words
from turncredit.data.progress import progress
from turncredit.data.seeding import derive_seed, generator
from turncredit.errors import UserError
from turncredit.policy import tokenizer
from turncredit.policy.masters import Masters
from turncredit.policy.sampling import device
from turncredit.training.optimizers import check_step, make_optimizer
from turncredit.training.sequences import TokenSequence, batches, cut, stack, token_logprobs
from turncredit.training.team import Report, Team

#: What to do about a warm start whose numbers are not finite.
DIVERGED = "lower sft.lr (or sft.muon_lr), or warm it up for longer (sft.warmup_steps)"


def train(
    masters: Masters,
    sequences: Sequence[TokenSequence],
    settings: SftConfig,
    *,
    tokens_per_pass: int,
    team: Team,
    moments_dtype: str = "float32",
) -> list[dict[str, float]]:
    """Imitate the demonstrations in place; returns one log row a step (schema `sft_log`) in the team's first process.

    The team's processes compute a minibatch together. With no epochs nothing is imitated.
    """
    order = list(minibatches(sequences, settings.batch, settings.epochs, generator(settings.seed, "sft order")))
    if not order:
        return []
    model = masters.model.train()
    rounding = derive_seed(settings.seed, "sft rounding")
    optimizer = make_optimizer(masters, settings, moments_dtype=moments_dtype, rounding_seed=rounding)
    rows: list[dict[str, float]] = []
    with team.sharing(optimizer.parameters, settings.shards):
        for step, batch in enumerate(order):
            share = learning_rate(step, len(order), settings.warmup_steps, settings.final_lr)
            optimizer.set_rate(share)
            learnt = sum(int((sequence.turn >= 0).sum()) for sequence in batch)

            def imitate(shard: int, part: list[TokenSequence], step=step, learnt=learnt) -> Report:
                torch.manual_seed(derive_seed(settings.seed, "sft dropout", step, shard))
                return {"loss": _imitate(model, part, learnt, tokens_per_pass)}

            loss = sum(report["loss"] for report in team.minibatch(model, batch, tokens_per_pass, imitate))
            norm = optimizer.step(settings.max_grad_norm)
            if team.leads:
                check_step({"loss": loss, "grad_norm": norm}, training="sft", step=step + 1, instead=DIVERGED)
                rows.append({"step": step, "loss": loss, "lr": share * settings.lr, "tokens": learnt})
                progress(step + 1, len(order))
    return rows


def _imitate(model: torch.nn.Module, sequences: Sequence[TokenSequence], learnt: int, tokens_per_pass: int) -> float:
    """Add the gradient of the sequences' negative log-likelihood, a mean over `learnt` tokens; returns the loss."""
    total = 0.0
    for part in batches(sequences, tokens_per_pass):
        ids, turn, _ = stack(part, device())
        loss = -token_logprobs(model, ids, turn >= 0).sum() / max(learnt, 1)
        loss.backward()
        total += float(loss.detach())
    return total


def demonstrations(
    table: pa.Table, encoder: tokenizer.Tokenizer, config: AgentSlice, words: Words, where: str = "demos"
) -> list[TokenSequence]:
    """Demonstrations as the configured agent's prompts and responses, in tokens; noise is context and has no loss.

    Raises UserError, naming `where`, for a table without the columns that the agent reads, and for an agent whose
    response to an imitated turn reads back as another action.
    """
    spec = agents.load(config.name)
    missing = [column for column in spec.demo_columns if column not in table.column_names]
    if missing:
        raise UserError(
            f"{where}: agent '{spec.name}' reads the column '{missing[0]}' of the demonstrations, which this "
            "environment's expert does not write; choose another agent or environment, or no warm start (sft.epochs: 0)"
        )
    new_agent = agents.agent_factory(spec, encoder, config.settings, words)
    rollout_N, reset_N, prompts_N, responses_N, learn_N = [], [], [], [], []
    agent = new_agent()
    response: list[int] = []
    parsed = Parsed("", well_formed=True)
    number = -1
    for row in table.to_pylist():
        admissible = row["admissible"] if spec.shows_admissible else ()
        at = f"{where}: {row['rollout_id']}, turn {row['turn']}"
        if row["turn"] == 0:
            agent, number = new_agent(), number + 1
            prompt = spec.opened(agent, row["goal"], row["observation"], admissible, at)
        else:
            prompt = spec.call(agent, "follow", response, parsed, row["observation"], admissible, where=at)
        text = spec.call(agent, "target", row, where=at)
        parsed = spec.call(agent, "parse", text, where=at)
        spec.check(parsed, at)
        if row["imitate"] and parsed.action != row["action"]:
            raise UserError(
                f"{at}: agent '{spec.name}' teaches {text!r} for "
                f"{row['action']!r}, but reads {parsed.action!r} from it; its target and parse must agree"
            )
        parsed = replace(parsed, action=row["action"])
        response = [*encoder.encode(text), encoder.eos_id]
        rollout_N.append(number)
        reset_N.append(prompt.reset)
        prompts_N.append(np.array(prompt.ids))
        responses_N.append(np.array(response))
        learn_N.append(row["imitate"])
    logprobs_N = [np.zeros(len(response), dtype=np.float32) for response in responses_N]
    sequences = cut(rollout_N, reset_N, prompts_N, responses_N, logprobs_N, learn_N)
    return [sequence for sequence in sequences if (sequence.turn >= 0).any()]


def minibatches(
    sequences: Sequence[TokenSequence], size: int, epochs: float, rng: np.random.Generator
) -> Iterator[list[TokenSequence]]:
    """Shuffled minibatches for `epochs` passes (a fraction of a pass counts), like lengths together."""
    total = max(1, round(epochs * len(sequences) / size)) if epochs else 0
    done = 0
    while done < total:
        noise = rng.random(len(sequences)) * 30
        order = np.argsort([len(sequence.ids) for sequence in sequences] + noise, kind="stable")
        starts = rng.permutation(range(0, len(order), size))
        for start in starts[: total - done]:
            yield [sequences[i] for i in order[start : start + size]]
        done += len(starts)


def learning_rate(step: int, steps: int, warmup: int, final: float) -> float:
    """The share of the peak learning rate: linear warm-up to 1, linear decay to `final` at the last step."""
    rise = min(1.0, (step + 1) / max(1, warmup))
    fall = 1.0 - (1.0 - final) * step / max(1, steps - 1)
    return rise * fall
