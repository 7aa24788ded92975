"""The evaluations behind a number of the report: one SQL condition selects the rows and is printed under the number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import pandas as pd

from turncredit.config import Experiment
from turncredit.config.layout import artifact as artifact_called
from turncredit.config.layout import of_sft, sampling_words, shell_pattern
from turncredit.config.warm_starts import is_start, start_words
from turncredit.credit.parts.baselines import privileged_reference
from turncredit.stats import intervals
from turncredit.stats.intervals import Estimate
from turncredit.views.collect import Results
from turncredit.views.sql_views import quoted

#: What of a run a number is of: the mean of the last three evaluated rounds, the last round, or each seed's best one.
Checkpoint = Literal["final", "last", "best"]
#: The difference of the baseline to itself: its place among the others, and its point in a figure.
NO_DIFFERENCE = Estimate(0.0, 0.0, 0.0, float("nan"), 0, 0, 0, "")


class Sourced(NamedTuple):
    """An estimate, the SQL that computes its value, and the files that it reads."""

    estimate: Estimate
    sql: str
    files: str


def final_rounds(results: Results) -> list[int]:
    """The last three evaluated rounds of the configuration: the meaning of "final" everywhere in the report."""
    return intervals.last_rounds(results.experiment.eval_rounds())


def seeds_of(results: Results, method: str) -> list[int] | None:
    """The finished seeds of a method; None for a warm start, which is one policy for all seeds."""
    return None if is_start(method) else results.finished_seeds(method)


def _rows(results: Results, where: str) -> pd.DataFrame:
    """The evaluations that a condition selects."""
    return results.rows(
        f"SELECT policy_id, method, seed, round, mode, task_id, repeat, success FROM evals WHERE {where}"
    )


def final_evals(
    results: Results, method: str, rounds: Sequence[int] | None = None, seeds: Sequence[int] | None = None
) -> pd.DataFrame:
    """The evaluations behind a method's final figure: the last three rounds (or `rounds`) of finished seeds (or
    `seeds`); no row unless all of these rounds are there."""
    rounds = final_rounds(results) if rounds is None else rounds
    seeds = seeds_of(results, method) if seeds is None or is_start(method) else seeds
    evals = _rows(results, where_sql(results, method, rounds, None, seeds))
    return evals if set(rounds) == set(evals["round"]) else evals.iloc[:0]


def has_final(results: Results, method: str, mode: str | None = None) -> bool:
    """Whether `final_evals` has any row."""
    where = where_sql(results, method, final_rounds(results), mode, seeds_of(results, method))
    return results.value(f"SELECT count(DISTINCT round) FROM evals WHERE {where}") == len(final_rounds(results))


def best_rounds(results: Results, method: str) -> dict[int, int]:
    """Each finished seed's round of the highest success in the primary mode; the first one wins ties.

    It is selected on the games that it is then reported on, so its success is biased upwards.
    """
    where = where_sql(results, method, results.experiment.eval_rounds(), None, seeds_of(results, method))
    success = _rows(results, where).groupby(["seed", "round"])["success"].mean().reset_index()
    best = success.sort_values(["seed", "success", "round"], ascending=[True, False, True]).groupby("seed").first()
    return {int(seed): int(round_) for seed, round_ in best["round"].items()}


def mean_success(
    results: Results,
    method: str,
    rounds: Sequence[int],
    *,
    seeds: Sequence[int] | None,
    mode: str | None = None,
    condition: str = "",
    seeds_only: bool = False,
) -> Sourced | None:
    """A method's mean success, with its interval over seeds and games, or over `seeds_only`; None without a rollout.

    `condition` is a further SQL condition.
    """
    where = where_sql(results, method, rounds, mode, seeds) + condition
    evals = _rows(results, where)
    if evals.empty:
        return None
    if seeds_only:
        success_S = evals.groupby("seed")["success"].mean().to_numpy()
        estimate = intervals.mean_of_seeds(success_S, len(evals), evals["task_id"].nunique())
    else:
        estimate = intervals.crossed_mean(intervals.cells(evals))
    sql = mean_sql(where)
    return Sourced(replace(estimate, value=results.value(sql)), sql, eval_files(method, rounds, seeds))


def at_checkpoint(
    results: Results,
    method: str,
    checkpoint: Checkpoint,
    among: Mapping[str, Sequence[str]] | None = None,
    mode: str | None = None,
) -> Sourced | None:
    """A method's success at a checkpoint on some games: `{"family": ["heat"]}`, `{"split": [...]}`; all without it.

    The best round is selected by the success on all games, and its interval is over seeds only. None for a method
    without a finished seed, and for an SFT policy at other checkpoints than `final`: it is one policy.
    """
    if not has_final(results, method, mode) or (is_start(method) and checkpoint != "final"):
        return None
    rounds = final_rounds(results) if checkpoint == "final" else results.experiment.eval_rounds()[-1:]
    condition = "".join(
        f" AND {column} IN ({', '.join(map(quoted, values))})" for column, values in (among or {}).items() if values
    )
    if checkpoint == "best":
        best = best_rounds(results, method)
        rounds = sorted(set(best.values()))
        condition += f" AND (seed, round) IN ({', '.join(f'({seed}, {round_})' for seed, round_ in best.items())})"
    seeds = seeds_of(results, method)
    return mean_success(
        results, method, rounds, seeds=seeds, mode=mode, condition=condition, seeds_only=checkpoint == "best"
    )


def common_seeds(results: Results, *methods: str) -> list[int]:
    """The seeds that all of these methods have finished, warm starts left out: they are one policy for all seeds."""
    of = [results.finished_seeds(method) for method in methods if not is_start(method)]
    return sorted(set.intersection(*(set(seeds) for seeds in of))) if of else [0]


def paired_differences(
    results: Results, left: str, right: str, rounds: Sequence[int] | None = None
) -> pd.DataFrame | None:
    """Differences of two methods' final success game by game (`intervals.paired_cells`), over the seeds that both have
    finished; None if none. `rounds` as in `final_evals`. A warm start has one policy, paired with every seed."""
    if is_start(left) and not is_start(right):
        found = paired_differences(results, right, left, rounds)
        return None if found is None else found.assign(value=-found["value"])
    seeds = common_seeds(results, left, right)
    ours, theirs = (final_evals(results, method, rounds, seeds) for method in (left, right))
    if ours.empty or theirs.empty:
        return None
    return intervals.paired_cells(ours, theirs, shared=is_start(right))


def paired(results: Results, left: str, right: str) -> Estimate | None:
    """The mean of `paired_differences`, with its interval; None if there are none."""
    found = difference(results, left, right)
    return found and found.estimate


def difference(results: Results, left: str, right: str) -> Sourced | None:
    """`paired` with its SQL and files."""
    differences = paired_differences(results, left, right)
    if differences is None:
        return None
    rounds, seeds = final_rounds(results), common_seeds(results, left, right)
    sql = difference_sql(results, left, right, seeds)
    files = " ".join(eval_files(method, rounds, seeds) for method in (left, right))
    return Sourced(replace(intervals.crossed_mean(differences), value=results.value(sql)), sql, files)


def reference_of(results: Results) -> str:
    """The experiment's privileged reference."""
    return privileged_reference(results.experiment.methods)


