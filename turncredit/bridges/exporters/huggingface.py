"""A folder that `datasets.load_dataset` opens: a row for each turn in Parquet, and a card with its provenance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from turncredit.bridges.exporters.rollouts import Rollouts

DATA = "data/train-00000-of-00001.parquet"
CARD = """\
---
configs:
- config_name: default
  data_files:
  - split: train
    path: {data}
tags:
- turncredit
- agents
---
# Turns of {rollouts} rollouts of language-model agents

{turns} rows, one for each turn, written by turncredit {version}. A rollout is the rows with one `group_id` and
`rollout_id`, in the order of `turn`; rollouts of a group share their task. `reward` is the turn's, and a rollout's
return is their sum.

| column | type |
|---|---|
{columns}
{credit}
    from datasets import load_dataset

    turns = load_dataset("PATH OR NAME OF THIS DATA SET", split="train")

## Provenance
What wrote this, with which settings, and the hashes (SHA-256) of what it read:

```json
{made_by}
```

No licence is given here: add the one of the rollouts (`license:` above) before this is published.
"""
CREDIT = """
The columns `advantage` are credit, the advantage that a method gives to the turn: {names}.
"""


def write(rollouts: Rollouts, out: Path, made_by: dict[str, Any]) -> None:
    """Write the data set into the folder `out`."""
    table: pa.Table = rollouts.table.replace_schema_metadata(None)
    names = list(rollouts.advantages)
    for name, advantage_N in rollouts.advantages.items():
        column = "advantage" if len(names) == 1 else f"advantage_{name}"
        kept = [one for one in table.column_names if one != column]
        table = table.select(kept).append_column(column, pa.array(advantage_N))
    (out / DATA).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, out / DATA, compression="zstd")
    card = CARD.format(
        data=DATA,
        rollouts=len(rollouts),
        turns=table.num_rows,
        version=made_by.get("code", ""),
        columns="\n".join(f"| `{field.name}` | {field.type} |" for field in table.schema),
        credit=CREDIT.format(names=", ".join(names)) if names else "",
        made_by=json.dumps(made_by, indent=2, sort_keys=True, default=str),
    )
    (out / "README.md").write_text(card, encoding="utf-8")
