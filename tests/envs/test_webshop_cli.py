"""`turncredit env webshop`: what it prints and how it ends."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from turncredit.envs.webshop import make_tasks, open_task
from turncredit.envs.webshop.commands import app
from turncredit.envs.webshop.settings import Settings

runner = CliRunner()


def test_a_person_can_shop_to_the_end_with_hints():
    env = open_task(make_tasks("train", 1, 5, Settings())[0], Settings())
    env.reset()
    query = env.admissible()[0]
    result = runner.invoke(app, ["play", "--seed", "5"], input=f"?\n!\n{query}\n!\nclick[nothing]\n\n")
    assert result.exit_code == 0
    assert env.goal.instruction in result.stdout
    assert query in result.stdout
    assert "click[BSHOP" in result.stdout
    page = env.step(query).observation
    assert result.stdout.count(page) == 3  # after the search, the hint and the refused click
    link = next(action for action in env.admissible() if action.startswith("click[BSHOP"))
    typed = (query, link, "click[buy now]")
    result = runner.invoke(app, ["play", "--seed", "5"], input="\n".join(typed) + "\n")
    assert "Your score (min 0.0, max 1.0)" in result.stdout


def test_the_benchmark_prints_speeds_as_json():
    result = runner.invoke(app, ["bench", "--count", "2", "--steps", "20"])
    figures = json.loads(result.stdout)
    assert (figures["products"], figures["steps"]) == (1000, 40)
    assert figures["steps_per_second"] > 0
