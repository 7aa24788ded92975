"""Properties that must hold in every round, checked on the artifacts alone: nothing is trained, played or changed.

schemas       every artifact is a complete table with the schema and version that this code reads
made_from     every artifact was made from its input files as they are now (the hashes in its metadata)
keys          keys are unique, and turns run 0, 1, 2, ... in each rollout
success       success and score are constant within a rollout, only its last turn is `done`; no evaluated rollout occurs
              twice
sampled_by    the turns were sampled by the policy before the round, at the run's temperature, with the run's seed
same_keys     measures, credits, values, continuations, labels, hidden states are those of these turns, in their order
states        the hidden states that learned models read carry the action (where they are read after it) and the
              observation: a linear probe finds them (`turncredit.audit.hidden_probe`)
finite        advantages are finite; values are too, or all unknown; recorded log-probabilities are finite and at most 0
reproduced    a method's advantages can be recomputed from the turns and side tables
alpha_one     the method's turn term at its neutral parameters (alpha 1) leaves the estimator as it is, bit for bit
conservation  a rollout's projected credits (TurnRD) sum to its return
blind_labels  a judge's input does not change with success, score, rewards, progress and distance
logprobs      stored log-probabilities are the policy's, for a sample of rollouts (`turncredit.audit.logprobs`, which
              has torch)
first_ratio   the update's first step, before anything was learned, saw no ratio above 1
held_out      no evaluated game has the instruction and layout of a training game, but for as many as are declared
steps         the update took as many steps as its rollouts and settings say, whatever the credit was

A check gives one row, or none where the round has nothing to check. `worst` is its largest deviation, where it has one.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from turncredit import envs
from turncredit.audit import hidden_probe
from turncredit.audit.checked_round import CheckSettings, Round, RoundFiles
from turncredit.config.judge import judge_name
from turncredit.credit import Method, compute
from turncredit.credit.parts.compose import credit_columns
from turncredit.data import provenance, tables
from turncredit.data.seeding import generator
from turncredit.data.turns import Turns, check_logprobs
from turncredit.errors import UserError
from turncredit.judges.label import prompt_hashes
from turncredit.rollouts.held_out import shared_games
from turncredit.stats import intervals

#: the largest deviations that count as rounding: of a recomputed credit, and of a sum of projected credits (HAS: 2e-6)
SAME, CONSERVED = 1e-9, 1e-5
#: by the policy's dtype: of one recomputed log-probability, relative if it is beyond 1. In bfloat16 single tokens say
#: little (they were off by up to .73 with the right policy, by .99 with the one before): that bound is for gross errors
LOGPROB = {"float32": 1e-4, "bfloat16": 1.0}
#: in bfloat16: of recomputed log-probabilities in the mean over tokens. It was .003 to .013 with the right policy,
#: .043 to .065 with that before the first update (benchmarks/real)
MEAN_RECOMPUTED = 0.02
#: on an update's first minibatch in bfloat16: of the mean over its tokens of |log p - log p when sampled|
MEAN_LOGPROB = 0.05
#: the AUC of a linear probe from which a hidden state counts as carrying what is asked for
CARRIED = 0.8
#: rollouts of a round whose judge's input is recomputed
LABELLED = 16
#: columns of turns that reveal the outcome of a rollout, which a judge must not see
OUTCOME = ("success", "score", "reward", *tables.MEASURED, "done")


class Finding(NamedTuple):
    """The result of a check. `checked` counts the items; a check without items has no finding."""

    holds: bool
    worst: float | None
    detail: str
    checked: int


def check(settings: CheckSettings, files: RoundFiles) -> list[dict]:
    """One row of the table `invariants` for each check that had something to check.

    If a table cannot be read, the checks that need it fail with the reason; nothing is raised.
    """
    at = Round(settings, files)
    findings: dict[str, Finding | None] = {}
    for name, look in CHECKS.items():
        if name in NEED_TURNS and not findings["keys"].holds:  # type: ignore[union-attr]
            continue  # reported once, by `keys`
        try:
            findings[name] = look(at)
        except UserError as error:
            findings[name] = Finding(False, None, str(error), 1)
    return [as_row(files, name, finding) for name, finding in findings.items() if finding is not None]


def as_row(files: RoundFiles, name: str, finding: Finding) -> dict:
    """A finding as a row of the table."""
    return {"run": files.run, "seed": files.seed, "round": files.round, "name": name, **finding._asdict()}


def table(rows: Iterable[Mapping]) -> pa.Table:
    """The rows as a table `invariants`."""
    return pa.Table.from_pylist(list(rows), schema=tables.schema("invariants"))


# ------------------------------------------------------------------ the artifacts


def schemas(at: Round) -> Finding:
    """Every table has its schema's name, version and columns."""
    broken = []
    for name, path in at.files.all():
        try:
            tables.read(path, name, [])
            tables.conform(pq.read_schema(path).empty_table(), name, str(path))
            if not tables.metadata(path):
                broken.append(f"{path}: has no provenance; was it written by another program?")
        except UserError as error:
            broken.append(str(error))
    return _first_of(broken, len(at.files.all()))


