"""WebShop's two actions as tools. Their texts have no brackets: these end an action."""

from __future__ import annotations

from turncredit.data.tools import Parameter, Tool, Toolbox

TOOLS = Toolbox(
    (
        Tool(
            "search", "Search the shop.", "search[{words}]", {"words": Parameter("What to search for.", without="[]")}
        ),
        Tool(
            "click",
            "Click a button, a product or an option of the page.",
            "click[{text}]",
            {"text": Parameter("Its text on the page.", without="[]")},
        ),
    )
)
