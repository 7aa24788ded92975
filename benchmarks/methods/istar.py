"""What iStar's reward model pulls the policy to: python -m benchmarks.methods.istar RESULTS [--method istar_tenth]

Prints a Markdown table for some rounds of the runs of `istar`, or of a variant: the share of the advantage's variance
that is the turn term's, the term's correlation with the turn's number, and how well the reward model plays if it is
evaluated as a policy, by the evaluation of the run's last round. Run it in the folder that the experiment was run in,
at the same commit; the experiment has to have kept its policies (`keep_policies: all`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from turncredit.config.layout import Keys, Layout, fill
from turncredit.config.warm_starts import SFT
from turncredit.data import tables
from turncredit.pipeline import launch

ROUNDS = (2, 3, 5, 8, 10)


def keys_of(method: str, seed: int, round_number: int) -> Keys:
    """The keys of what belongs to a round of a run."""
    return {"warm_start": SFT, "policy": method, "method": method, "seed": seed, "round": round_number}


def turn_term(layout: Layout, keys: Keys) -> tuple[float, float]:
    """The turn term's share of the advantage's variance, and its correlation with the turn's number."""
    credits = tables.read(layout.path("credits", keys))
    turns = tables.read(layout.path("turns", keys), columns=["turn"])
    advantage, term = (credits.column(name).to_numpy() for name in ("advantage", "advantage_turn"))
    share = np.cov(term, advantage)[0, 1] / advantage.var(ddof=1)
    return float(share), float(np.corrcoef(term, turns.column("turn").to_numpy())[0, 1])


def success(layout: Layout, keys: Keys) -> float:
    """The success rate of a round's reward model, as a policy on the games of the last round's evaluation."""
    log = Path(fill(layout.log("eval"), {**keys, "round": max(ROUNDS)}))
    described = json.loads(log.with_suffix(".job.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as name:
        described["input"]["policy"] = layout.path("implicit", keys)
        described["output"] = {"evals": f"{name}/evals.parquet", "metrics": f"{name}/eval.json"}
        described["log"] = f"{name}/eval.log"
        job = Path(name, "eval.job.json")
        job.write_text(json.dumps(described), encoding="utf-8")
        environment = {**os.environ, **launch.ONE_THREAD}
        subprocess.run([sys.executable, "workflow_scripts/eval.py", str(job)], check=True, env=environment)
        evals = tables.read(described["output"]["evals"])
    return float(pc.mean(evals.filter(pc.field("mode") == "sampled").column("success")).as_py())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results")
    parser.add_argument("--method", default="istar")
    parser.add_argument("--seeds", type=int, nargs="+", default=range(8))
    given = parser.parse_args()
    layout = Layout(given.results)
    print("| round | turn term's share of the variance | with the turn's number | the model's success | of each seed |")
    print("|---:|---:|---:|---:|---|")
    for round_number in ROUNDS:
        keys = [keys_of(given.method, seed, round_number) for seed in given.seeds]
        terms, played = np.array([turn_term(layout, one) for one in keys]), [success(layout, one) for one in keys]
        share, correlation = terms.mean(axis=0)
        each = ", ".join(f"{100 * value:.0f}" for value in played)
        print(f"| {round_number} | {share:.0%} | {correlation:+.2f} | {np.mean(played):.1%} | {each} |", flush=True)


if __name__ == "__main__":
    main()
