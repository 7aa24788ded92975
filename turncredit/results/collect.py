"""What a results folder holds: evaluations, training success, metrics, and what is still missing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pandas as pd

from turncredit import tables
from turncredit.results import views
from turncredit.config import Experiment, from_mapping, sampling_slug
from turncredit.errors import UserError

SFT = "sft"
#: What audits measure, by view.
AUDIT = ("fidelity", "gradients", "leaks", "invariants")


@dataclass(frozen=True)
class Results:
    """One experiment's results. Frames: `evals` (schema "evals"), `training` (one row per method, seed and round:
    rollouts, successes, turns, invalid, path), `metrics` (`views.METRICS_SCHEMA`), `runs` (one row per method and seed:
    evaluated and wanted rounds, `finished`, `configured`). `audit` has the tables "fidelity", "gradients", "leaks" and
    "invariants" with run, seed and round, as far as they exist; `pages` the credit pages' indexes, below the folder;
    `labels` how many role labels there are files of."""

    experiment: Experiment
    folder: Path
    evals: pd.DataFrame
    training: pd.DataFrame
    metrics: pd.DataFrame
    runs: pd.DataFrame
    audit: dict[str, pd.DataFrame]
    pages: list[Path]
    labels: int

    @property
    def methods(self) -> list[str]:
        """Methods in the order of the configuration, then those that are only on disk."""
        return list(dict.fromkeys(self.runs["method"]))

    def finished_seeds(self, method: str) -> list[int]:
        """The seeds of `method` whose last three rounds are all evaluated."""
        rows = self.runs[(self.runs["method"] == method) & self.runs["finished"]]
        return rows["seed"].tolist()


def read_config(results: str | Path) -> Experiment:
    """The resolved configuration that an experiment's folder was made with. Raises UserError where there is none."""
    path = Path(results) / "config.json"
    try:
        data = json.loads(path.read_text())
    except FileNotFoundError:
        raise UserError(
            f"{results}: not an experiment's folder (no config.json); give one such as results/household"
        ) from None
    except ValueError as error:
        raise UserError(f"{path}: not valid JSON ({error}); delete it and run Snakemake again to remake it") from None
    return from_mapping(data, str(path))


def collect(results: str | Path, experiment: Experiment | None = None) -> Results:
    """Read the experiment in the folder `results` (`experiment`: its configuration, read from there if not given).

    Raises UserError for a folder without evaluations, and TableError for a damaged or foreign table.
    """
    folder = Path(results).resolve()
    experiment = experiment or read_config(folder)
    evals = _evals(folder)
    if evals.empty:
        raise UserError(f"{results}: no evaluation yet (no evals.parquet); run Snakemake until the first one is there")
    runs = _runs(folder, experiment, evals)
    metrics = views.metrics_table([folder]).to_pandas()
    return Results(
        experiment,
        folder,
        evals,
        _training(folder, experiment, runs),
        metrics,
        runs,
        audit={name: frame for name in AUDIT if len(frame := _audit(folder, name))},
        pages=[path.relative_to(folder) for path in sorted(folder.glob("audit/*/seed*/round*/pages/index.html"))],
        labels=sum(path.stem.endswith("-role") for path in views.files("labels", [folder])),
    )


def _audit(folder: Path, name: str) -> pd.DataFrame:
    """All tables of one kind that audits made, with run, seed and round from their place where they do not say."""
    parts = []
    for path in views.files(name, [folder]):
        frame = tables.read(path, name).to_pandas()
        where = views.place(path, folder)
        where["run"] = where["run"] or where["method"]
        given = {key: where[key] for key in ("run", "seed", "round") if key not in frame.columns}
        parts.append(frame.assign(**given))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _evals(folder: Path) -> pd.DataFrame:
    parts = []
    for path in views.files("evals", [folder]):
        frame = tables.read(path, "evals").to_pandas()
        # The folder says which run this is; the columns must not disagree with it.
        for name, value in views.place(path, folder).items():
            if value is not None and len(frame) and set(frame[name]) != {value}:
                raise UserError(
                    f"{path}: its column '{name}' says {frame[name].iloc[0]!r}; was the file moved by hand?"
                )
        parts.append(frame)
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _runs(folder: Path, experiment: Experiment, evals: pd.DataFrame) -> pd.DataFrame:
    """One row per run that is configured or has an evaluation."""
    wanted = experiment.eval_rounds()
    primary = evals[(evals["mode"] == experiment.eval.primary) & (evals["method"] != SFT)]
    have = {key: sorted(set(rows)) for key, rows in primary.groupby(["method", "seed"])["round"]}
    configured = experiment.runs()
    rows = []
    for method, seed in [*configured, *sorted(set(have) - set(configured))]:
        evaluated = have.get((method, seed), [])
        rows.append(
            {
                "method": method,
                "seed": seed,
                "evaluated": evaluated,
                "wanted": wanted,
                "finished": set(wanted[-3:]) <= set(evaluated),
                "configured": (method, seed) in configured,
                "folder": str((folder / "runs" / method / f"seed{seed}").relative_to(folder)),
            }
        )
    names = ["method", "seed", "evaluated", "wanted", "finished", "configured", "folder"]
    return pd.DataFrame(rows, columns=names).astype({"finished": bool, "configured": bool})


def _training(folder: Path, experiment: Experiment, runs: pd.DataFrame) -> pd.DataFrame:
    """Training rollouts of each run and round: how many, how many succeeded, turns and invalid turns.

    Round 1 is the SFT policy's rollouts with the method's own sampling, shared by all methods that sample so.
    """
    columns = ["method", "seed", "round", "rollouts", "successes", "turns", "invalid", "path"]
    query = """
        SELECT method, seed, round, count(*)::BIGINT AS rollouts, sum(success::INT)::BIGINT AS successes,
               sum(turns)::BIGINT AS turns, sum(invalid)::BIGINT AS invalid, path
        FROM (SELECT method, seed, round, path, bool_or(success) AS success, count(*) AS turns,
                     sum((NOT valid)::INT) AS invalid
              FROM turns GROUP BY method, seed, round, path, group_id, rollout_id)
        GROUP BY method, seed, round, path"""
    try:
        with views.connect(folder, query) as connection:
            found = connection.execute(query).df()
    except duckdb.Error as error:
        raise UserError(f"{folder}: the turns cannot be read ({str(error).splitlines()[0]})") from None
    shared = {Path(row.path): row for row in found.itertuples() if row.method == SFT}
    rows = [row._asdict() for row in found.itertuples(index=False) if row.method != SFT]
    for run in runs.itertuples():
        slug = sampling_slug(experiment.section_for(run.method, "rollout"))
        first = shared.get(folder / "sft" / "rollouts" / slug / f"seed{run.seed}" / "turns.parquet")
        # A run that has not begun has no training success, though the rollouts it would use may be there.
        if first is not None and (folder / run.folder).exists():
            row = {name: getattr(first, name) for name in columns}
            rows.append({**row, "method": run.method, "round": 1})
    return pd.DataFrame(rows, columns=columns).sort_values(["method", "seed", "round"], ignore_index=True)