def where_sql(
    results: Results, method: str, rounds: Sequence[int], mode: str | None, seeds: Sequence[int] | None, alias: str = ""
) -> str:
    """The SQL condition that selects a method's rows in some rounds, a mode (the primary one if None) and some seeds
    (all if None)."""
    parts = [
        f"{alias}experiment = {quoted(results.folder.name)}",
        f"{alias}method = {quoted(method)}",
        f"{alias}mode = {quoted(mode or results.experiment.eval.primary)}",
        f"{alias}round IN ({listed(rounds)})",
    ]
    return " AND ".join([*parts, *([] if seeds is None else [f"{alias}seed IN ({listed(seeds)})"])])


def listed(numbers: Sequence[int]) -> str:
    """Numbers as SQL lists them: `10, 11, 12`; NULL for none, which nothing equals."""
    return ", ".join(str(number) for number in numbers) or "NULL"


def files_of(artifact: str, **keys: Sequence[str | int]) -> str:
    """The files of an artifact as one shell pattern, below the experiment's folder; all where a key is not given."""
    return shell_pattern(artifact_called(artifact).pattern, **keys)


def eval_files(method: str, rounds: Sequence[int], seeds: Sequence[int] | None) -> str:
    """The evaluation files of a method as one shell pattern. An SFT policy's are those of seed 0."""
    return files_of("evals", method=[method], seed=[0] if is_start(method) else seeds or [], round=rounds)


def sampler(policy: str) -> str:
    """Who sampled turns with this key `policy`, in words; for the SFT policy also how, which methods may override."""
    start, _, sampling = policy.partition("-")
    return f"{start_words(start)} ({sampling_words(sampling)})" if of_sft(policy) else policy


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


def difference_sql(results: Results, left: str, right: str, seeds: Sequence[int]) -> str:
    """The SQL of the paired difference of two methods' final success, by seed, round, game and repeat."""
    keys = "experiment, mode, round, task_id, repeat" + ("" if is_start(right) else ", seed")
    rounds = final_rounds(results)
    ours = where_sql(results, left, rounds, None, seeds, "a.")
    theirs = where_sql(results, right, rounds, None, None if is_start(right) else seeds, "b.")
    return (
        "SELECT avg(difference) FROM (SELECT a.seed, a.round, avg(a.success::INT - b.success::INT) AS difference "
        f"FROM evals a JOIN evals b USING ({keys}) WHERE {ours} AND {theirs} GROUP BY a.seed, a.round)"
    )