def made_from(at: Round) -> Finding | None:
    """The inputs named in an artifact's metadata still have the same content."""
    files, broken, checked = at.files, [], 0
    hashes: dict[str, set[str]] = defaultdict(set)
    for name, path in files.all():
        if name in {"turns", "forks", *BY_TURN} and path.exists():
            hashes[name].add(provenance.file_hash(path))
    for _, path in files.all():
        inputs = tables.metadata(path).get("inputs", {}) if path.exists() and path != files.turns else {}
        for name, content in inputs.items():
            current = hashes.get(re.sub(r"_\d+$", "", name))  # each of an input's several files has a number
            if current:
                checked += 1
                if content not in current:
                    broken.append(
                        f"{path}: made from another '{name}' than is there; turncredit check says which is wrong"
                    )
    return _first_of(broken, checked) if checked else None


def keys(at: Round) -> Finding:
    """Keys are unique and turns have no gaps: `Turns` raises otherwise, and `check` reports it."""
    return Finding(True, None, "", at.turns.n)


def success(at: Round) -> Finding:
    """One success and one score per rollout, `done` on no turn but the last; no evaluated rollout twice."""
    turns = at.turns
    broken = []
    won_N = turns.truths("success", "the check of success")
    score_N = turns.numbers("score", "the check of success")
    done_N = turns.truths("done", "the check of success")
    for name, x_N in (("success", won_N), ("score", score_N)):
        differs = np.flatnonzero(x_N != x_N[turns.last_R][turns.rollout_N])
        if len(differs):
            broken.append(f"{turns.row_name(int(differs[0]))}: its {name} differs from that of the rollout's last turn")
    early_N = done_N.copy()
    early_N[turns.last_R] = False
    if early_N.any():
        broken.append(f"{turns.row_name(int(np.flatnonzero(early_N)[0]))}: done is true before the last turn")
    checked = turns.rollouts
    if at.files.evals is not None:
        evals = tables.read(at.files.evals, "evals", intervals.ROLLOUT_KEY).to_pandas()
        checked += len(evals)
        try:
            intervals.check_once_per_rollout(evals, str(at.files.evals))
        except UserError as error:
            broken.append(str(error))
    return _first_of(broken, checked)


def sampled_by(at: Round) -> Finding:
    """Policy, seed and temperature of the turns."""
    files = at.files
    wanted = {"policy_id": files.sampler, "seed": files.seed, "temperature": at.settings.temperature}
    broken = []
    for name, value in wanted.items():
        other = sorted(set(at.table.column(name).to_pylist()) - {value})
        if other:
            broken.append(f"{files.turns}: {name} is {other[0]!r} where it should be {value!r}")
    return _first_of(broken, at.table.num_rows)


def same_keys(at: Round) -> Finding | None:
    """Every table about these turns has their keys, in their order."""
    others = [(name, path) for name, path in at.files.all() if name in BY_TURN]
    broken = []
    for _, path in others:
        table = tables.read(path, columns=tables.KEYS)
        for key in tables.KEYS:
            if not table.column(key).combine_chunks().equals(at.table.column(key).combine_chunks()):
                broken.append(f"{path}: its rows are not those of {at.files.turns} (column '{key}' differs)")
                break
    return _first_of(broken, len(others)) if others else None


