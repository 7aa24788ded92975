"""Which turns of an evaluation of verifiers mattered? python examples/verifiers_credit.py traces.jsonl gigpo

The same on the command line: turncredit import traces.jsonl --out turns.parquet, then turncredit credit.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq

from turncredit import credit
from turncredit.bridges import importers

if len(sys.argv) != 3:
    sys.exit(__doc__)
path, method = Path(sys.argv[1]), sys.argv[2]
with TemporaryDirectory() as folder:
    report = importers.run([path], Path(folder) / "turns.parquet", "verifiers")
    turns = pq.read_table(Path(folder) / "turns.parquet")
print(*report.lines(), sep="\n")
frame = turns.select(["group_id", "rollout_id", "turn", "action", "reward"]).to_pandas()
frame["advantage"] = credit(turns, method)["advantage"]
print(frame.sort_values("advantage", ascending=False).head(10).to_string(index=False))
