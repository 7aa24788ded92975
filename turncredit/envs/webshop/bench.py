"""Measure the speed of the environment: indexing a shop, and random shopping in it."""

from __future__ import annotations

import gc
import random
import time
from typing import Any

from turncredit.envs.speed import snapshot_restore_us
from turncredit.envs.webshop import tasks
from turncredit.envs.webshop.expert import random_command
from turncredit.envs.webshop.settings import Settings
from turncredit.envs.webshop.shop import START_PAGE, Shop
from turncredit.envs.webshop.world import WebShop

_clock = time.process_time


def measure(settings: Settings, split: str, games: int, steps: int, seed: int) -> dict[str, Any]:
    """CPU time of `games` tasks, `steps` actions each (a rollout that ends is started again).

    A step includes the list of admissible actions. Actions are random: three in ten search, most of them with three
    words of the instruction; every sixth click or so is refused. The caches of pages and searches start cold, the
    products are in memory.
    Returns milliseconds to index the products and for a search that is not in the cache, steps per second, microseconds
    per step and per snapshot and restore.
    """
    rows = tasks.make_tasks(split, games, seed, settings)
    traces = [_trace(tasks.open_task(row, settings), steps, random.Random(f"{seed}:{n}")) for n, row in enumerate(rows)]
    products = tasks.open_shop(settings).products
    gc.collect()
    start = _clock()
    shop = Shop(products, settings.page_size)
    shop.search("anything")
    indexed = _clock() - start
    step = 0.0
    for row, trace in zip(rows, traces, strict=True):
        env = WebShop(shop, tasks.goals.from_text(row["game"]), settings)
        start = _clock()
        env.reset()
        for action in trace:
            env.admissible()
            if env.step(action).done:
                env.reset()
        step += _clock() - start
    queries = [f"{product.title} {n}" for n, product in enumerate(products)]
    start = _clock()
    for query in queries:
        shop.search(query)
    search = (_clock() - start) / len(queries)
    done = sum(map(len, traces))
    return {
        "products": len(products),
        "games": games,
        "steps": done,
        "searches": sum(action.startswith("search[") for trace in traces for action in trace),
        "index_ms": 1e3 * indexed,
        "search_ms": 1e3 * search,
        "step_us": 1e6 * step / done,
        "steps_per_second": done / step,
        "snapshot_restore_us": snapshot_restore_us(env),
    }


def _trace(env: WebShop, steps: int, rng: random.Random) -> list[str]:
    trace = []
    page = env.reset()
    for _ in range(steps):
        chance = rng.random()
        if page == START_PAGE or chance < 0.2:
            words = rng.sample(env.goal.instruction.split(), 3)
            action = f"search[{' '.join(words)}]" if chance < 0.1 else rng.choice(env.admissible() or ("search[gift]",))
        else:
            action = "click[Buy Now]" if chance > 0.9 else random_command(env, rng)
        trace.append(action)
        step = env.step(action)
        page = env.reset() if step.done else step.observation
    return trace