# ------------------------------------------------------------------ the credit


def finite(at: Round) -> Finding:
    """No advantage is infinite or NaN, no value unless all are unknown; every token has a log-probability."""
    broken, checked = [], at.table.num_rows
    try:
        check_logprobs(at.table, str(at.files.turns))
    except UserError as error:
        broken.append(str(error))
    for name, path in at.files.credits.items():
        advantage = at.credits(name).column("advantage").to_numpy()
        checked += len(advantage)
        if not np.isfinite(advantage).all():
            broken.append(f"{path}: {int((~np.isfinite(advantage)).sum())} advantages are not finite")
    for path in at.files.values.values():
        value = tables.read(path, "values").column("value")
        checked += len(value)
        if value.null_count not in (0, len(value)) or not np.isfinite(value.drop_null().to_numpy()).all():
            broken.append(f"{path}: some values are missing or not finite")
    return _first_of(broken, checked)


def reproduced(at: Round) -> Finding | None:
    """The advantages, computed again."""
    worst, broken, checked = 0.0, [], 0
    for name, path in at.files.credits.items():
        view = at.with_side(name)
        if view is None or _reads_a_model(at.method(name)):
            continue
        again = compute(view, at.method(name), seed=at.credit_seed).column("advantage").to_numpy()
        stored = at.credits(name).column("advantage").to_numpy()
        if len(stored) != len(again):
            broken.append(f"{path}: {len(stored)} rows for {len(again)} turns")
            continue
        checked += len(stored)
        error_N = np.nan_to_num(np.abs(stored - again) / np.maximum(1.0, np.abs(again)), nan=np.inf)
        row = int(error_N.argmax())
        worst = max(worst, float(error_N[row]))
        if error_N[row] > SAME:
            broken.append(f"{path}: row {row} has the advantage {stored[row]:.6g}; recomputed it is {again[row]:.6g}")
    return _first_of(broken, checked, worst) if checked or broken else None


def alpha_one(at: Round) -> Finding:
    """Without its turn term, a method is its base estimator; also checked for two methods that any turns allow."""
    worst, broken, checked = 0.0, [], 0
    for name in dict.fromkeys([*at.files.credits, "has_progressive", "random_credit"]):
        method = at.method(name)
        off = _off(method)
        view = at.with_side(name)
        if off is None or view is None:
            continue
        if any(not view.has(column) or view.table.column(column).null_count for column in method.reads):
            continue
        without = credit_columns(view, replace(method, turn_term=None), at.credit_seed)["advantage"]
        shaped = credit_columns(view, off, at.credit_seed)["advantage"]
        checked += view.n
        if not np.array_equal(without, shaped):
            worst = max(worst, float(np.abs(without - shaped).max()))
            broken.append(f"{name}: with its turn term switched off the advantages differ by up to {worst:.2g}")
    return _first_of(broken, checked, worst)


def conservation(at: Round) -> Finding | None:
    """The stored projected credits of a rollout sum to its return."""
    worst, broken, checked = 0.0, [], 0
    for name, path in at.files.credits.items():
        term = at.method(name).turn_term
        if term is None or not term.name.startswith("has_turnrd"):
            continue
        stored = at.credits(name)
        own = f"{term.name}_credit"  # where the estimator has a `credit` of its own
        credit_N = stored.column(own if own in stored.column_names else "credit").to_numpy()[at.turns.order_N]
        error_R = np.abs(at.turns.sum_R(credit_N) - at.turns.return_R)
        checked += len(error_R)
        if not error_R.max() <= CONSERVED:
            rollout = int(np.nan_to_num(error_R, nan=np.inf).argmax())
            broken.append(
                f"{path}: the credits of {at.turns.rollout_name(rollout)} sum to its return only within "
                f"{error_R[rollout]:.2g}"
            )
        worst = max(worst, float(error_R.max()))
    return _first_of(broken, checked, worst) if checked else None


