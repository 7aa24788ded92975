"""What counts as a failed action: two columns of the turn table, written when a rollout is played.

failed        the environment refused the action, or the action changed nothing (read by HIPIF and SCPO)
error_reply   the reply reads as an error by the patterns that MGR gives for the environment (read by MGR)

The two differ where a reply sounds like an error but is not one. An environment defines both by its `FailureRule`;
without one, an action has failed if its step was not `valid`. Tables made elsewhere may lack the columns: then the rule
of the environment that their column `env` names is applied to the replies, and a table of an unknown environment is
read with the patterns that the method's own paper gives.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

TextRule = Callable[[str], bool]
"""Whether a reply says that the action has failed."""


@dataclass(frozen=True)
class FailureRule:
    """What an environment counts as a failed action, from its reply (`next_observation`).

    error_reply   None: the same as `failed`
    """

    failed: TextRule
    error_reply: TextRule | None = None

    def column(self, name: str) -> TextRule:
        """The rule of the turn table's column `name`: `failed` or `error_reply`."""
        return self.error_reply if name == "error_reply" and self.error_reply is not None else self.failed


def replies(pattern: str, *, blank: bool = False) -> TextRule:
    """The rule by which a reply that contains `pattern` is a failure; with `blank`, an empty reply is one too."""
    search = re.compile(pattern).search

    def rule(reply: str) -> bool:
        text = reply.strip()
        return bool(search(text)) or (blank and not text)

    return rule


#: The papers' own lists, for tables of unknown environments. MGR, appendix A.5: ALFWorld's patterns, then AppWorld's
#: strings; HIPIF, appendix B; SCPO, appendix A.5 (observations of actions that changed nothing).
PUBLISHED: dict[str, TextRule] = {
    "mgr": replies(
        r"(?i)nothing happens\.?\Z|you don't see that|you can't see that|that command is not understood|you haven't got"
        r"|you are not|you need to|you must|you have to|that's not|not a valid|not valid|you cannot|you can not"
        r"|not available|execution failed|traceback:|syntaxerror|exception|error:|maximum number of executions"
        r"|timed out after|no code available to execute",
        blank=True,
    ),
    "hipif": replies(r"(?i)nothing happens|no known action matches that input"),
    "scpo": replies(r"(?i)^(nothing happens\.?)?\Z", blank=True),
}
