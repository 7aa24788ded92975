"""How many tokens the texts of environments have: what `Environment.lengths` states, for estimates of memory and time.

    python -m benchmarks.env.lengths TOKENIZER_FOLDER [household '{source: real, data_root: FOLDER}' valid_seen ...]

The expert plays, with a random action in 30% of the turns. TOKENIZER_FOLDER has a pretrained model's tokenizer.json:
SmolLM2-135M's gave the numbers in the environments' descriptions (2026-11-25).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import yaml

from turncredit import envs
from turncredit.envs.environment import Lengths
from turncredit.errors import UserError

GAMES, NOISE = 12, 0.3
#: Of each built-in environment that needs no files: name, settings, split.
BUILT_IN: tuple[tuple[str, dict[str, Any], str], ...] = tuple(
    (name, {}, "train") for name in ("household", "webshop", "searchqa", "virtualhome", "sokoban", "desk")
)


def measured(
    name: str, settings: Mapping[str, Any], split: str, count: Callable[[str], int], *, games: int = GAMES
) -> Lengths:
    """Mean tokens, counted by `count`, of the texts of `games` games of an environment."""
    environment = envs.load(name)
    if environment.open_task is None or environment.expert is None or not environment.acts_at_random:
        raise UserError(f"{name} has no expert or no random actions: nothing plays its games")
    own = environment.Settings.model_validate(settings)
    make, read = environment.make_tasks, environment.read_tasks
    rows = make(split, games, 0, own) if make else read(split, own)[:games] if read else ()
    rng = np.random.default_rng(0)
    sizes: dict[str, list[int]] = {key: [] for key in ("goal", "first", "observation", "action", "admissible")}
    for row in rows:
        env: Any = environment.open_task(row, own)
        observation = env.reset()
        sizes["goal"].append(count(row["goal"]))
        sizes["first"].append(count(observation))
        expert = environment.expert(env, rng)
        expert.observe(observation)
        done = False
        while not done:
            choices = list(env.admissible()) if "admissible" in environment.capabilities else []
            sizes["admissible"].append(count(", ".join(choices)))
            action = environment.random_action(env, rng) if rng.random() < NOISE else expert.act()
            step = env.step(action)
            expert.observe(step.observation, action)
            sizes["action"].append(count(action))
            sizes["observation"].append(count(step.observation))
            done = step.done
        env.close()
    return Lengths(**{key: round(mean(values)) for key, values in sizes.items()})


if __name__ == "__main__":
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(Path(sys.argv[1]) / "tokenizer.json"))
    more = sys.argv[2:]
    given = [(more[at], yaml.safe_load(more[at + 1]), more[at + 2]) for at in range(0, len(more), 3)]
    for name, settings, split in given or BUILT_IN:
        found = measured(name, settings, split, lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids))
        print(name, settings, split, found)
