"""Which of a policy's hidden states carries the action, and the observation? Candidates, probed.

    snakemake --cores all --config 'methods=[flat_grpo]' rounds=1
    python -m benchmarks.learned.hidden_states results/household

The states of the SFT policy on its own rollouts (round 1, all seeds). Two probes: the linear one of the invariant
`states`, and a network with one hidden layer of 64, the head of `turn_value` and AgentPRM. Both are fitted to one half
of the task groups and scored on the other; AUC, the mean of both ways. `verbs` is the lowest over the first words of
actions, `before` asks whether the action before was refused, as the observation says.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import torch
import typer

from turncredit.audit import hidden_probe
from turncredit.config.layout import Layout
from turncredit.config.warm_starts import SFT
from turncredit.data import tables
from turncredit.policy.open import OpenPolicy
from turncredit.training.sequences import batches, contexts, stack

COLUMNS = (*tables.KEYS, "seed", "action", "valid", "context_reset", "prompt_ids", "response_ids")
HIDDEN, STEPS, BATCH = 64, 3000, 256


def candidates(states_LD: np.ndarray, first: int, end: int, ended: bool) -> dict[str, np.ndarray]:
    """What could be read of a turn with the response tokens `first` to `end` - 1; `ended`: the last one ends it."""
    seen, acted = states_LD[first - 1], states_LD[first : max(end - ended, first + 1)]
    return {
        "prompt's last token (`observation`)": seen,
        "response's last token (`action` before)": states_LD[end - 1],
        "last token of the action": acted[-1],
        "mean over the response": states_LD[first:end].mean(0),
        "mean over the action": acted.mean(0),
        "mean over the states that predict the response": states_LD[first - 1 : end - 1].mean(0),
        "mean of prompt's last and last of the action": (seen + acted[-1]) / 2,
        "mean of prompt's last and mean over the action (`action` now)": (seen + acted.mean(0)) / 2,
        "both side by side (twice as wide)": np.concatenate([seen, acted.mean(0)]),
    }


@torch.no_grad()
def read(policy: OpenPolicy, turns: pa.Table) -> dict[str, np.ndarray]:
    """Every candidate of every turn (N, D)."""
    body, eos = policy.model().eval().get_decoder(), policy.tokenizer.eos_id
    rows: list[dict[str, np.ndarray]] = [{}] * turns.num_rows
    for batch in batches(contexts(turns, "turns"), 4096):
        ids, _, _ = stack(batch, torch.device("cpu"))
        states_BLD = body(input_ids=ids, use_cache=False).last_hidden_state.numpy()
        for sequence, states_LD in zip(batch, states_BLD, strict=True):
            found = np.unique(sequence.turn, return_index=True, return_counts=True)
            for row, first, count in zip(*found, strict=True):
                if row >= 0:
                    ended = bool(sequence.ids[first + count - 1] == eos)
                    rows[row] = candidates(states_LD, int(first), int(first + count), ended)
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def learned(fitted_MD: np.ndarray, yes_MK: np.ndarray, scored_ND: np.ndarray) -> np.ndarray:
    """Scores (N, K) of a network with one hidden layer."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    mean_D, scale_D = fitted_MD.mean(0), fitted_MD.std(0) + 1e-9
    x, new = (torch.from_numpy((part - mean_D) / scale_D).float() for part in (fitted_MD, scored_ND))
    yes = torch.from_numpy(yes_MK).float()
    network = torch.nn.Sequential(
        torch.nn.Linear(x.shape[1], HIDDEN),
        torch.nn.GELU(),
        torch.nn.Dropout(0.1),
        torch.nn.Linear(HIDDEN, yes.shape[1]),
    )
    optimizer = torch.optim.AdamW(network.parameters(), 2e-3, weight_decay=0.05)
    for _ in range(STEPS):
        rows = torch.from_numpy(rng.choice(len(x), BATCH))
        optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(network(x[rows]), yes[rows]).backward()
        optimizer.step()
    network.eval()
    with torch.no_grad():
        return network(new).numpy()


def network_probe(hidden_ND: np.ndarray, turns: pa.Table) -> list[hidden_probe.Answer]:
    """`hidden_probe.probe` with a network instead of a linear map."""
    return hidden_probe.probe(hidden_ND, turns, predict=learned)


def main(folder: Annotated[Path, typer.Argument(help="An experiment's folder.")]) -> None:
    """Print a table: candidates x questions."""
    layout = Layout(folder)
    found = [one for one in layout.find("turns", round=1) if str(one.keys["policy"]).startswith("sft-")]
    turns = pa.concat_tables([tables.read(one.path, "turns", list(COLUMNS)) for one in found])
    seeds, rollouts = (turns.column(key).to_pylist() for key in ("seed", "rollout_id"))
    names = [f"{seed} {name}" for seed, name in zip(seeds, rollouts, strict=True)]
    turns = turns.set_column(turns.column_names.index("rollout_id"), "rollout_id", pa.array(names))
    refused = 1 - np.mean(turns.column("valid").to_pylist())
    print(f"{turns.num_rows} turns of {len(found)} seeds, {refused:.0%} refused\n")
    print("| state | verbs | before | refused | verbs, network | before, network | refused, network |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    policy = OpenPolicy(layout.path("sft_policy", warm_start=SFT), dtype="float32")
    for name, hidden_ND in read(policy, turns).items():
        cells = []
        for probed in (hidden_probe.probe, network_probe):
            lowest = hidden_probe.weakest(probed(hidden_ND, turns))
            cells += [f"{lowest[about].auc:.3f}" for about in ("action", "observation", "refused")]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    typer.run(main)
