"""TurnRD conditioned on the goal by FiLM (HAS, eq. 6): `turnrd` with `film` on where a method says nothing else."""

from __future__ import annotations

from turncredit.credit_models.turnrd import TurnRD, TurnRDSettings

KIND = TurnRD(TurnRDSettings(film=True))
