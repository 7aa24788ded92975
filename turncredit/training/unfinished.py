"""An update that stops before its job's time limit keeps its state, from which another attempt goes on.

The state is a folder: weights, moments and the state of stochastic rounding as safetensors, what else changes from step
to step as JSON. Minibatches, dropout and learning rates follow from the seed and the number of the step, so an update
that was interrupted ends with the bits of one that was not.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from turncredit.data.files import discard_leftovers, new_folder, remove_folder
from turncredit.errors import OutOfTime, UserError
from turncredit.policy.masters import Masters
from turncredit.training.optimizers import Optimizers
from turncredit.training.team import Team

STATE_FILE, TENSORS_FILE = "state.json", "state.safetensors"
#: Seconds kept free before a job's end, besides two steps and the time of writing; and bytes a second that are written.
SPARE, WRITTEN = 60.0, 200e6


class Unfinished:
    """The state of an update in `folder`, and when its job ends.

    made_from   what the update's result depends on: a state of something else is removed
    ends        when the job ends, in seconds since 1970; None: it has no limit
    """

    def __init__(self, folder: Path, made_from: Mapping[str, Any], *, ends: float | None = None):
        self.folder, self._ends = folder, ends
        self._made_from = json.loads(json.dumps(made_from))
        self._restored, self._checks = 0, 0
        self._longest, self._since = 0.0, 0.0

    def restore(self, team: Team, masters: Masters, optimizer: Optimizers) -> list[dict]:
        """Load the state, if there is one of this update, into weights and moments. Returns the log rows of its steps.

        All processes call. A damaged state, and one of other inputs, settings or another version, is removed, and so is
        what a process left that was killed while it wrote one.
        """
        if team.leads:
            discard_leftovers(self.folder)
        try:
            state = json.loads((self.folder / STATE_FILE).read_text(encoding="utf-8"))
            why = "" if state["made_from"] == self._made_from else "it is of an update with other inputs or settings"
            tensors = {} if why else load_file(self.folder / TENSORS_FILE)
        except FileNotFoundError:  # no state, or the first process has removed it
            return []
        except (ValueError, KeyError, SafetensorError):
            why = "it is damaged"
        if why:
            if team.leads:
                print(f"{self.folder}: removed, because {why}", flush=True)
                self.remove()
            return []
        _load(tensors, masters, optimizer)
        self._restored = len(state["rows"])
        if team.leads:
            print(f"goes on after step {self._restored}, which an earlier attempt has kept", flush=True)
        return list(state["rows"])

    def stop_if_due(self, team: Team, masters: Masters, optimizer: Optimizers, rows: list[dict], total: int) -> None:
        """Before a step: if the job's end is too near for it, keep the state and raise OutOfTime. All processes call.

        rows   those of the steps so far, in the first process; `total` is the number of all steps

        An attempt makes at least one step of its own. If there is no time even for that, raises UserError.
        """
        now, first = time.time(), not self._checks
        if not first:
            self._longest = max(self._longest, now - self._since)
        self._checks, self._since = self._checks + 1, now
        due = (
            team.leads
            and self._ends is not None
            and not (first and not self._restored)
            and self._ends - now < SPARE + 2 * self._longest + _bytes_of(masters) / WRITTEN
        )
        if not team.all_of(due)[0]:
            return
        if not first:
            self._keep(team, masters, optimizer, rows)
        steps = self._restored + self._checks - 1  # all processes know it; rows are the first one's
        done = f"{steps} of {total} steps are kept in {self.folder}"
        team.all_of(None)  # none ends before the first has written
        if first:
            raise UserError(
                f"the job's time limit is too near for another step; {done}. Run it again, with more time if it had "
                "little (resources.update.runtime, in minutes)"
            )
        raise OutOfTime(f"stopped before the job's time limit; {done}, and another attempt goes on from there")

    def _keep(self, team: Team, masters: Masters, optimizer: Optimizers, rows: list[dict]) -> None:
        tensors = {f"weights.{name}": one for name, one in masters.weights(keep=team.leads).items()}
        tensors |= {f"moments.{name}": one for name, one in optimizer.state(keep=team.leads).items()}
        if not team.leads:
            return
        if optimizer.rounding is not None:
            tensors["rounding"] = optimizer.rounding
        with new_folder(self.folder) as folder:
            save_file(tensors, folder / TENSORS_FILE)
            state = {"made_from": self._made_from, "rows": rows}
            (folder / STATE_FILE).write_text(json.dumps(state) + "\n", encoding="utf-8")

    def remove(self) -> None:
        """Remove the state: the update has ended, or it is of another one."""
        remove_folder(self.folder)


def _load(tensors: Mapping[str, torch.Tensor], masters: Masters, optimizer: Optimizers) -> None:
    """Load what `_keep` has written."""
    of = {
        part: {name.removeprefix(part): one for name, one in tensors.items() if name.startswith(part)}
        for part in ("weights.", "moments.", "rounding")
    }
    masters.load_weights(of["weights."])
    optimizer.load_state(of["moments."])
    for state in of["rounding"].values():
        optimizer.rounding = state


def _bytes_of(masters: Masters) -> int:
    """Bytes of the weights and of two moments for each."""
    return 3 * sum(one.numel() * one.element_size() for one in masters.parameters.values())
