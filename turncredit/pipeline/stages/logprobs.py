"""Stage `logprobs`: a second pass over a round's turns, for methods that need another log-probability of each response.

The key `scorer` says which policy reads: `sft`, the frozen SFT policy; `hindsight`, the policy that sampled, in prompts
that say how the rollout ended; `implicit-<method>`, the method's implicit reward model; `gold` and `gold_sft`, the
policy that sampled and the SFT policy, which read the gold answer in place of the response; `gold_deleted`, the policy
that sampled, which reads it at the rollout's end with the turn deleted. Log-probabilities are at
the temperature that the turns were sampled at, like the recorded ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from turncredit import agents
from turncredit.agents import Prompt
from turncredit.config import AgentSlice, EnvSlice
from turncredit.config.layout import IMPLICIT, round_name
from turncredit.config.stages import ROLLOUTS, Stage, table
from turncredit.config.warm_starts import SFT
from turncredit.errors import UserError
from turncredit.pipeline.job import Inputs, Job, JobKeys, Slice
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.resources.work import second_pass
from turncredit.pipeline.stages import implicit_model


class Config(Slice):
    """How the policy is loaded, the tokens of a pass, and what prompts in hindsight or gold answers depend on."""

    dtype: str
    tokens_per_pass: int
    env: EnvSlice | str | None
    agent: AgentSlice | None


#: The readers of the gold answer.
GOLD = ("gold", "gold_sft", "gold_deleted")


def config(plan: Plan, at: JobKeys) -> Config:
    """What of `policy` and `update` reading needs; in hindsight, `env.name` and `agent`; for gold answers, both."""
    experiment, gold = plan.experiment, at.scorer in GOLD
    writes, agent = gold or at.scorer == "hindsight", plan.agent(at)
    return Config(
        dtype=experiment.policy.dtype,
        tokens_per_pass=experiment.update.tokens_per_pass,
        env=plan.env if gold else experiment.env.name if writes else None,
        agent=AgentSlice(name=agent.name, settings=agent.settings) if writes else None,
    )


def inputs(plan: Plan, at: JobKeys) -> Inputs:
    """The turns, the policy that reads them, and the one that sampled, with which it is compared.

    No policy where the scorer is the one that sampled, with the same prompts: its log-probabilities are recorded. For
    gold answers the training games as well.
    """
    turns: Inputs = {"turns": plan.layout.path("turns", at.keys)}
    if at.scorer in GOLD:
        games = {"tasks": plan.layout.path("tasks", split="train"), **plan.plugin_files(at)}
        if at.scorer != "gold_sft" or at.round == 1:
            return {**turns, **games, "policy": plan.sampler(at)}
        return {**turns, **games, "policy": plan.sft_policy(at), "sampler": plan.sampler(at)}
    if at.scorer == "hindsight":
        return {**turns, "policy": plan.sampler(at), **plan.plugin_files(at)}
    method = at.scorer.removeprefix(IMPLICIT)
    sft = at.scorer == SFT or implicit_model.is_sft(plan, method, at.round)
    if sft and at.round == 1:
        return turns
    scorer = plan.sft_policy(at) if sft else plan.layout.path("implicit", at.keys, method=method)
    return {**turns, "policy": scorer, "sampler": plan.sampler(at)}


def runtime_options(plan: Plan, at: JobKeys) -> str:
    """The name of the frozen SFT policy, for the record."""
    return plan.warm_start(at)


def warning(metrics: Mapping[str, float]) -> str | None:
    """Warns of turns that could not be read."""
    if unread := int(metrics.get("unread", 0)):
        return (
            f"{unread} turns keep their sampled log-probability: with the rollout's outcome their contexts are longer "
            "than the model can read (max_position_embeddings)"
        )
    return None


def run(job: Job) -> dict[str, float]:
    """Write the log-probabilities; returns how many tokens were read for them, and how the two policies' differ.

    The policy that sampled is read in the same way as the scorer it is compared with: equal policies then have a
    log-ratio of exactly 0, whatever sampled the turns, and not rounding noise. In hindsight the recorded
    log-probabilities are enough; a turn whose context with the outcome is longer than the model can read keeps them,
    and `unread` counts these. `log_ratio` is the mean over turns of log pi_scorer - log pi_old, `log_ratio_rms` its
    root mean square.
    """
    from turncredit.data.columns import sums_of
    from turncredit.data.turns import check_logprobs
    from turncredit.training import second_pass
    from turncredit.training.sequences import contexts

    at, where = job.at, job.path("turns")
    if at.scorer in GOLD:
        return _run_gold(job)
    hindsight = at.scorer == "hindsight"
    turns = job.table("turns", columns=second_pass.HINDSIGHT_COLUMNS if hindsight else second_pass.COLUMNS)
    check_logprobs(turns, where)
    sampled_N = logprob_N = sums_of(turns.column("response_logprobs"))
    read, unread = 0, np.empty(0, dtype=np.int64)
    if "policy" in job.input:
        sequences = contexts(turns, where, _prompts(job, turns) if hindsight else None)
        if hindsight:
            sequences, unread = second_pass.fitting(sequences, _open(job, "policy").positions)
        read = sum(len(sequence.ids) for sequence in sequences)
        if not hindsight:
            sampled_N = _read(job, "sampler", turns, sequences)
            read *= 2
        logprob_N = _read(job, "policy", turns, sequences)
        logprob_N[unread] = sampled_N[unread]
        if not hindsight:  # the one that sampled is trained next, and need not have this one beside it in memory
            job.policy("policy").release()
    sft = at.scorer == SFT or "policy" not in job.input
    scorer = job.runtime_options if sft else round_name(at.scorer, at.seed, at.round)
    scorer_N = turns.column("policy_id") if hindsight else pa.repeat(scorer, turns.num_rows)
    job.write("logprobs", second_pass.table(turns, logprob_N, sampled_N, scorer_N))
    ratio_N = logprob_N - sampled_N
    return {
        "turns": float(turns.num_rows),
        "tokens": float(read),
        "unread": float(len(unread)),
        "log_ratio": float(np.mean(ratio_N)),
        "log_ratio_rms": float(np.sqrt(np.mean(ratio_N**2))),
    }


def _run_gold(job: Job) -> dict[str, float]:
    """Write the gold answers' log-probabilities; returns how many tokens were read, and what they are on average.

    `gold_logprob` is the mean over turns of the answer's mean log-probability per token.
    """
    from turncredit.training import second_pass

    at = job.at
    turns = job.table("turns", columns=second_pass.GOLD_COLUMNS)
    scored = _gold_responses(job, turns)
    if at.scorer == "gold_deleted":
        deleted = _open(job, "policy").tokenizer.encode(second_pass.DELETED)
        sequences = second_pass.deleted_contexts(turns, scored, deleted, job.path("turns"))
    else:
        sequences = second_pass.gold_contexts(turns, scored)
    logprob_N = _read(job, "policy", turns, sequences)
    sampled_N = _read(job, "sampler", turns, sequences) if "sampler" in job.input else logprob_N
    tokens_N = [len(scored[task].answer) for task in turns.column("task_id").to_pylist()]
    frozen = pa.repeat(job.runtime_options, turns.num_rows)
    scorer_N = frozen if at.scorer == "gold_sft" else turns.column("policy_id")
    job.write("logprobs", second_pass.table(turns, logprob_N, sampled_N, scorer_N, tokens_N))
    return {
        "turns": float(turns.num_rows),
        "tokens": float(sum(len(sequence.ids) for sequence in sequences) * (1 + ("sampler" in job.input))),
        "gold_logprob": float(np.mean(logprob_N / np.array(tokens_N))),
    }


def _gold_responses(job: Job, turns: pa.Table) -> dict[str, Any]:
    """A response with the gold answer for each task of the turns."""
    from turncredit import envs
    from turncredit.training.second_pass import gold_response

    config: Config = job.config
    assert config.agent is not None
    assert isinstance(config.env, EnvSlice)
    environment, spec = envs.load(config.env.name), agents.load(config.agent.name)
    settings = environment.Settings.model_validate(config.env.settings)
    tokenizer = _open(job, "policy").tokenizer
    new_agent = agents.agent_factory(spec, tokenizer, config.agent.settings, environment.words)
    assert environment.gold_answer is not None
    rows, where = {row["task_id"]: row for row in job.table("tasks", "tasks").to_pylist()}, job.path("turns")
    scored = {}
    for task in pc.unique(turns.column("task_id")).to_pylist():
        if task not in rows:
            raise UserError(f"{where}: the game '{task}' is not in the tasks table {job.path('tasks')}")
        scored[task] = gold_response(new_agent, tokenizer, environment.gold_answer(rows[task], settings), where)
    return scored


def _prompts(job: Job, turns: pa.Table) -> list[Prompt]:
    """The turns' prompts from an agent that knows how each rollout ended."""
    from turncredit import envs
    from turncredit.training.second_pass import hindsight_prompts

    config: Config = job.config
    assert config.agent is not None
    assert isinstance(config.env, str)
    spec, words = agents.load(config.agent.name), envs.load(config.env).words
    new_agent = agents.agent_factory(spec, _open(job, "policy").tokenizer, config.agent.settings, words)
    return hindsight_prompts(turns, spec, new_agent, job.path("turns"))


