"""Make rows of the tasks table, and open a row as a rollout."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from turncredit.data.seeding import derive_seed
from turncredit.envs.webshop import generate, goals
from turncredit.envs.webshop.catalogue import data_files, read_products, stored_folder
from turncredit.envs.webshop.reward import Goal
from turncredit.envs.webshop.settings import Settings
from turncredit.envs.webshop.shop import Shop
from turncredit.envs.webshop.store import Stored
from turncredit.envs.webshop.world import WebShop
from turncredit.errors import UserError, nearest

NAME = "webshop"
#: first and last goal of each split of a real catalogue, by the setting `splits`; None: until the end
SPLITS: dict[str, dict[str, tuple[int, int | None]]] = {
    "original": {"test": (0, 500), "eval": (500, 1500), "train": (1500, None)},
    "verl-agent": {"test": (0, 500), "train": (500, None)},
}


def make_tasks(split: str, count: int, seed: int, settings: Settings) -> list[dict[str, Any]]:
    """`count` different tasks of a split, the same for the same seed and settings; a larger count only adds tasks.

    A task's family is its number of constraints: attributes, options, and the price. Raises UserError for an unknown or
    too small split.
    """
    if settings.source == "generated":
        products = list(open_shop(settings).products)
        seen: set[str] = set()
        new_goals = (generate.generate(products, split, index, seed, settings, seen) for index in range(count))
        return [_row(f"{split}-{content[:16]}", split, seed, "generated", goal) for content, goal in new_goals]
    numbers = list(numbers_of(split, settings))
    random.Random(derive_seed(seed, NAME, split)).shuffle(numbers)
    if len(numbers) < count:
        raise UserError(f"the split '{split}' of WebShop has {len(numbers)} goals, not {count}; ask for fewer")
    found = real_goals(settings)
    return [_row(f"{settings.goals}-{number}", split, seed, "real", found[number]) for number in numbers[:count]]


def real_split(split: str, settings: Settings) -> list[tuple[int, Goal]]:
    """The goals of a split of a real catalogue, with their numbers in the original's order. Raises UserError."""
    found = real_goals(settings)
    return [(number, found[number]) for number in numbers_of(split, settings)]


def real_goals(settings: Settings) -> Sequence[Goal]:
    """All goals of a real catalogue, in the original's order."""
    products = open_shop(settings).products
    if isinstance(products, Stored):
        return products.goals(settings.goals)
    return goals.shuffled((goals.synthetic_goals if settings.goals == "synthetic" else goals.human_goals)(products))


def numbers_of(split: str, settings: Settings) -> range:
    """The numbers of a split's goals. Raises UserError for an unknown split."""
    splits = SPLITS[settings.splits]
    if split not in splits:
        raise UserError(
            f"unknown split '{split}' of WebShop's goals{nearest(split, list(splits))}; with env.webshop.splits "
            f"'{settings.splits}' choose one of {', '.join(splits)}"
        )
    start, end = splits[split]
    return range(len(real_goals(settings)))[start:end]


def _row(task_id: str, split: str, seed: int, source: str, goal: Goal) -> dict[str, Any]:
    return {
        "task_id": task_id,
        "env": NAME,
        "split": split,
        "family": f"{goal.conditions} constraints",
        "goal": goal.instruction,
        "source": source,
        "seed": seed,
        "optimal_length": None,
        "game": goals.to_text(goal),
    }


def open_task(row: Mapping[str, Any], settings: Settings) -> WebShop:
    """A fresh rollout of a task. Raises UserError where the catalogue does not have its product."""
    shop, goal = open_shop(settings), goals.from_text(row["game"])
    if goal.asin not in shop.by_asin:
        raise UserError(
            f"task '{row['task_id']}' asks for the product {goal.asin}, which this catalogue does not have; the "
            "settings of env.webshop have changed since the tasks were made: delete the table and run again"
        )
    return WebShop(shop, goal, settings)


def open_shop(settings: Settings) -> Shop:
    """The shop of these settings; rollouts share it. Raises UserError for missing or damaged files."""
    if settings.source == "generated":
        made = (settings.products, settings.catalogue_seed, settings.titles, settings.lookalikes)
        return _generated_shop(made, settings.page_size)
    stored = stored_folder(settings)
    return _stored_shop(stored, settings.page_size) if stored else _real_shop(*data_files(settings), settings.page_size)


@lru_cache(maxsize=4)
def _generated_shop(made: tuple[int, int, str, float], page_size: int) -> Shop:
    return Shop(generate.catalogue(*made), page_size)


@lru_cache(maxsize=4)
def _stored_shop(folder: Path, page_size: int) -> Shop:
    return Shop(Stored(folder), page_size)


@lru_cache(maxsize=4)
def _real_shop(products: Path, attributes: Path, human: Path | None, page_size: int) -> Shop:
    return Shop(read_products(products, attributes, human), page_size)
