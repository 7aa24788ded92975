"""The set of rollouts with true advantages that `turncredit score` measures methods on (docs/score_data.md).

python -m benchmarks.score_data run       makes the rollouts (results/score_*; hours), and packs them
python -m benchmarks.score_data pack results/score_household_1 ... --out FOLDER     packs what is there
python -m benchmarks.score_data run --games 51 --out FOLDER     another set, of other games: to develop a method on
python -m benchmarks.score_data run --tiny --out FOLDER         a few rollouts of each world, to see that it works

`run` runs one experiment for each of `EXPERIMENTS`, all by config/score_data.yaml laid over a world's own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from turncredit.audit.score.rollout_set import SIDE, TABLES, write
from turncredit.config import Experiment, from_mapping
from turncredit.config.layout import Layout, Located
from turncredit.config.merging import merge
from turncredit.credit import METHODS
from turncredit.credit.models.settings import learns_from_credits, model_settings
from turncredit.data import tables
from turncredit.data.tables import KEYS, MEASURED
from turncredit.data.yaml_files import read_mapping
from turncredit.errors import UserError
from turncredit.views.experiments import read_config

ROOT = Path(__file__).resolve().parents[1]
#: What is laid over each world's own experiment.
CONFIG = "config/score_data.yaml"
#: Where the set of the package is.
BUILT_IN = ROOT / "turncredit" / "audit" / "score" / "rollouts"
#: What the set is called, and the version that `run` makes: another one whenever its rollouts are others.
NAME, VERSION = "turncredit rollouts", "2"
LICENCE = "Apache-2.0"


class Made(NamedTuple):
    """An experiment of the set.

    configs    its files of configuration, before config/score_data.yaml
    settings   what is set beside them
    also       audited methods beside those of config/score_data.yaml, which read what only this world or agent has
    without    those of config/score_data.yaml that would take too long
    games      added to the seed of the games: no two parts share a game, so that their groups can be resampled alone
    """

    configs: tuple[str, ...] = ()
    settings: Mapping[str, Any] = {}
    also: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    games: int = 0


EXPERIMENTS: dict[str, Made] = {
    "score_household_1": Made(),
    "score_household_2": Made(settings={"sft": {"seed": 1}, "policy": {"scratch": {"seed": 1}}}, games=100),
    # The agent of config/hipif.yaml without its reward: its turns have subgoals, which other agents' lack.
    "score_household_hipif": Made(
        settings={
            "env": {"household": {"success_reward": 10}},
            "agent": {"name": "hipif", "max_response_tokens": 40},
            "demos": {"count": 3200, "slips": 0.1},
            "sft": {"epochs": 1.1, "batch": 24},
            "define": {"flat_grpo": {"base": "flat_grpo", "params": {"weighting": "row"}}},
            "rollout": {"tasks": 16},
            "update": {"minibatch": 16},
        },
        also=("hipif", "hipif_gigpo", "hiper"),
        without=("vineppo",),  # each of its continuations' turns reads a context of its own
        games=200,
    ),
    "score_sokoban": Made(("config/sokoban.yaml",)),
    "score_webshop": Made(("config/webshop.yaml",)),
    "score_desk": Made(("config/desk.yaml",)),
    "score_virtualhome": Made(("config/virtualhome.yaml",)),
    "score_searchqa": Made(("config/searchqa.yaml",), also=("igpo", "trace", "delta_belief", "lotapo")),
}
#: The seed of the games in the package's set (config/score_data.yaml), to which `Made.games` is added.
GAMES = 50
#: The audited rounds of these experiments (config/score_data.yaml), and what their parts are called.
ROUNDS = {2: "early", 6: "late"}
#: What makes every experiment tiny; its only audited rounds are then these.
TINY: dict[str, Any] = {
    "rounds": 2,
    "tasks": {"train": 64, "eval": 64},
    "demos": {"count": 48},
    "sft": {"epochs": 1},
    "rollout": {"tasks": 2, "group_size": 4},
    "update": {"minibatch": 8},
    "eval": {"games": 8},
    "audit": {"rounds": [2], "branch": {"turns": 12, "min_continuations": 2, "max_continuations": 2}},
}
TINY_ROUNDS = (2,)
#: Columns of the turns that are kept, where the world has them. Token ids and the turns' provenance are not.
TURN_COLUMNS = (
    *KEYS, "task_id", "family", "goal", "observation", "response_logprobs", "response_text", "action", "valid",
    "well_formed", "next_observation", "reward", "failed", "error_reply", "done", "success", "subgoal", "subgoal_index",
    *MEASURED,
)  # fmt: skip
BRANCH_COLUMNS = (
    *KEYS, "v_true", "v_se", "q_true", "q_se", "advantage_true", "advantage_true_se", "advantage_first_half",
    "advantage_second_half", "continuations",
)  # fmt: skip
LABEL_COLUMNS = (*KEYS, "judge", "role", "score")
LOGPROB_COLUMNS = (*KEYS, "tokens", "logprob", "sampled")
CONTINUATION_COLUMNS = (*KEYS, "continuations", "return_sum", "return_square_sum")
KEPT_COLUMNS = {"labels": LABEL_COLUMNS, "logprobs": LOGPROB_COLUMNS, "continuations": CONTINUATION_COLUMNS}
#: Decimals that are kept of log-probabilities and of a model's outputs.
DECIMALS = 4


class Packed(NamedTuple):
    """A part's description, and its rows of each table."""

    about: dict[str, Any]
    rows: dict[str, pa.Table]


