"""The evaluations behind a number of the report, as rows, SQL and files.

The three are defined next to each other because they must agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import pandas as pd

from turncredit.config import Experiment
from turncredit.config.layout import artifact as artifact_called
from turncredit.config.layout import of_sft, shell_pattern
from turncredit.config.warm_starts import is_start, start_words
from turncredit.credit.parts.baselines import BASELINE, upper_bound
from turncredit.stats import intervals
from turncredit.stats.intervals import Estimate
from turncredit.views.collect import Results
from turncredit.views.sql_views import quoted

#: What of a run a number is of: the mean of the last three evaluated rounds, the last round, or each seed's best one.
Checkpoint = Literal["final", "last", "best"]
#: The difference of the baseline to itself: its place among the others, and its point in a figure.
NO_DIFFERENCE = Estimate(0.0, 0.0, 0.0, float("nan"), 0, 0, 0, "")


def final_rounds(results: Results) -> list[int]:
    """The last three evaluated rounds of the configuration: the meaning of "final" everywhere in the report."""
    return intervals.last_rounds(results.experiment.eval_rounds())


def chosen(
    results: Results, method: str, *, rounds: Sequence[int], mode: str, seeds: Sequence[int] | None
) -> pd.DataFrame:
    """The evaluations of a method in a mode and in some rounds; of all seeds where `seeds` is None."""
    evals = results.evals
    keep = (evals["method"] == method) & (evals["mode"] == mode) & evals["round"].isin(rounds)
    return evals[keep if seeds is None else keep & evals["seed"].isin(seeds)]


def final_evals(
    results: Results, method: str, mode: str | None = None, rounds: Sequence[int] | None = None
) -> pd.DataFrame:
    """The evaluations behind a method's final figure: last three rounds (or `rounds`), finished seeds only; no row
    unless all of these rounds are there."""
    rounds = final_rounds(results) if rounds is None else rounds
    seeds = None if is_start(method) else results.finished_seeds(method)
    evals = chosen(results, method, rounds=rounds, mode=mode or results.experiment.eval.primary, seeds=seeds)
    return evals if set(rounds) == set(evals["round"]) else evals.iloc[:0]


def best_rounds(results: Results, method: str) -> dict[int, int]:
    """Each finished seed's round of the highest success in the primary mode; the first of equals.

    It is selected on the games that it is then reported on, so its success is biased upwards.
    """
    seeds, rounds = results.finished_seeds(method), results.experiment.eval_rounds()
    evals = chosen(results, method, rounds=rounds, mode=results.experiment.eval.primary, seeds=seeds)
    success = evals.groupby(["seed", "round"])["success"].mean().reset_index()
    best = success.sort_values(["seed", "success", "round"], ascending=[True, False, True]).groupby("seed").first()
    return {int(seed): int(round_) for seed, round_ in best["round"].items()}


def at_checkpoint(
    results: Results, method: str, checkpoint: Checkpoint, families: Sequence[str] = ()
) -> tuple[Estimate, str, str] | None:
    """A method's success at a checkpoint on some families' games (all where none is named): estimate, SQL and files.

    The best round is selected by the success on all families, and its interval is over seeds only. None for a method
    without a finished seed, and for an SFT policy at other checkpoints than `final`: it is one policy.
    """
    evals = final_evals(results, method)
    if evals.empty or (is_start(method) and checkpoint != "final"):
        return None
    mode = results.experiment.eval.primary
    seeds = None if is_start(method) else results.finished_seeds(method)
    rounds = final_rounds(results) if checkpoint == "final" else results.experiment.eval_rounds()[-1:]
    more = f" AND family IN ({', '.join(quoted(family) for family in families)})" if families else ""
    if checkpoint == "best":
        best = best_rounds(results, method)
        rounds = sorted(set(best.values()))
        more += f" AND (seed, round) IN ({', '.join(f'({seed}, {round_})' for seed, round_ in best.items())})"
    evals = chosen(results, method, rounds=rounds, mode=mode, seeds=seeds)
    if checkpoint == "best":
        evals = evals[evals["round"] == evals["seed"].map(best)]
    if families:
        evals = evals[evals["family"].isin(families)]
    if evals.empty:
        return None
    if checkpoint == "best":
        estimate = intervals.mean_of_seeds(
            evals.groupby("seed")["success"].mean().to_numpy(), len(evals), evals["task_id"].nunique()
        )
    else:
        estimate = intervals.crossed_mean(intervals.cells(evals))
    where = where_sql(results, method, rounds, mode, seeds) + more
    return estimate, mean_sql(where), eval_files(method, rounds, seeds)


def paired_differences(
    results: Results, left: str, right: str, mode: str | None = None, rounds: Sequence[int] | None = None
) -> pd.DataFrame | None:
    """Differences of two methods' final success game by game (`intervals.paired_cells`), over the seeds that both have
    finished; None if none. `rounds` as in `final_evals`."""
    ours, theirs = final_evals(results, left, mode, rounds), final_evals(results, right, mode, rounds)
    if not is_start(right):
        common = set(ours["seed"]) & set(theirs["seed"])
        ours, theirs = ours[ours["seed"].isin(common)], theirs[theirs["seed"].isin(common)]
    if ours.empty or theirs.empty:
        return None
    return intervals.paired_cells(ours, theirs, shared=is_start(right))


def paired(results: Results, left: str, right: str, mode: str | None = None) -> Estimate | None:
    """The mean of `paired_differences`, with its interval; None if there are none."""
    differences = paired_differences(results, left, right, mode)
    return None if differences is None else intervals.crossed_mean(differences)


def upper_of(results: Results) -> str:
    """The experiment's upper bound."""
    return upper_bound(results.experiment.methods)


