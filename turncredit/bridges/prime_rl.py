"""prime-rl: an `Algorithm` whose advantages are those of a method, one for each turn, on its sampled tokens.

    [orchestrator.algo]
    type = "turncredit"
    method = "gigpo"
    params = {gamma = 0.9}

prime-rl reads no algorithm from outside its own code, so a checkout of it has to be told of this one: a configuration
and an entry of `ALGORITHM_CLASSES` (docs/integrations.md). Written against `orchestrator/algo/base.py` and
`configs/algorithm.py` of commit 28930450dbaac7d4326cef4f2fb9d3be71c3b57c, where an algorithm gets a group's episodes of
verifiers and sets `node.advantages`. Not run in prime-rl, which is on no package index: tested with the episodes of
verifiers 0.4.0 and a stand-in of the base class.
"""

from __future__ import annotations

from typing import Any

from prime_rl.orchestrator.algo.base import Algorithm, iter_trainable_traces

from turncredit.bridges.spans import method_of
from turncredit.bridges.verifiers import COLUMNS, assign


class CreditAlgorithm(Algorithm):
    """The algorithm of a configuration with `method` and `params`.

    As for prime-rl's own algorithms, a trace that failed, has no sampled token or is not to be trained on is no part
    of the group.

    Raises UserError for a method that needs side tables.
    """

    def __init__(self, config: Any, clients: Any) -> None:
        super().__init__(config, clients)
        self.credit_method = method_of(config.method, config.params, None, "orchestrator.algo.method", COLUMNS)

    async def score_group(self, episodes: list[Any]) -> None:
        """Set the advantages of a group's traces."""
        trainable = {id(trace) for _, trace in iter_trainable_traces(episodes)}
        kept = [[trace for trace in episode.traces if id(trace) in trainable] for episode in episodes]
        assign(
            [
                episode.model_copy(update={"traces": traces})
                for episode, traces in zip(episodes, kept, strict=True)
                if traces
            ],
            self.credit_method,
        )
