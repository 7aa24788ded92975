"""AppWorld's settings."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turncredit.data.strict_model import Closed


class Settings(Closed):
    """Where AppWorld is, which tasks are played, and how a rollout ends and is rewarded."""

    root: str | None = Field(None, description="AppWorld's root folder, with `data` in it; without it, $APPWORLD_ROOT")
    command: str = Field("appworld", description="the executable `appworld`, in an environment of its own")
    servers: int = Field(8, ge=1, le=512, description="most servers that a process starts; a rollout occupies one")
    urls: tuple[str, ...] = Field((), description="servers that run already; then none are started")
    task_lists: str | None = Field(
        None, description="folder of task lists, `<split>.txt`; without it, `data/datasets` in the root folder"
    )
    difficulties: tuple[Literal[1, 2, 3], ...] = Field((1, 2, 3), description="of the tasks that are played")

    horizon: int = Field(35, ge=1, description="actions until a rollout ends; MGR has 35")
    code_seconds: int = Field(100, ge=1, description="time limit of an action's code; AppWorld has 100")
    longest_reply: int = Field(10_000, ge=100, description="characters of a reply that are shown; the rest is cut")
    api_call: str = Field("apis.", min_length=1, description="what code must contain to be valid (MGR: .api)")
    reward: Literal["success", "tests"] = Field(
        "success", description="at the end: `success_reward` if all tests pass, or its fraction of tests that pass"
    )
    success_reward: float = Field(1.0, gt=0)