def closed_gap(results: Results, method: str) -> tuple[Estimate | None, list[int]]:
    """The share of the gap from flat GRPO to the upper bound that `method` closes, and the seeds all three finished."""
    evals = {name: final_evals(results, name) for name in (method, BASELINE, upper_of(results))}
    seeds = sorted(set.intersection(*(set(frame["seed"]) for frame in evals.values())))
    if not seeds:
        return None, []
    mine, flat, upper = (frame[frame["seed"].isin(seeds)] for frame in evals.values())
    return intervals.gap_share(intervals.paired_cells(mine, flat), intervals.paired_cells(upper, flat)), seeds


def where_sql(
    results: Results, method: str, rounds: Sequence[int], mode: str, seeds: Sequence[int] | None, alias: str = ""
) -> str:
    """The SQL condition that selects a method's rows in some rounds, a mode and some seeds (all if None)."""
    dot = f"{alias}." if alias else ""
    parts = [
        f"{dot}experiment = {quoted(results.folder.name)}",
        f"{dot}method = {quoted(method)}",
        f"{dot}mode = {quoted(mode)}",
        f"{dot}round IN ({listed(rounds)})",
    ]
    return " AND ".join([*parts, *([] if seeds is None else [f"{dot}seed IN ({listed(seeds)})"])])


def listed(numbers: Sequence[int]) -> str:
    """Numbers as SQL lists them: `10, 11, 12`."""
    return ", ".join(str(number) for number in numbers)


def files_of(artifact: str, **keys: Sequence[str | int]) -> str:
    """The files of an artifact as one shell pattern, below the experiment's folder; all where a key is not given."""
    return shell_pattern(artifact_called(artifact).pattern, **keys)


def eval_files(method: str, rounds: Sequence[int], seeds: Sequence[int] | None) -> str:
    """The evaluation files of a method as one shell pattern. An SFT policy's are those of seed 0."""
    return files_of("evals", method=[method], seed=[0] if is_start(method) else seeds or [], round=rounds)


def sampler(policy: str) -> str:
    """Who sampled turns with this key `policy`, in words; for the SFT policy also how, which methods may override."""
    start, _, sampling = policy.partition("-")
    return f"{start_words(start)} ({sampling})" if of_sft(policy) else policy


def agent_words(experiment: Experiment, who: str) -> str:
    """The agent that a method or a warm start plays with: its name in the configuration, and what it is."""
    kind, name = experiment.agent_of(who).name, experiment.agent_key(who).removeprefix("agents.")
    return kind if name in ("agent", kind) else f"{name} ({kind})"


def mean_sql(where: str) -> str:
    """The SQL of a mean success: seeds and rounds have equal weight."""
    return (
        "SELECT avg(success) FROM (SELECT seed, round, avg(success::INT) AS success FROM evals "
        f"WHERE {where} GROUP BY seed, round)"
    )


def difference_sql(
    results: Results, left: str, right: str, rounds: Sequence[int], mode: str, seeds: Sequence[int]
) -> str:
    """The SQL of the paired difference of two methods' success, by seed, round, game and repeat."""
    keys = "experiment, mode, round, task_id, repeat" + ("" if is_start(right) else ", seed")
    others = None if is_start(right) else seeds
    return (
        "SELECT avg(difference) FROM (SELECT a.seed, a.round, avg(a.success::INT - b.success::INT) AS difference "
        f"FROM evals a JOIN evals b USING ({keys}) WHERE {where_sql(results, left, rounds, mode, seeds, 'a')} "
        f"AND {where_sql(results, right, rounds, mode, others, 'b')} GROUP BY a.seed, a.round)"
    )


def gap_sql(results: Results, method: str, rounds: Sequence[int], mode: str, seeds: Sequence[int]) -> str:
    """The SQL of the share of the gap from flat GRPO to the upper bound that a method closes."""
    gain, gap = (difference_sql(results, name, BASELINE, rounds, mode, seeds) for name in (method, upper_of(results)))
    return f"SELECT ({gain}) / ({gap})"