def run(out: Path, games: int, cores: int, tiny: bool = False) -> None:
    """Make the rollouts of every experiment, then the set."""
    for name in EXPERIMENTS:
        folder = f"results/{_named(name, games, tiny)}/rollouts/flat_grpo/seed0"
        targets = [f"{folder}/round{round:02d}/fidelity.parquet" for round in (TINY_ROUNDS if tiny else ROUNDS)]
        targets.append(f"results/{_named(name, games, tiny)}/config.json")
        subprocess.run([*command(name, games, cores, tiny), "--", *targets], cwd=ROOT, check=True)
    pack([ROOT / "results" / _named(name, games, tiny) for name in EXPERIMENTS], out)


def _named(name: str, games: int, tiny: bool) -> str:
    return name + (f"_games{games}" if games != GAMES else "") + ("_tiny" if tiny else "")


def command(name: str, games: int, cores: int, tiny: bool = False) -> list[str]:
    """The command that makes an experiment's rollouts, without its targets."""
    made = EXPERIMENTS[name]
    methods = [*(one for one in audited() if one not in made.without), *made.also]
    own = {"tasks": {"seed": games + made.games}, "audit": {"methods": methods}}
    settings = merge(made.settings, own, TINY if tiny else {})
    return [
        str(Path(sys.executable).with_name("snakemake")), "--cores", str(cores),
        "--configfile", *made.configs, CONFIG,
        "--config", f"experiment={_named(name, games, tiny)}",
        *(f"{key}={json.dumps(value)}" for key, value in settings.items()),
    ]  # fmt: skip


def audited() -> list[str]:
    """The methods whose side tables every part gets."""
    methods: list[str] = read_mapping(ROOT / CONFIG)["audit"]["methods"]
    return methods


def pack(results: Sequence[Path], out: Path) -> None:
    """Write the set of these experiments' branched rounds. Raises UserError for a folder without any."""
    parts = [part for folder in results for part in _parts_of(folder)]
    whole = {}
    for name in TABLES:
        rows = [
            part.rows[name].append_column("part", pa.repeat(pa.scalar(part.about["name"]), len(part.rows[name])))
            for part in parts
            if name in part.rows
        ]
        if rows:
            whole[name] = pa.concat_tables(rows, promote_options="default")
    about = {
        "name": NAME,
        "version": VERSION,
        "licence": LICENCE,
        "made_by": "python -m benchmarks.score_data run",
        "values_of": values_of({name for part in parts for name in _names(part.rows, "values")}),
        "parts": [part.about for part in parts],
    }
    write(out, whole, about, readme(about))


def _parts_of(results: Path) -> Iterator[Packed]:
    layout, experiment = Layout(results), read_config(results)
    branched = sorted(layout.find("branches"), key=lambda one: (one.keys["round"], one.keys["seed"]))
    if not branched:
        raise UserError(f"{results}: has no branches.parquet; run `python -m benchmarks.score_data run`")
    for one in branched:
        yield _part(layout, experiment, one)