def first_ratio(at: Round) -> Finding | None:
    """The update starts from the policy that sampled: on its first minibatch no token is more likely than it was.

    In bfloat16, where single tokens are, the mean over the tokens decides (`MEAN_LOGPROB`). Not checked with dropout in
    the adapters, which changes a policy's log-probabilities in training.
    """
    if at.files.updates is None or at.settings.dropout:
        return None
    log = tables.read(at.files.updates, "updates", ["step", "ratio_max"], ["log_ratio"])
    if not log.num_rows:
        return None
    first = log.slice(int(np.argmin(log.column("step").to_numpy())), 1).to_pylist()[0]
    if first["ratio_max"] is None:  # a first minibatch without any advantage, which was not computed
        return None
    excess = first["ratio_max"] - 1.0
    # A ratio is the exponential of a difference of log-probabilities, which can be 10 and more.
    small = excess <= float(np.expm1(10 * LOGPROB["float32"]))
    where = f"{at.files.updates}: on the first minibatch"
    if small or at.settings.dtype == "float32":
        return _finding(small, excess, f"{where} a token was {1 + excess:.5f} times as likely as when sampled")
    apart = first.get("log_ratio")
    if apart is None:  # an earlier version's table
        return None
    line = f"{where} log-probabilities were {apart:.3f} from those when sampled, in the mean over its tokens"
    return _finding(apart <= MEAN_LOGPROB, apart, line)


def steps(at: Round) -> Finding | None:
    """Optimiser steps of the update: epochs times the minibatches of rollouts, without dead groups where asked."""
    asked = at.settings.update
    if at.files.updates is None or asked is None:
        return None
    turns = at.turns
    rollouts = turns.rollouts
    if asked.skip_dead_groups:
        rollouts = int((~turns.dead_G)[turns.group_R].sum())
    wanted = asked.epochs * math.ceil(rollouts / asked.minibatch)
    taken = tables.read(at.files.updates, "updates", ["step"]).num_rows
    line = f"{at.files.updates}: {taken} steps, where {rollouts} rollouts should give {wanted}"
    return _finding(taken == wanted, None, line)


def held_out(at: Round) -> Finding | None:
    """No game of evaluation is one of training, by instruction and layout; `worst` is how many are.

    The games of demonstrations count as training games. As many as the configuration declares (`tasks.shared`) are no
    violation, but named all the same.
    """
    if at.files.eval_tasks is None:
        return None
    learned = [row for path in at.files.learned for row in tables.read(path, "tasks").to_pylist()]
    evaluated = tables.read(at.files.eval_tasks, "tasks").to_pylist()
    shared = shared_games(envs.load(at.settings.env), learned, evaluated)
    named = [f"the evaluated game '{one}' is the training game '{other}'" for one, other in shared]
    listed = _first_of(named, len(evaluated), float(len(shared)))
    return listed._replace(holds=len(shared) <= at.settings.shared)


def states(at: Round) -> Finding | None:
    """What a linear probe finds in the hidden states. `worst` is 1 - AUC, and `detail` says what was measured."""
    said, broken, worst = [], [], 0.0
    for path in at.files.beside_of("hiddens"):
        column = tables.read(path, "hiddens", ["hidden"]).column("hidden").combine_chunks()
        hidden_ND = column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)
        if len(hidden_ND) != at.table.num_rows or not np.isfinite(hidden_ND).all():
            continue  # reported by `same_keys`, or by whatever reads it
        found = hidden_probe.weakest(hidden_probe.probe(hidden_ND, at.table))
        if not found:
            continue
        said.append(f"{path.stem}: " + ", ".join(f"{one.name} {one.auc:.2f}" for one in found.values()))
        after = path.stem.endswith("-action")
        for about in ("action", "observation") if after else ("observation",):
            if (answer := found.get(about)) is not None:
                worst = max(worst, 1 - answer.auc)
                if answer.auc < CARRIED:
                    broken.append(f"{path}: does not carry the {about}: AUC {answer.auc:.2f} for '{answer.name}'")
    if not said:
        return None
    finding = _first_of(broken, len(said), worst)
    return finding if broken else finding._replace(detail=f"AUC of a linear probe: {'; '.join(said)}")


