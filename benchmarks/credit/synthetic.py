"""Synthetic turns that resemble household games, for timings and tests.

A place holds the same things in all rollouts of a group, so texts repeat; actions fail, some rollouts win.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

ROLES = ("D", "E", "N", "R")
PLACES = [f"{name} {number}" for name in ("shelf", "desk", "drawer", "cabinet", "fridge") for number in range(1, 8)]
THINGS = ("mug", "pen", "book", "apple", "cloth", "lamp", "keychain", "bowl")


def rows(groups: int, size: int, turns: int, seed: int = 0, *, equal_length: bool = False) -> list[dict]:
    """One dict per turn, with every column and every label that any method reads."""
    rng = np.random.default_rng(seed)
    # Generators of their own, so that the other columns stay what they were.
    again, continuing, forking = (np.random.default_rng([seed, number]) for number in (1, 2, 3))
    out = []
    for g in range(groups):
        lies = {
            place: [f"a {THINGS[k]} {rng.integers(1, 4)}" for k in np.flatnonzero(rng.random(8) < 0.25)]
            for place in PLACES
        }
        lengths: list[int] = []
        for i in range(size):
            left = int(forking.integers(-1, i))  # the rollout that this one forked from; -1: it is from the start
            parent = (f"g{g:05d}-{left}", int(forking.integers(lengths[left]))) if left >= 0 else ("", -1)
            length = turns if equal_length else int(rng.integers(1, turns + 1))
            lengths.append(length)
            won = bool(rng.random() < 0.4)
            observation = "You are in the middle of a room. Your task is to: put a mug in the fridge."
            for t in range(length):
                valid = bool(rng.random() > 0.2)
                place = PLACES[rng.integers(len(PLACES))]
                sight = f"You arrive at {place}. On the {place}, you see {', '.join(lies[place]) or 'nothing'}."
                answer = sight if valid else "Nothing happens."
                out.append(
                    {
                        "group_id": f"g{g:05d}",
                        "rollout_id": f"g{g:05d}-{i}",
                        "turn": t,
                        "reward": 10.0 * (won and t == length - 1),
                        "observation": observation,
                        "action": f"go to {place}",
                        "next_observation": answer,
                        "valid": valid,
                        "success": won,
                        "progress_before": t / length,
                        "progress": (t + int(rng.integers(0, 2))) / length,
                        "distance_before": length - t,
                        "distance": -1 if rng.random() < 0.02 else length - t + int(rng.integers(-1, 2)),
                        "response_logprobs": (-rng.random(rng.integers(1, 5))).tolist(),
                        "prompt_ids": list(range(rng.integers(3, 20))),
                        "response_ids": list(range(rng.integers(2, 6))),
                        "context_reset": t == 0,
                        "parent_rollout_id": parent[0],
                        "parent_turn": parent[1],
                        "goal": "put a mug on the desk" if g % 2 else "heat some egg",
                        "subgoal": ("find a mug", "find a dragon", "")[(t // 4) % 3],
                        "subgoal_index": t // 4,
                        "well_formed": bool(rng.random() < 0.9),
                        "role": ROLES[rng.integers(4)],
                        "score": float(rng.random()),
                        "value": float(rng.normal()),
                        "continuations": (count := int(continuing.integers(1, 10))),
                        "return_sum": 10.0 * (wins := int(continuing.integers(0, count + 1))),
                        "return_square_sum": 100.0 * wins,
                    }
                )
                row = out[-1]
                row["tokens"] = len(row["response_logprobs"])
                row["sampled"] = sum(row["response_logprobs"])
                row["logprob"] = sum(row["response_logprobs"]) + float(again.normal())
                observation = answer
    return out


def tables(turns: list[dict]) -> tuple[pa.Table, dict[str, pa.Table]]:
    """The turns, and the side tables `labels`, `values`, `logprobs` and `continuations`."""
    table = pa.Table.from_pylist(turns)
    keys = ["group_id", "rollout_id", "turn"]
    columns = {
        "labels": ["role", "score"],
        "values": ["value"],
        "logprobs": ["tokens", "logprob", "sampled"],
        "continuations": ["continuations", "return_sum", "return_square_sum"],
    }
    side = {name: table.select([*keys, *its]) for name, its in columns.items()}
    return table.drop_columns([name for its in columns.values() for name in its]), side
