"""TurnRD conditioned on the goal by FiLM (HAS, eq. 6): `turnrd` with `film` on by default."""

from __future__ import annotations

from turncredit.credit.models.turnrd import TurnRD, TurnRDSettings

KIND = TurnRD(TurnRDSettings(film=True))
