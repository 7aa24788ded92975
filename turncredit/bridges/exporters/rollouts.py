"""The rollouts of a table of turns, one at a time, with each method's advantages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from turncredit.bridges.importers.messages import without_history
from turncredit.data import tables
from turncredit.data.credits import by_method, credit_of
from turncredit.data.turns import Turns
from turncredit.errors import UserError, nearest

#: The columns that an import can give: what a record of another project holds of a turn.
COLUMNS = tuple(name for name in tables.schema("imported").names if name not in (*tables.KEYS, "source", "done"))


@dataclass(frozen=True)
class Exported:
    """A rollout: its ids, its turns in order (rows by column), and advantages (T,) by method."""

    group_id: str
    rollout_id: str
    turns: list[dict[str, Any]]
    advantages: dict[str, list[float]]

    @property
    def rewards(self) -> list[float | None]:
        """The reward of each turn; None where the table has none."""
        return [turn.get("reward") for turn in self.turns]

    @property
    def total(self) -> float | None:
        """The rollout's return; None without rewards."""
        known = [reward for reward in self.rewards if reward is not None]
        return sum(known) if known else None

    def texts(self) -> Iterator[tuple[str, str]]:
        """What the policy saw and what it wrote in each turn. Raises UserError where it wrote nothing at all.

        What an import added to observations (`Observation`) is left out: nobody wrote it.
        """
        written = [str(turn.get("response_text") or turn.get("action") or "") for turn in self.turns]
        if not any(map(str.strip, written)):
            where = f"rollout '{self.rollout_id}' of group '{self.group_id}'"
            without = "without texts a table can be exported --to huggingface"
            raise UserError(f"{where}: neither response_text nor action in a turn, so there are no messages; {without}")
        yield from zip(map(_heard, [{}, *self.turns], self.turns), written, strict=False)

    def tokens(self, turn: int) -> tuple[list[int], list[int], list[float]]:
        """What was new in a turn's prompt, its response, and the log-probabilities of that, if there are as many."""
        row = self.turns[turn]
        prompt, response, logprobs = (
            list(row.get(name) or []) for name in ("prompt_ids", "response_ids", "response_logprobs")
        )
        return prompt, response, logprobs if len(logprobs) == len(response) else []

    @property
    def last(self) -> str:
        """What came after the last turn."""
        return str(self.turns[-1].get("next_observation") or "")


def _heard(before: Mapping[str, Any], turn: Mapping[str, Any]) -> str:
    """A turn's observation without the hash of the history, or the call of the turn before, that an import added."""
    observation, reply = str(turn.get("observation") or ""), before.get("next_observation")
    if reply is not None and observation == f"{before.get('action')}\n{reply}":
        return str(reply)
    return without_history(observation)


class Rollouts:
    """The rollouts of a file of turns, sorted, with the advantages of files of credits."""

    def __init__(self, path: Path, credit_paths: Sequence[Path]) -> None:
        table = tables.read(path)
        for key in tables.KEYS:
            if key not in table.column_names:
                raise UserError(f"{path}: an export needs the column '{key}'{nearest(key, table.column_names)}")
        # Only the order of `Turns` is needed. It wants rewards, which a user's table may lack.
        keys = {key: table.column(key) for key in tables.KEYS}
        self._turns = Turns({**keys, "reward": np.zeros(table.num_rows)}, where=str(path))
        self.table: pa.Table = table.take(pa.array(self._turns.order_N))
        self.advantages: dict[str, np.ndarray] = {}
        for credit_path in credit_paths:
            self._add(credit_path)

    def _add(self, path: Path) -> None:
        """Take the advantages of a file. Raises UserError for a method given twice, and for turns without credit."""
        table = tables.read(path)
        named = table.column("method")[0].as_py() if "method" in table.column_names and table.num_rows else None
        for method, part in by_method(table, str(named or path.stem), str(path)).items():
            if method in self.advantages:
                raise UserError(f"{path}: credits of '{method}' were given twice")
            self.advantages[method] = credit_of(self._turns, part, str(path), "export")[0]

    def __iter__(self) -> Iterator[Exported]:
        turns = self._turns
        for (group, rollout), first, length in zip(turns.ids_R(), turns.first_R, turns.length_R, strict=True):
            rows = self.table.slice(int(first), int(length)).to_pylist()
            credit = {name: x_N[first : first + length].tolist() for name, x_N in self.advantages.items()}
            yield Exported(str(group), str(rollout), rows, credit)

    def __len__(self) -> int:
        return len(self._turns.first_R)
