"""The check that needs the policy: stored log-probabilities compared with the policy's own.

The checks that only read are in `turncredit.audit.invariants`.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from turncredit.audit.checked_round import CheckSettings, RoundFiles
from turncredit.audit.invariants import LOGPROB, MEAN_RECOMPUTED, Finding, as_row, check
from turncredit.data import tables
from turncredit.data.seeding import generator
from turncredit.errors import UserError
from turncredit.policy.open import OpenPolicy
from turncredit.policy.sampling import device
from turncredit.training.sequences import batches, cut, keys_of, list_column, stack, token_logprobs

#: rollouts of a round whose log-probabilities are computed again
SAMPLE = 4
TOKENS = ("context_reset", "prompt_ids", "response_ids", "response_logprobs", "temperature")


def check_all(settings: CheckSettings, files: RoundFiles) -> list[dict]:
    """The rows of a round: the checks that only read, and the log-probabilities if the policy still exists."""
    rows = check(settings, files)
    if files.policy is not None and all(row["holds"] for row in rows if row["name"] in {"schemas", "keys"}):
        try:
            finding = logprobs(settings, files)
        except UserError as error:
            finding = Finding(False, None, str(error), 1)
        rows.append(as_row(files, "logprobs", finding))
    return rows


@torch.no_grad()
def logprobs(settings: CheckSettings, files: RoundFiles) -> Finding:
    """Stored log-probabilities of some rollouts against the policy's, computed as the update computes them.

    The deviation of a token is |stored - recomputed|, divided by |recomputed| where that is above 1; `LOGPROB` is the
    tolerance. In bfloat16 the mean |stored - recomputed| over the tokens has one, too, which is what decides there.
    """
    assert files.policy is not None
    sample = _sample(files)
    responses, stored = list_column(sample, "response_ids"), list_column(sample, "response_logprobs")
    if any(len(one) != len(two) for one, two in zip(responses, stored, strict=True)):
        line = f"{files.turns}: a response has a different number of log-probabilities than tokens"
        return Finding(False, None, line, 1)
    sequences = cut(
        pc.rank(sample.column("rollout_id"), tiebreaker="dense").to_pylist(),
        sample.column("context_reset").to_pylist(),
        list_column(sample, "prompt_ids"),
        responses,
        stored,
    )
    model = OpenPolicy(files.policy, dtype=settings.dtype).model().eval()
    allowed, worst, checked, where, apart = LOGPROB[settings.dtype], 0.0, 0, "", 0.0
    for batch in batches(sequences, settings.tokens_per_pass):
        ids, turn, was = stack(batch, device())
        now = token_logprobs(model, ids, turn >= 0, sample.column("temperature")[0].as_py())
        at = (turn >= 0)[:, 1:]
        difference = (was[:, 1:][at] - now).abs().nan_to_num(nan=np.inf)
        error = difference / now.abs().clamp(min=1.0)
        checked += len(error)
        apart += float(difference.sum())
        if len(error) and float(error.max()) > worst:
            worst = float(error.max())
            number = int(turn[:, 1:][at][int(error.argmax())])
            where = keys_of(sample, number)
    mean = apart / max(checked, 1)
    holds = worst <= allowed and (settings.dtype == "float32" or mean <= MEAN_RECOMPUTED)
    line = (
        f"{files.turns}: log-probabilities are not those of {files.policy}: off by {worst:.2g} at {where}, by "
        f"{mean:.2g} in the mean"
    )
    return Finding(holds, worst, "" if holds else line, checked)


def _sample(files: RoundFiles) -> pa.Table:
    """The turns of some rollouts, with their tokens, in the table's order."""
    names = tables.read(files.turns, columns=["rollout_id"]).column("rollout_id")
    rollouts = names.unique()
    rng = generator("invariants log-probabilities", files.run, files.seed, files.round)
    chosen = rollouts.take(pa.array(rng.choice(len(rollouts), size=min(SAMPLE, len(rollouts)), replace=False)))
    return tables.read(files.turns, columns=[*tables.KEYS, *TOKENS]).filter(pc.is_in(names, value_set=chosen))
