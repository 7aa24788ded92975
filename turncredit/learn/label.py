"""Stage `label`: a judge's labels for a table of turns."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from turncredit import tables
from turncredit.config import Experiment
from turncredit.credit import Method
from turncredit.judges.config import Ask, JudgeConfig, judge_name
from turncredit.judges.label import costs, label_turns
from turncredit.learn.progress import progress

#: parts of methods that read a number from the labels, and which; all others read the role
ASKS: dict[str, Ask] = {"has_judge": "score", "triage_scalar": "progress"}


def ask_of(method: Method) -> Ask:
    """What `method` wants asked of the judge."""
    return next((ASKS[part.name] for part in method.parts if part.name in ASKS), "role")


def labels_name(config: JudgeConfig, ask: Ask) -> str:
    """The file name of labels beside their turns, without its suffix: such as `rule-role`."""
    return f"{judge_name(config)}-{ask}"


def decides(config: JudgeConfig) -> dict[str, Any]:
    """The part of a judge's configuration that decides its labels; the rest is how they are got."""
    keys = {"kind", "window"}
    if config.kind == "llm":
        keys |= {"model", "thinking", "temperature", "max_tokens", "structured"}
    return config.model_dump(mode="json", include=keys)


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
