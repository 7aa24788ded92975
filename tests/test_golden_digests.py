"""What a change of the code must leave as it is, on any machine, by digests in golden_digests.json.

jobs      every job of `experiment()`, which has jobs of every stage. Three digests: of its keys and slice (the
          `config_hash` in provenance), of the paths that it reads, and of those that it writes
schemas   every table's
credits   every method's on a fixed table, to six decimals

Results themselves, whose last bits depend on the processor, are compared by `make golden`. After a change that is meant
to change one of these:

    python -m tests.test_golden_digests > tests/golden_digests.json
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.credit import synthetic
from tests import tiny
from tests.golden_runs import EACH_SIDE_TABLE
from turncredit import credit
from turncredit.config import Experiment
from turncredit.config.layout import fill
from turncredit.config.stages import stages
from turncredit.credit import METHODS
from turncredit.data import provenance, tables
from turncredit.pipeline.all_jobs import every_job
from turncredit.pipeline.plan import Plan, load

STORED = Path(__file__).with_name("golden_digests.json")


def experiment() -> Experiment:
    """One method for each side table, of two agents, and an audit."""
    methods = [*EACH_SIDE_TABLE["methods"], "istar", "progress_advantage"]
    return tiny.experiment(**{**EACH_SIDE_TABLE, "methods": methods, "judge": {"kind": "llm"}})


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def jobs() -> dict[str, list[str]]:
    plan = Plan(experiment())
    log = plan.layout.log
    return {
        f"{stage} {at}".strip(): [
            provenance.config_hash(plan.settings(stage, at)),
            digest(plan.inputs(stage, at)),
            digest([plan.outputs(stage, at), plan.metrics(stage, at), fill(log(stage), plan.keys(at))]),
        ]
        for stage, at in every_job(plan)
    }


def schemas() -> dict[str, str]:
    return {
        name: digest([version, [[field.name, str(field.type), field.nullable] for field in fields], more])
        for name, (version, fields, more) in tables.SCHEMAS.items()
    }


def credits() -> dict[str, str]:
    turns, side = synthetic.tables(synthetic.rows(3, 3, 6, seed=2))
    made = {name: credit(turns, name, **{need: side[need] for need in METHODS[name].needs}) for name in METHODS}
    return {
        name: digest({column: rounded(table[column]) for column in table.column_names}) for name, table in made.items()
    }


def rounded(column: pa.ChunkedArray) -> list[Any]:
    """A column to six decimals. The places where they change lie beside all simple fractions."""
    if pa.types.is_floating(column.type):
        return [str(value) for value in np.floor(column.to_numpy() * 1e6 + 0.318)]
    return column.to_pylist()


@pytest.fixture(scope="module")
def stored() -> dict[str, dict[str, Any]]:
    return json.loads(STORED.read_text())


def test_every_job_has_the_settings_and_the_paths_that_it_had(stored):
    now = jobs()
    assert {name.partition(" ")[0] for name in now} == set(stages())
    assert now == stored["jobs"]


def test_every_table_has_the_schema_that_it_had(stored):
    assert schemas() == stored["schemas"]


def test_every_method_gives_the_credit_that_it_gave(stored):
    assert credits() == stored["credits"]


def test_a_new_field_of_a_slice_is_another_digest_of_every_job_of_the_stage(stored, monkeypatch):
    stage = load("credit")

    class More(stage.part):
        more: int = 0

    other = replace(stage, slice=lambda *job: More(**dict(stage.slice(*job))))
    monkeypatch.setitem(stages(), "credit", other)
    changed = {name for name, digests in jobs().items() if digests != stored["jobs"][name]}
    assert changed == {name for name in stored["jobs"] if name.startswith("credit ")}


def main() -> None:
    """Print the digests, one a line."""
    kinds = {"jobs": jobs(), "schemas": schemas(), "credits": credits()}
    lines = {kind: [f"  {json.dumps(name)}: {json.dumps(each[name])}" for name in each] for kind, each in kinds.items()}
    print("{" + ",".join(f'\n "{kind}": {{\n' + ",\n".join(lines[kind]) + "\n }" for kind in kinds) + "\n}")


if __name__ == "__main__":
    main()