def _read(job: Job, name: str, turns: pa.Table, sequences: Sequence[Any]) -> np.ndarray:
    """The log-probabilities (N) of the turns under the input policy `name`."""
    from turncredit.data.columns import only_value
    from turncredit.training.second_pass import check_positions, logprobs_N

    temperature = only_value(turns, "temperature", job.path("turns"), "a second pass")
    policy = _open(job, name)
    check_positions(sequences, policy.positions, turns, job.path("turns"))
    return logprobs_N(
        policy.model().eval(),
        sequences,
        turns.num_rows,
        temperature=temperature,
        tokens_per_pass=job.config.tokens_per_pass,
    )


def _open(job: Job, name: str) -> Any:
    """The input policy `name`. Raises UserError where it was deleted."""
    policy = job.policy(name)
    if not policy.folder.is_dir():
        raise UserError(
            f"{policy.folder}: the policy for a second pass is not there any more (keep_policies: last deletes it); "
            "set keep_policies to all, and run again"
        )
    return policy


def needed(plan: Plan, method: str) -> bool:
    """Whether credit reads another log-probability of each response."""
    return "logprobs" in plan.method(method).needs


def keys(plan: Plan, turns: JobKeys, method: str) -> JobKeys:
    """The scorer is a key; each method with an implicit reward model has one of its own."""
    scorer = plan.method(method).scorer or ""
    return plan.beside(turns, scorer=f"{IMPLICIT}{method}" if scorer == "implicit" else scorer)


STAGE = Stage(
    name="logprobs",
    after="implicit_model",
    phase="signal",
    message="Second pass ({scorer}) over the rollouts of {policy}, seed {seed}, round {round}",
    makes={"logprobs": table("logprobs", f"{ROLLOUTS}/logprobs", "{scorer}")},
    folder=ROLLOUTS,
    file="logprobs-{scorer}",
    part=Config,
    slice=config,
    inputs=inputs,
    run=run,
    varies_by=("scorer", "policy"),
    runtime_options=runtime_options,
    warning=warning,
    needed=needed,
    keys=keys,
    policy="reads",
    gpu_work=second_pass,
)
