"""VirtualHome's wording in prompts."""

from __future__ import annotations

from turncredit.data.env_wording import Words
from turncredit.envs.virtualhome.actions import TEXTS

_NAMES = {
    "PUTBACK": ("{object}", "{place}"),
    "PUTIN": ("{object}", "{place}"),
    "POUR": ("{object}", "{place}"),
    "WALK": ("{room or object}",),
}
#: the verbs of HIPIF's prompt (its figure 9), in its order
_TOLD = tuple(TEXTS)[: tuple(TEXTS).index("TURNTO") + 1]

WORDS = Words(
    setting=(
        "You do chores in a simulated home. Walk to an object before you do anything with it. A name without a number "
        "means number 1."
    ),
    game="a simulated home",
    task="Your task is to",
    examples=("walk to kitchen", "open fridge", "grab milk", "put milk on kitchen_counter", "switch on tv"),
    templates=tuple(TEXTS[verb].format(*_NAMES.get(verb, ("{object}",))) for verb in _TOLD),
)
