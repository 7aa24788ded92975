"""Stage `logprobs`: a second pass over a round's turns, for methods that ask a policy about each response once more.

Who reads is the key `reader`: `sft`, the frozen SFT policy; `hindsight`, the policy that sampled, in prompts that say
how the rollout ended; `implicit-<method>`, the method's implicit reward model. Log-probabilities are at the temperature
that the turns were sampled at, like the recorded ones.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from turncredit.config import AgentConfig
from turncredit.errors import UserError
from turncredit.layout import IMPLICIT, SFT, round_name
from turncredit.stages.job import At, Inputs, Job, Slice
from turncredit.stages.plan import Plan


class Config(Slice):
    """How the policy is loaded and how many tokens a pass takes; in hindsight, what makes the prompts."""

    dtype: str
    tokens_per_pass: int
    env: str | None
    agent: AgentConfig | None


#: The reader decides whether prompts are made.
VARIES_BY = ("reader",)


def config(plan: Plan, at: At) -> Config:
    """What of `policy` and `update` reading needs; in hindsight, `env.name` and `agent`."""
    whole = plan.experiment
    hindsight = at.reader == "hindsight"
    return Config(
        dtype=whole.policy.dtype,
        tokens_per_pass=whole.update.tokens_per_pass,
        env=whole.env.name if hindsight else None,
        agent=AgentConfig(name=whole.agent.name, settings=whole.agent.settings) if hindsight else None,
    )


def inputs(plan: Plan, at: At) -> Inputs:
    """The turns and the policy that reads them.

    No policy where it is the one that sampled, with the same prompts: what it has to say is recorded in the turns.
    """
    turns: Inputs = {"turns": plan.layout.path("turns", at.keys)}
    if at.reader == "hindsight":
        return {**turns, "policy": plan.sampler(at), **plan.plugin_files}
    if at.round == 1:
        return turns
    if at.reader == SFT:
        return {**turns, "policy": plan.layout.path("sft_policy")}
    return {**turns, "policy": plan.layout.path("implicit", at.keys, method=at.reader.removeprefix(IMPLICIT))}


OUTPUTS = {"logprobs": "logprobs"}


def run(job: Job) -> dict[str, float]:
    """Write the log-probabilities; returns how many tokens were read for them, and how they differ from the recorded.

    `log_ratio` is the mean over turns of log pi_reader - log pi_old, `log_ratio_rms` its root mean square.
    """
    from turncredit import agents, envs
    from turncredit.credit.second_pass import sums_of
    from turncredit.training import second_pass
    from turncredit.turns import only_value

    config: Config = job.config
    hindsight, where = job.at.reader == "hindsight", job.path("turns")
    turns = job.table("turns", columns=second_pass.HINDSIGHT_COLUMNS if hindsight else second_pass.COLUMNS)
    sampled_N = sums_of(turns.column("response_logprobs"))
    read = 0
    if "policy" not in job.input:
        logprob_N = sampled_N
    else:
        policy = job.policy("policy")
        if not Path(policy.folder).is_dir():
            raise UserError(
                f"{policy.folder}: the policy for a second pass is not there any more (keep_policies: last deletes "
                "it); set keep_policies to all, and make it again"
            )
        prompts_N = None
        if hindsight:
            assert config.agent is not None
            assert config.env is not None
            spec = agents.load(config.agent.name)
            words = envs.load(config.env).words
            new_agent = agents.agent_factory(spec, policy.tokenizer, config.agent.settings, words)
            prompts_N = second_pass.hindsight_prompts(turns, spec, new_agent, where)
        sequences = second_pass.contexts(turns, where, prompts_N)
        read = sum(len(sequence.ids) for sequence in sequences)
        logprob_N = second_pass.logprobs_N(
            policy.model().eval(),
            sequences,
            turns.num_rows,
            temperature=only_value(turns, "temperature", where, "a second pass"),
            tokens_per_pass=config.tokens_per_pass,
        )
    at = job.at
    reader = SFT if at.reader == SFT or at.round == 1 else round_name(at.reader, at.seed, at.round)
    reader_N = turns.column("policy_id") if hindsight else pa.repeat(reader, turns.num_rows)
    job.write("logprobs", second_pass.table(turns, logprob_N, reader_N))
    ratio_N = logprob_N - sampled_N
    return {
        "turns": float(turns.num_rows),
        "tokens": float(read),
        "log_ratio": float(np.mean(ratio_N)),
        "log_ratio_rms": float(np.sqrt(np.mean(ratio_N**2))),
    }
