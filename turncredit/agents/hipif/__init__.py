"""The HIPIF agent: it plans in subgoals, reflects before it acts, and folds the history of finished subgoals."""

from __future__ import annotations

from turncredit.agents.hipif.agent import AGENT

__all__ = ["AGENT"]
