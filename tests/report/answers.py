"""Many numbers of a report by their SQL, through one connection: setting one up costs more than most queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from turncredit.views import sql_views
from turncredit.views.experiments import layouts_below


def answers(rows: Sequence[dict[str, Any]], results: Path) -> Iterator[tuple[dict[str, Any], Any]]:
    """Each row of a `summary` table with what its query gives."""
    with sql_views.connect(layouts_below(results), " ".join(row["sql"] for row in rows)) as connection:
        for row in rows:
            found = connection.execute(row["sql"]).fetchone()
            yield row, None if found is None else found[0]