def _part(layout: Layout, experiment: Experiment, branched: Located) -> Packed:
    round = int(branched.keys["round"])
    name = f"{experiment.experiment.removeprefix('score_')}_{ROUNDS.get(round, f'round{round:02d}')}"
    if branched.keys["seed"]:
        name += f"_seed{branched.keys['seed']}"
    branches = _selected(tables.read(branched.path, "branches"), BRANCH_COLUMNS)
    turns = tables.read(layout.path("turns", branched.keys), "turns")
    if Path(file := layout.path("measures", branched.keys)).exists():
        measures = tables.read(file, "measures")
        for column in MEASURED:  # the same rows in the same order: an invariant
            turns = turns.append_column(column, measures.column(column))
    ids = _short_ids(turns, name)
    rows = {
        "turns": _rounded(ids(_selected(turns, TURN_COLUMNS))),
        "branches": ids(branches),
    }
    for kind, key in SIDE.items():
        found = [
            _side(kind, key, one, ids)
            for one in sorted(layout.find(kind), key=lambda one: str(one.path))
            if {**one.keys, **branched.keys} == one.keys
        ]
        if found := [one for one in found if one is not None]:
            rows[kind] = _rounded(pa.concat_tables(found, promote_options="default"))
    return Packed({"name": name, **_about(experiment, branched, turns, branches)}, rows)


def _about(experiment: Experiment, branched: Located, turns: pa.Table, branches: pa.Table) -> dict[str, Any]:
    """What `set.json` says of a part."""
    policy, seed, round = (branched.keys[key] for key in ("policy", "seed", "round"))
    count = branches.column("continuations")
    return {
        "world": experiment.env.name,
        "policy": f"{policy}, round {round}, seed {seed}; SFT seed {experiment.sft.seed}",
        "experiment": experiment.experiment,
        "round": round,
        "success": _success(turns),
        "groups": len(pc.unique(turns.column("group_id"))),
        "rollouts": len(pc.unique(turns.column("rollout_id"))),
        "turns": len(turns),
        "turns_with_truth": len(branches),
        "continuations": [pc.min(count).as_py(), pc.max(count).as_py()],
        "temperature": turns.column("temperature")[0].as_py(),
        "created_by": turns.column("created_by")[0].as_py(),
        "inputs": tables.metadata(branched.path).get("inputs", {}),
    }