# ------------------------------------------------------------------ the labels


def blind_labels(at: Round) -> Finding | None:
    """The hash of the judge's input, for a sample of rollouts with changed outcomes."""
    broken, checked = [], 0
    for path in at.files.labels:
        judge, _, ask = path.stem.rpartition("-")
        if judge != judge_name(at.settings.judge):
            continue  # another configuration's judge, whose settings are not known here
        rows = _sampled_rows(at.turns, LABELLED, at.files)
        sample = _changed_outcomes(at.table.take(pa.array(rows)))
        shown = prompt_hashes(sample, at.settings.judge, ask)  # type: ignore[arg-type]
        stored = tables.read(path, "labels", ["prompt_hash"]).column("prompt_hash").take(pa.array(rows)).to_pylist()
        checked += len(rows)
        differ = [row for row, one, two in zip(rows, shown, stored, strict=True) if one != two]
        if differ:
            broken.append(
                f"{path}: for {len(differ)} of {len(rows)} turns the judge was shown something else (row {differ[0]})"
            )
    return _first_of(broken, checked) if checked else None


def _sampled_rows(turns: Turns, count: int, files: RoundFiles) -> np.ndarray:
    """The rows, in the table's order, of some whole rollouts."""
    rng = generator("invariants", files.run, files.seed, files.round)
    chosen = rng.choice(turns.rollouts, size=min(count, turns.rollouts), replace=False)
    return np.sort(turns.order_N[np.isin(turns.rollout_N, chosen)])


def _changed_outcomes(sample: pa.Table) -> pa.Table:
    """The turns with other values in every column that reveals the outcome."""
    for name in OUTCOME:
        if name in sample.column_names:
            column = sample.column(name)
            if pa.types.is_boolean(column.type):
                other = pa.array([not value for value in column.to_pylist()])
            else:
                other = pa.array([None if value is None else value + 1 for value in column.to_pylist()], column.type)
            sample = sample.set_column(sample.column_names.index(name), name, other)
    return sample


# ------------------------------------------------------------------ helpers


def _finding(holds: bool, worst: float | None, line: str) -> Finding:
    """The finding of a check of one item; `line` says what is wrong where it does not hold."""
    return Finding(holds, worst, "" if holds else line, 1)


def _first_of(broken: list[str], checked: int, worst: float | None = None) -> Finding:
    """A finding from a list of violations: the text of the first one, and how many more there are."""
    more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
    return Finding(not broken, worst, f"{broken[0]}{more}" if broken else "", checked)


def _off(method: Method) -> Method | None:
    """The method with its turn term at its neutral parameters; None if it has no turn term that declares some."""
    term = method.turn_term
    return replace(method, turn_term=term.with_params(**term.neutral)) if term and term.neutral else None


def _reads_a_model(method: Method) -> bool:
    """Whether the method's similarities come from a language model, which is not loaded to check."""
    return any(str(part.settable().get("scorer", "")).split(":")[0] in MODEL_SCORERS for part in method.parts)


#: the tables that have a row for each turn
BY_TURN = {"measures", "credits", "values", "continuations", "labels", "hiddens", "logprobs"}
MODEL_SCORERS = ("minilm", "bi-encoder", "cross-encoder")
CHECKS: dict[str, Callable[[Round], Finding | None]] = {
    "schemas": schemas,
    "made_from": made_from,
    "keys": keys,
    "success": success,
    "sampled_by": sampled_by,
    "same_keys": same_keys,
    "states": states,
    "finite": finite,
    "reproduced": reproduced,
    "alpha_one": alpha_one,
    "conservation": conservation,
    "blind_labels": blind_labels,
    "first_ratio": first_ratio,
    "held_out": held_out,
    "steps": steps,
}
NEED_TURNS = {
    "steps", "success", "sampled_by", "same_keys", "states", "reproduced", "alpha_one", "conservation", "blind_labels",
}  # fmt: skip
