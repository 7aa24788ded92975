"""Search-QA's two actions as tools. Their texts have no angle brackets: an action's tags have them."""

from __future__ import annotations

from turncredit.data.tools import Parameter, Tool, Toolbox

TOOLS = Toolbox(
    (
        Tool("search", "Search the documents.", "search[ {query}]", {"query": Parameter("Words.", without="<>")}),
        Tool(
            "answer",
            "Answer the question. Final.",
            "answer[ {answer}]",
            {"answer": Parameter("In short.", without="<>")},
        ),
    )
)