def _selected(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Those of the columns that the table has."""
    return table.select([name for name in columns if name in table.column_names])


def _success(turns: pa.Table) -> float:
    """The share of rollouts that succeed."""
    firsts = turns.filter(pc.equal(turns.column("turn"), 0))
    return round(float(pc.mean(firsts.column("success").cast(pa.float64())).as_py()), 4)


def _short_ids(turns: pa.Table, part: str) -> Callable[[pa.Table], pa.Table]:
    """A function that gives a table of these turns ids that no other part has."""
    groups = {
        name: f"{part}/{number}" for number, name in enumerate(dict.fromkeys(turns.column("group_id").to_pylist()))
    }
    rollouts: dict[str, str] = {}
    inside: dict[str, int] = {}
    for group, rollout in zip(
        turns.column("group_id").to_pylist(), turns.column("rollout_id").to_pylist(), strict=True
    ):
        if rollout not in rollouts:
            inside[group] = inside.get(group, -1) + 1
            rollouts[rollout] = f"{groups[group]}/{inside[group]}"

    def renamed(table: pa.Table) -> pa.Table:
        for column, names in (("group_id", groups), ("rollout_id", rollouts)):
            new = pa.array([names[one] for one in table.column(column).to_pylist()])
            table = table.set_column(table.column_names.index(column), column, new)
        return table

    return renamed


def _side(kind: str, key: str, located: Located, ids: Callable[[pa.Table], pa.Table]) -> pa.Table | None:
    """A side table with the column `key` in front; None for the values of an untrained model."""
    table = tables.read(located.path, kind)
    kept = KEPT_COLUMNS.get(kind)
    table = table.select(kept) if kept else table.drop_columns([one for one in ("model",) if one in table.column_names])
    outputs = [one for one in table.column_names if one not in KEYS]
    if kind == "values" and all(table.column(one).null_count == len(table) for one in outputs):
        return None
    name = located.keys["continuations" if kind == "continuations" else key]
    return ids(table).append_column(key, pa.repeat(pa.scalar(str(name)), len(table)))


def _rounded(table: pa.Table) -> pa.Table:
    """Floating-point columns, lists of them too, to `DECIMALS`: text compresses, the last bits don't."""
    for place, field in enumerate(table.schema):
        column = table.column(place)
        if pa.types.is_list(field.type) and pa.types.is_floating(field.type.value_type):
            whole = column.combine_chunks()
            flat = pa.array(np.round(whole.values.to_numpy(zero_copy_only=False).astype(np.float32), DECIMALS))
            table = table.set_column(place, field.name, pa.ListArray.from_arrays(whole.offsets, flat))
        elif pa.types.is_floating(field.type) and field.name not in ("reward", *MEASURED):
            table = table.set_column(place, field.name, pc.round(column, DECIMALS).cast(pa.float32()))
    return table


def _names(rows: Mapping[str, pa.Table], kind: str) -> set[str]:
    return set(rows[kind].column(SIDE[kind]).to_pylist()) if kind in rows else set()


def values_of(stored: set[str]) -> dict[str, str]:
    """Methods whose model is that of a stored one: the same kind with the same settings, and not trained on credits."""
    plain = from_mapping({})
    found = {}
    for name, method in METHODS.items():
        if method.model is None or name in stored or learns_from_credits(method.model):
            continue
        own = model_settings(plain, name)
        if same := sorted(other for other in stored if model_settings(plain, other) == own):
            found[name] = same[0]
    return found


def readme(about: Mapping[str, Any]) -> str:
    """The card of a set: README.md beside its tables."""
    parts = about["parts"]
    lines = [
        f"# {about['name']}, version {about['version']}",
        "",
        "Rollouts of small language models with the true advantage of some of their turns: what `turncredit score`",
        "measures credit methods on. Written by `benchmarks/score_data.py`; every change is a change of its version.",
        "",
        "**Only for scoring.** Fit and tune nothing on it, and choose no parameter by it. For development make a set",
        "of other games: `python -m benchmarks.score_data run --games 51 --out FOLDER`.",
        "",
        "| part | policy | success | groups | rollouts | turns | with A* | continuations a state |",
        "|---|---|---:|---:|---:|---:|---:|---|",
        *(
            f"| {one['name']} | {one['policy']} | {100 * one['success']:.0f}% | {one['groups']} | {one['rollouts']} | "
            f"{one['turns']:,} | {one['turns_with_truth']} | {_span(one['continuations'])} |"
            for one in parts
        ),
        "",
        "- **Worlds**: "
        + ", ".join(sorted({one["world"] for one in parts}))
        + f", generated by this project. {_others(parts)}",
        "- **Policies**: trained from scratch on demonstrations, then by flat GRPO (config/score_data.yaml).",
        f"  {_code(parts)}",
        f"- **Made by** `{about['made_by']}`. The experiments are `results/score_*`.",
        "- **A\\***: by continuing from before and after each turn (docs/audit.md). Whole rollouts, successes and",
        "  failures in turn while there are both; the other turns are there because credit needs whole groups.",
        "- **Left out**: token ids, hidden states, and rounds that learned models were trained on.",
        f"- **Licence**: {about['licence']}, as the code.",
        "",
    ]
    return "\n".join(lines)


def _others(parts: Sequence[Mapping[str, Any]]) -> str:
    """What of the text is others'."""
    if any(one["world"] == "virtualhome" for one in parts):
        return "VirtualHome's objects and actions have the\n  names of its package (MIT). No other text of others."
    return "No text of others."


def _span(bounds: Sequence[int]) -> str:
    low, high = bounds
    return str(low) if low == high else f"{low} to {high}"


def _code(parts: Sequence[Mapping[str, Any]]) -> str:
    return "Code: " + ", ".join(sorted({str(one["created_by"]) for one in parts})) + "."


def main() -> None:
    """Run or pack, as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=["run", "pack"])
    parser.add_argument("results", nargs="*", type=Path, help="pack: the experiments' folders")
    parser.add_argument("--out", type=Path, default=BUILT_IN, help="where the set is written")
    parser.add_argument("--games", type=int, default=GAMES, help="run: the seed of the games")
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--tiny", action="store_true", help="run: a few rollouts of each experiment")
    given = parser.parse_args()
    if given.tiny and given.out == BUILT_IN:
        parser.error("--tiny needs --out: its set is none to score on")
    try:
        if given.action == "run":
            run(given.out, given.games, given.cores, given.tiny)
        else:
            pack(given.results, given.out)
    except UserError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
