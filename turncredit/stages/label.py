"""Stage `label`: a judge's labels for a table of turns."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from turncredit import tables
from turncredit.config import Experiment
from turncredit.heartbeat import progress
from turncredit.judges.config import Ask, decides
from turncredit.judges.label import costs, label_turns


def label(
    *,
    experiment: Experiment,
    ask: Ask,
    turns: str | Path,
    cache: str | Path,
    out: str | Path,
) -> dict[str, float]:
    """Write the labels that the experiment's judge gives `turns`; returns what they cost.

    `cache` is the folder of the language model's answers, shared by all experiments. With `judge.serve` the model's
    server runs on this node for as long as this takes.
    """
    config = experiment.judge
    table = tables.read(turns, "turns")
    with ExitStack() as stack:
        if config.serve is not None:
            from turncredit.judges.serve import serving

            config = stack.enter_context(serving(config))
        labels = label_turns(
            table,
            config,
            ask=ask,
            cache=cache,
            where=str(turns),
            progress=lambda done: progress(done, table.num_rows),
        )
    made_by = tables.provenance("label", config={"judge": decides(config), "ask": ask}, inputs={"turns": turns})
    tables.write(labels, out, "labels", made_by)
    return costs(labels)
