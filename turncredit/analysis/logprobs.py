"""Stage `invariants`: what must hold of every round of a run, and of an audit of it, as a table.

The checks that only read are in `turncredit.analysis.invariants`; here is the one that needs the policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from turncredit import tables
from turncredit.analysis.invariants import LOGPROB, Finding, RoundFiles, as_row, check, table
from turncredit.config import Experiment
from turncredit.errors import UserError
from turncredit.heartbeat import progress
from turncredit.policy import models
from turncredit.policy.sampling import device
from turncredit.seeding import generator
from turncredit.training.sequences import batches, cut, list_column, stack, token_logprobs

#: rollouts of a round whose log-probabilities are computed again
SAMPLE = 4
TOKENS = ("context_reset", "prompt_ids", "response_ids", "response_logprobs", "temperature")


def invariants(*, experiment: Experiment, rounds: Sequence[RoundFiles], out: str | Path) -> dict[str, float]:
    """Check every round, print what does not hold, and write the table `invariants`.

    What does not hold is written down and is no error: the report says it in its first line.
    """
    rows = []
    for number, files in enumerate(rounds):
        rows += check_all(experiment, files)
        progress(number + 1, len(rounds))
    broken = [found for found in rows if not found["holds"]]
    for found in broken:
        print(f"{found['name']}, round {found['round']}: {found['detail']}")
    inputs = {str(path): path for files in rounds for _, path in files.all() if path.exists()}
    made_by = tables.provenance("invariants", config={"rounds": [f.round for f in rounds]}, inputs=inputs)
    tables.write(table(rows), out, "invariants", made_by)
    return {"checked": float(len(rows)), "broken": float(len(broken))}


def check_all(experiment: Experiment, files: RoundFiles) -> list[dict]:
    """The rows of a round: the checks that only read, and the log-probabilities where the policy is still there."""
    rows = check(experiment, files)
    if files.policy is not None and all(found["holds"] for found in rows if found["name"] in {"schemas", "keys"}):
        try:
            finding = logprobs(experiment, files)
        except UserError as error:
            finding = Finding(False, None, str(error), 1)
        rows.append(as_row(files, "logprobs", finding))
    return rows


@torch.no_grad()
def logprobs(experiment: Experiment, files: RoundFiles) -> Finding:
    """Stored log-probabilities of some rollouts against the policy's, computed as the update computes them.

    The deviation is |stored - recomputed|, divided by |recomputed| where that is above 1. `LOGPROB` is what rounding
    may make of it; a policy in bfloat16 that another engine sampled is off by more than one in float32.
    """
    assert files.policy is not None
    sample = _sample(files)
    responses, stored = list_column(sample, "response_ids"), list_column(sample, "response_logprobs")
    if any(len(one) != len(two) for one, two in zip(responses, stored, strict=True)):
        return Finding(False, None, f"{files.turns}: a response has not as many log-probabilities as tokens", 1)
    sequences = cut(
        pc.rank(sample.column("rollout_id"), tiebreaker="dense").to_pylist(),
        sample.column("context_reset").to_pylist(),
        list_column(sample, "prompt_ids"),
        responses,
        stored,
    )
    model = models.load_model(files.policy, dtype=experiment.policy.dtype).to(device()).eval()
    allowed, worst, checked, where = LOGPROB[experiment.policy.dtype], 0.0, 0, ""
    for batch in batches(sequences, experiment.update.tokens_per_pass):
        ids, turn, was = stack(batch, device())
        now = token_logprobs(model, ids, turn >= 0, sample.column("temperature")[0].as_py())
        at = (turn >= 0)[:, 1:]
        error = ((was[:, 1:][at] - now).abs() / now.abs().clamp(min=1.0)).nan_to_num(nan=np.inf)
        checked += len(error)
        if len(error) and float(error.max()) > worst:
            worst = float(error.max())
            number = int(turn[:, 1:][at][int(error.argmax())])
            where = ", ".join(f"{key} {sample.column(key)[number].as_py()!r}" for key in tables.KEYS)
    holds = worst <= allowed
    line = f"{files.turns}: log-probabilities are not those of {files.policy}: off by {worst:.2g} at {where}"
    return Finding(holds, worst, "" if holds else line, checked)


def _sample(files: RoundFiles) -> pa.Table:
    """The turns of some rollouts, with their tokens, in the table's order."""
    names = tables.read(files.turns, columns=["rollout_id"]).column("rollout_id")
    rollouts = names.unique()
    rng = generator("invariants log-probabilities", files.run, files.seed, files.round)
    chosen = rollouts.take(pa.array(rng.choice(len(rollouts), size=min(SAMPLE, len(rollouts)), replace=False)))
    return tables.read(files.turns, columns=[*tables.KEYS, *TOKENS]).filter(pc.is_in(names, value_set=chosen))
