"""The rule judge. First the rollouts that TRIAGE's annotators labelled (appendix G and I), then rule by rule.

The paper prints the actions and the reason for each label; the observations are made up here, as the environments
would give them. Where the rules differ from the paper's annotators, the difference is listed, not hidden.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from turncredit import envs
from turncredit.config.judge import JudgeConfig
from turncredit.errors import UserError
from turncredit.judges.label import label_turns
from turncredit.judges.window import Turn, Window, read_rollouts, windows

NOTHING = "Nothing happens."
Script = Sequence[tuple[str, str]]


def table(env: str, goal: str, script: Script) -> pa.Table:
    return pa.table(
        {
            "group_id": ["g"] * len(script),
            "rollout_id": ["r"] * len(script),
            "turn": list(range(len(script))),
            "env": [env] * len(script),
            "goal": [goal] * len(script),
            "action": [action for action, _ in script],
            "next_observation": [observation for _, observation in script],
        }
    )


def judge_window(window: Window) -> tuple[str, str]:
    """Role and evidence of the turn in the middle of one window, from nothing else."""
    grammar = envs.load(window.env).grammar()
    assert grammar is not None
    before = [grammar.read_turn(turn) for turn in window.before]
    after = [grammar.read_turn(turn) for turn in window.after]
    return grammar.judge(grammar.read_goal(window.goal), before, grammar.read_turn(window.turn), after)


def judged(env: str, goal: str, script: Script) -> str:
    return "".join(label_turns(table(env, goal, script), JudgeConfig()).column("role").to_pylist())


def at(place: str, things: str = "nothing") -> str:
    return f"You arrive at {place}. On the {place}, you see {things}."


def on(place: str, things: str = "nothing") -> str:
    return f"On the {place}, you see {things}."


def opened(place: str, things: str = "nothing") -> str:
    return f"You open the {place}. The {place} is open. In it, you see {things}."


def inside(place: str, things: str = "nothing") -> str:
    return f"The {place} is open. In it, you see {things}."


def closed(place: str) -> str:
    return f"You arrive at {place}. The {place} is closed."


EMPTY_HANDS = "You are not carrying anything."

A1 = [
    ("go to countertop 1", at("countertop 1", "a butterknife 2, and a bread 1")),
    ("take butterknife 2 from countertop 1", "You pick up the butterknife 2 from the countertop 1."),
    ("go to sinkbasin 1", at("sinkbasin 1")),
    ("clean butterknife 2 with sinkbasin 1", "You clean the butterknife 2 using the sinkbasin 1."),
    ("go to diningtable 1", at("diningtable 1")),
    ("move butterknife 2 to diningtable 1", "You move the butterknife 2 to the diningtable 1."),
]
A2 = [
    ("go to toilet 1", at("toilet 1", "a soapbottle 1")),
    ("examine toilet 1", on("toilet 1", "a soapbottle 1")),
    ("inventory", EMPTY_HANDS),
    ("go to toiletpaperhanger 1", at("toiletpaperhanger 1")),
    ("examine toilet 1", NOTHING),
    ("examine toiletpaperhanger 1", on("toiletpaperhanger 1")),
    ("examine toilet 1", NOTHING),
    ("go to countertop 1", at("countertop 1", "a candle 1")),
    ("examine countertop 1", on("countertop 1", "a candle 1")),
    ("go to toilet 1", at("toilet 1", "a soapbottle 1")),
    ("examine toilet 1", on("toilet 1", "a soapbottle 1")),
    ("go to countertop 1", at("countertop 1", "a candle 1")),
    ("go to toilet 1", at("toilet 1", "a soapbottle 1")),
    ("examine toilet 1", on("toilet 1", "a soapbottle 1")),
    ("inventory", EMPTY_HANDS),
    ("examine toilet 1", on("toilet 1", "a soapbottle 1")),
    ("examine toilet 1", on("toilet 1", "a soapbottle 1")),
    ("go to cabinet 1", closed("cabinet 1")),
    ("open cabinet 1", opened("cabinet 1", "a toiletpaper 1")),
    ("take toiletpaper 1 from cabinet 1", "You pick up the toiletpaper 1 from the cabinet 1."),
    ("go to toiletpaperhanger 1", at("toiletpaperhanger 1")),
    ("move toiletpaper 1 to toiletpaperhanger 1", "You move the toiletpaper 1 to the toiletpaperhanger 1."),
]
A3 = [
    ("go to fridge 1", closed("fridge 1")),
    ("open fridge 1", opened("fridge 1", "a egg 1")),
    *[("examine fridge 1", inside("fridge 1", "a egg 1"))] * 15,
    ("go to cabinet 1", closed("cabinet 1")),
    ("open cabinet 1", opened("cabinet 1")),
    ("examine cabinet 2", NOTHING),
    ("open cabinet 2", opened("cabinet 2", "a plate 1")),
    ("examine cabinet 1", inside("cabinet 1")),
    ("examine cabinet 2", inside("cabinet 2", "a plate 1")),
    ("examine cabinet 1", inside("cabinet 1")),
    ("examine cabinet 2", inside("cabinet 2", "a plate 1")),
    ("go to countertop 1", at("countertop 1", "a knife 1")),
    ("examine countertop 1", on("countertop 1", "a knife 1")),
    ("examine countertop 1", on("countertop 1", "a knife 1")),
    ("go to countertop 2", at("countertop 2", "a apple 1")),
    ("take apple 1 from countertop 2", "You pick up the apple 1 from the countertop 2."),
    ("go to fridge 1", "You arrive at fridge 1. The fridge 1 is open. In it, you see a egg 1."),
    ("cool apple 1 with fridge 1", "You cool the apple 1 using the fridge 1."),
    ("go to garbagecan 1", at("garbagecan 1")),
    ("move apple 1 to garbagecan 1", "You move the apple 1 to the garbagecan 1."),
]


@pytest.mark.parametrize(
    ("goal", "script", "annotators", "differences"),
    [
        ("put a clean butterknife in diningtable", A1, "EDDDDD", {}),
        # What is repeated in turns 9, 10 and 14 lies more than five turns back: the rules cannot know it.
        ("put a toiletpaper in toiletpaperhanger", A2, "EEENREREE" + "R" * 8 + "EDDDD", {9: "E", 10: "E", 14: "E"}),
        ("put a cool apple in garbagecan", A3, "EE" + "R" * 15 + "EENERRRR" + "EERE" + "DDDDD", {}),
    ],
)
def test_the_papers_household_rollouts(goal: str, script: Script, annotators: str, differences: dict[int, str]) -> None:
    found = judged("alfworld", goal, script)
    expected = list(annotators)
    assert len(expected) == len(script)
    for turn, role in differences.items():
        expected[turn] = role
    assert found == "".join(expected)


def results(*products: tuple[str, str, str]) -> str:
    listed = " [SEP] ".join(" [SEP] ".join(product) for product in products)
    return f"Back to Search [SEP] Page 1 (Total results: 50) [SEP] Next > [SEP] {listed}"


def item(title: str, price: str, *options: str) -> str:
    offered = " [SEP] ".join(options)
    return (
        f"Back to Search [SEP] < Prev [SEP] {offered} [SEP] {title} [SEP] Price: {price} [SEP] Rating: N.A. [SEP] "
        "Description [SEP] Features [SEP] Reviews [SEP] Buy Now"
    )


DONE = "Thank you for shopping with us! [SEP] Your code: [SEP] None [SEP] Your score (min 0.0, max 1.0) [SEP] 1.0"
LOUNGE = ("B09ND8P2QR", "Mens Long Sleeve Sleep & Lounge Set Elastic Waistband", "$29.99")
LOUNGE_PAGE = item(LOUNGE[1], "$29.99", "color", "multi 9", "multi 10", "size", "small", "medium")
W1_GOAL = (
    "Find me hand wash men's sleep & lounge with long sleeve, elastic waistband with color: multi 9, and size: medium, "
    "and price lower than 80.00 dollars"
)
W1 = [
    ("search[hand wash men's sleep & lounge multi 9]", results(LOUNGE, ("B000000001", "Womens Robe", "$15.00"))),
    ("click[b09nd8p2qr]", LOUNGE_PAGE),
    ("click[multi 9]", LOUNGE_PAGE),
    ("click[medium]", LOUNGE_PAGE),
    ("click[buy now]", DONE),
    ("click[buy now]", DONE),
]
FURNITURE = ("B07FKGQKZ1", "Round Home Office Furniture Set Rug", "$59.99")
FURNITURE_PAGE = item(FURNITURE[1], "$59.99", "color", "navy red", "size", "3 ft 7 in x 5 ft 2 in", "shape", "round")
W2_GOAL = (
    "Find me home office furniture sets with color: navy red, and shape: round, and size: 3 ft 7 in x 5 ft 2 in, "
    "and price lower than 70.00 dollars"
)
W2 = [
    ("search[home office furniture sets navy red round]", results(FURNITURE)),
    ("click[b07fkgqkz1]", FURNITURE_PAGE),
    *[(f"click[{value}]", FURNITURE_PAGE) for value in ("3 ft 7 in x 5 ft 2 in", "round", "navy red") * 2],
    ("click[3 ft 7 in x 5 ft 2 in]", FURNITURE_PAGE),
    ("click[buy now]", DONE),
    ("click[navy red]", DONE),
    ("click[buy now]", DONE),
    ("click[buy now]", DONE),
]
MAT = ("B09CQ45ZRB", "Christmas Kitchen Mat Set Washable Rug Snowman", "$25.99")
MAT_PAGE = item(MAT[1], "$25.99", "color", "christmasgoo3302", "size", "19.7x31.5in+19.7x63in")
W3_GOAL = (
    "Find me non slip desks for living room with color: christmasgoo3302, and size: 19.7x31.5in+19.7x63in, "
    "and price lower than 50.00 dollars"
)
W3 = [
    ("search[non-slip desk christmasgoo3302]", results(MAT)),
    ("click[b09cq45zrb]", MAT_PAGE),
    ("click[19.7x31.5in+19.7x63in]", MAT_PAGE),
    ("click[19.7x31.5in+19.7x63in]", MAT_PAGE),
    ("search[non slip desk christmasgoo3302 living room]", results(MAT)),
    ("search[non slip desk color: christmasgoo3302 size 19.7x31.5in]", results(MAT)),
    ("click[b09cq45zrb]", MAT_PAGE),
    ("click[christmasgoo3302]", MAT_PAGE),
    ("click[christmasgoo3302]", MAT_PAGE),
    ("click[19.7x31.5in+19.7x63in]", MAT_PAGE),
    ("click[buy now]", DONE),
]


@pytest.mark.parametrize(
    ("goal", "script", "annotators"),
    [
        (W1_GOAL, W1, "EEDDDN"),
        (W2_GOAL, W2, "EEDDDRRRRDRNN"),
        (W3_GOAL, W3, "ERRREERRRRR"),
    ],
)
def test_the_papers_webshop_rollouts(goal: str, script: Script, annotators: str) -> None:
    assert judged("webshop", goal, script) == annotators


def found(*texts: str) -> str:
    docs = " ".join(f"Doc {n}(Title: T) {text}" for n, text in enumerate(texts, 1))
    return f"<information>{docs}</information>"


def asks(*queries: tuple[str, str]) -> list[tuple[str, str]]:
    return [(f"<think>hm</think><search>{query}</search>", found(text)) for query, text in queries]


@pytest.mark.parametrize(
    ("question", "script", "annotators"),
    [
        (
            "who designed the garden city of new earswick",
            [
                *asks(
                    ("garden city of new earswick", "New Earswick is a model village in York."),
                    ("who designed the model village of new earswick", "It was planned by Raymond Unwin."),
                    ("Raymond Unwin designed the garden city of new earswick", "Raymond Unwin, architect."),
                ),
                ("<answer>Raymond Unwin</answer>", ""),
            ],
            "EEED",
        ),
        (
            "who was the first lady nominated member of the rajya sabha",
            [
                *asks(*[("first lady nominated member of the rajya sabha", "The Rajya Sabha has 245 members.")] * 3),
                ("<answer>Rajvanshi Devi</answer>", ""),
            ],
            "ERRR",
        ),
        (
            "when was the last time philadelphia won the super bowl",
            [
                *asks(
                    ("Philadelphia last Super Bowl win", "The Eagles play in Philadelphia."),
                    ("Philadelphia Eagles last Super Bowl win", "The Eagles lost the game of 2005."),
                ),
                ("<answer>2018</answer>", ""),
            ],
            "EER",
        ),
    ],
)
def test_the_papers_search_rollouts(question: str, script: Script, annotators: str) -> None:
    assert judged("searchqa", question, script) == annotators


MUG, TO_MUG = "You pick up the mug 1 from the desk 1.", "take mug 1 from desk 1"


@pytest.mark.parametrize(
    ("goal", "script", "roles"),
    [
        pytest.param("put a mug in shelf", [("open door", NOTHING), ("open door", NOTHING)], "NR", id="invalid, again"),
        pytest.param("put a mug in shelf", [("help", "Available commands: ...")], "N", id="help"),
        pytest.param(
            "put a mug in shelf",
            [("look", "You are facing the desk 1. Next to it, you see nothing.")] * 2,
            "NR",
            id="look, again",
        ),
        pytest.param("put a mug in shelf", [("inventory", EMPTY_HANDS)] * 2, "ER", id="inventory, again"),
        pytest.param(
            "put a mug in shelf",
            [
                ("go to desk 1", at("desk 1", "a pen 1")),
                ("take pen 1 from desk 1", "You pick up the pen 1 from the desk 1."),
                ("move pen 1 to desk 1", "You move the pen 1 to the desk 1."),
            ],
            "ERN",
            id="wrong object, put back",
        ),
        pytest.param(
            "put a mug in shelf",
            [
                (TO_MUG, MUG),
                ("move mug 1 to bed 1", "You move the mug 1 to the bed 1."),
                ("take mug 1 from bed 1", "You pick up the mug 1 from the bed 1."),
            ],
            "DRR",
            id="right object, wrong place",
        ),
        pytest.param(
            "put a clean mug in shelf",
            [
                (TO_MUG, MUG),
                ("go to shelf 1", at("shelf 1")),
                ("move mug 1 to shelf 1", "You move the mug 1 to the shelf 1."),
                ("look", "You are facing the shelf 1. Next to it, you see nothing."),
            ],
            "DNRN",
            id="placed before it is clean",
        ),
        pytest.param(
            "put a clean mug in shelf",
            [
                (TO_MUG, MUG),
                ("go to sinkbasin 1", at("sinkbasin 1")),
                ("clean mug 1 with sinkbasin 1", "You clean the mug 1 using the sinkbasin 1."),
                ("clean mug 1 with sinkbasin 1", "You clean the mug 1 using the sinkbasin 1."),
            ],
            "DDDR",
            id="cleaned twice",
        ),
        pytest.param(
            "put a hot mug in shelf",
            [(TO_MUG, MUG), ("cool mug 1 with fridge 1", "You cool the mug 1 using the fridge 1.")],
            "DR",
            id="wrong treatment",
        ),
        pytest.param(
            "put a hot mug in shelf",
            [
                (TO_MUG, MUG),
                ("heat mug 1 with microwave 1", "You heat the mug 1 using the microwave 1."),
                ("cool mug 1 with fridge 1", "You cool the mug 1 using the fridge 1."),
                ("go to microwave 1", at("microwave 1")),
                ("heat mug 1 with microwave 1", "You heat the mug 1 using the microwave 1."),
                ("heat mug 1 with microwave 1", "You heat the mug 1 using the microwave 1."),
            ],
            "DDRDDR",
            id="treatment undone",
        ),
        pytest.param(
            "put a mug in cabinet",
            [
                (TO_MUG, MUG),
                ("go to cabinet 1", closed("cabinet 1")),
                ("open cabinet 1", opened("cabinet 1")),
                ("move mug 1 to cabinet 1", "You move the mug 1 to the cabinet 1."),
                ("look", "You are facing the cabinet 1. Next to it, you see nothing."),
                ("take mug 1 from cabinet 1", "You pick up the mug 1 from the cabinet 1."),
            ],
            "DDDDNR",
            id="after completion",
        ),
        pytest.param(
            "examine the mug with the desklamp",
            [
                (TO_MUG, MUG),
                ("go to shelf 1", at("shelf 1")),
                ("go to desk 2", at("desk 2", "a desklamp 1")),
                ("use desklamp 1", "You turn on the desklamp 1."),
                ("use desklamp 1", "You turn on the desklamp 1."),
            ],
            "DEDDR",
            id="lamp",
        ),
        pytest.param(
            "put a mug in shelf", [("use desklamp 1", "You turn on the desklamp 1.")], "N", id="lamp not asked for"
        ),
        pytest.param(
            "put two mug in shelf",
            [
                (TO_MUG, MUG),
                ("go to shelf 1", at("shelf 1")),
                ("move mug 1 to shelf 1", "You move the mug 1 to the shelf 1."),
                ("go to desk 1", at("desk 1", "a mug 2")),
                ("take mug 2 from desk 1", "You pick up the mug 2 from the desk 1."),
                ("go to shelf 1", at("shelf 1", "a mug 1")),
                ("move mug 2 to shelf 1", "You move the mug 2 to the shelf 1."),
            ],
            "DDDEDDD",
            id="two objects",
        ),
        pytest.param(
            "put a mug in shelf",
            [
                ("go to desk 1", at("desk 1", "a mug 1")),
                ("go to bed 1", at("bed 1")),
                ("go to desk 1", at("desk 1", "a mug 1")),
                (TO_MUG, MUG),
            ],
            "EEDD",
            id="back for what was seen",
        ),
        pytest.param(
            "put a mug in shelf",
            [
                ("go to safe 1", closed("safe 1")),
                ("go to bed 1", at("bed 1")),
                ("go to safe 1", closed("safe 1")),
                ("open safe 1", opened("safe 1")),
                ("go to bed 1", at("bed 1")),
            ],
            "NEEER",
            id="passed by, then opened",
        ),
        pytest.param(
            "put a mug in shelf",
            [("go to safe 1", closed("safe 1")), ("dance", NOTHING), ("open safe 1", opened("safe 1"))],
            "ENE",
            id="opened after a slip",
        ),
        pytest.param(
            "put a mug in shelf",
            [
                ("open safe 1", opened("safe 1")),
                ("close safe 1", "You close the safe 1."),
                ("open safe 1", opened("safe 1")),
                ("close safe 1", "You close the safe 1."),
            ],
            "ENRR",
            id="open and close",
        ),
        pytest.param(
            "put a mug in shelf", [("go to shelf 1", at("shelf 1"))], "N", id="empty-handed to the destination"
        ),
        pytest.param(
            "put a clean mug in shelf", [("go to shelf 1", at("shelf 1"))], "E", id="a dirty mug may be there"
        ),
        pytest.param(
            "put a mug in shelf",
            [
                (TO_MUG, MUG),
                ("go to shelf 1", at("shelf 1")),
                ("go to bed 1", at("bed 1")),
                ("go to shelf 1", at("shelf 1")),
            ],
            "DDNR",
            id="to and fro with it",
        ),
        pytest.param(
            "put some mug on shelf.",
            [("put mug 1 in/on shelf 1", "You put the mug 1 in/on the shelf 1.")],
            "D",
            id="old grammar",
        ),
        pytest.param("sing a song", [(TO_MUG, MUG), ("go to desk 1", at("desk 1"))], "EE", id="unknown goal"),
        pytest.param(
            "put a mug in shelf",
            [("examine mug 1", "There's nothing special about mug 1."), ("examine mug 1", "This is a clean mug 1.")],
            "EE",
            id="examined again after a change",
        ),
        pytest.param(
            "put a mug in shelf", [("examine safe 1", "The safe 1 is closed.")], "N", id="examined while closed"
        ),
    ],
)
def test_household_rules(goal: str, script: Script, roles: str) -> None:
    assert judged("household", goal, script) == roles


@pytest.mark.parametrize(
    ("script", "roles"),
    [
        pytest.param([("search[a]", results(LOUNGE)), ("search[A]", results(LOUNGE))], "ER", id="search, again"),
        pytest.param([("dance", "x"), ("dance", "x")], "NR", id="no action, again"),
        pytest.param(
            [
                ("search[a]", results(("B000000002", LOUNGE[1], "$99.00"))),
                ("click[b000000002]", item(LOUNGE[1], "$99.00")),
            ],
            "ER",
            id="too expensive",
        ),
        pytest.param([("click[b09nd8p2qr]", LOUNGE_PAGE), ("click[multi 10]", LOUNGE_PAGE)], "ER", id="wrong option"),
        pytest.param(
            [("click[b09nd8p2qr]", LOUNGE_PAGE), ("click[multi 9]", LOUNGE_PAGE), ("click[buy now]", DONE)],
            "EDR",
            id="bought without the size",
        ),
        pytest.param(
            [("click[b09nd8p2qr]", LOUNGE_PAGE), ("click[huge]", LOUNGE_PAGE), ("click[huge]", LOUNGE_PAGE)],
            "ENR",
            id="not on the page",
        ),
        pytest.param(
            [
                ("click[b09nd8p2qr]", LOUNGE_PAGE),
                ("click[description]", "Soft."),
                ("click[< prev]", LOUNGE_PAGE),
                ("click[description]", "Soft."),
            ],
            "EENR",
            id="description, again",
        ),
        pytest.param(
            [
                ("click[next >]", results(LOUNGE)),
                ("click[back to search]", "Search"),
                ("click[back to search]", "Search"),
            ],
            "ENR",
            id="pages",
        ),
        pytest.param(
            [("click[b09nd8p2qr]", LOUNGE_PAGE), ("click[b09nd8p2qr]", LOUNGE_PAGE)], "ER", id="product, again"
        ),
    ],
)
def test_webshop_rules(script: Script, roles: str) -> None:
    assert judged("webshop", W1_GOAL, script) == roles


@pytest.mark.parametrize(
    ("script", "roles"),
    [
        pytest.param([("<answer>Paris</answer>", "")], "R", id="no search"),
        pytest.param(
            [
                *asks(("capital of france", "Paris is the capital.")),
                ("<answer>Paris</answer>", ""),
                ("<answer>Paris</answer>", ""),
            ],
            "EDN",
            id="answered twice",
        ),
        pytest.param(asks(("capital of france", "Paris."), ("banana bread", "Mix.")), "ER", id="off the subject"),
        pytest.param(
            asks(("capital of france", "Paris, on the Seine."), ("seine length", "777 km")), "EE", id="second hop"
        ),
        pytest.param([("hm", "?"), ("hm", "?")], "NR", id="neither"),
        pytest.param([*asks(("capital of france", "Paris.")), ("answer[yes]", "")], "ED", id="yes"),
        pytest.param(
            [("search[capital of france]", "Paris."), ("search[France capital]", "Paris.")], "ER", id="same words"
        ),
    ],
)
def test_search_rules(script: Script, roles: str) -> None:
    assert judged("searchqa", "what is the capital of france", script) == roles


def test_each_label_has_evidence_and_neither_reason_nor_cost() -> None:
    labels = label_turns(table("household", "put a clean butterknife in diningtable", A1), JudgeConfig())
    rows = labels.to_pylist()
    assert rows[1]["evidence"] == "takes butterknife 2, which the task asks for"
    assert all(row["evidence"] and row["reason"] is None and row["tokens_in"] is None for row in rows)
    assert {row["judge"] for row in rows} == {"rule"}
    assert [row["score"] for row in rows] == [0.5, 1, 1, 1, 1, 1]


@pytest.mark.parametrize(("ask", "expected"), [("progress", [0.5, -0.5]), ("score", [0.5, 0.0])])
def test_the_rule_judge_gives_numbers_on_the_scale_asked_for(ask: str, expected: list[float]) -> None:
    script = [("go to desk 1", at("desk 1", "a pen 1")), ("take pen 1 from desk 1", "You pick up the pen 1.")]
    labels = label_turns(table("household", "put a mug in shelf", script), JudgeConfig(), ask=ask)  # type: ignore[arg-type]
    assert labels.column("score").to_pylist() == expected


def test_labels_come_from_the_window_alone() -> None:
    turns = table("household", "put a toiletpaper in toiletpaperhanger", A2)
    labels = label_turns(turns, JudgeConfig()).to_pylist()
    for window, label in zip(windows(read_rollouts(turns), 5), labels, strict=True):
        assert judge_window(window) == (label["role"], label["evidence"])


def test_what_lies_outside_the_window_changes_neither_label_nor_hash() -> None:
    far = [("go to desk 1", at("desk 1")), *A1, *[("help", "Available commands: ...")] * 6]
    near = [("sing", NOTHING), *A1, *[("help", "Available commands: ...")] * 5, ("look", "You see nothing.")]
    one, two = (label_turns(table("household", "put a clean mug in x", part), JudgeConfig()) for part in (far, near))
    assert one.slice(6, 1).column("prompt_hash") == two.slice(6, 1).column("prompt_hash")
    assert one.slice(6, 1).column("evidence") == two.slice(6, 1).column("evidence")
    assert one.slice(5, 1).column("prompt_hash") != two.slice(5, 1).column("prompt_hash")


def test_turns_of_equal_windows_have_hashes_of_their_own_by_their_place_in_them() -> None:
    """Also of equal turns: what is under review is another one."""
    labels = label_turns(table("household", "put a mug in cabinet.", [("look", at("shelf 1"))] * 3), JudgeConfig())
    assert len(set(labels.column("prompt_hash").to_pylist())) == 3


def test_labels_keep_the_order_of_the_rows() -> None:
    turns = table("household", "put a clean butterknife in diningtable", A1)
    order = pa.array([3, 0, 5, 1, 4, 2])
    assert label_turns(turns.take(order), JudgeConfig()) == label_turns(turns, JudgeConfig()).take(order)


def test_an_environment_the_rules_do_not_know_is_named_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"does not know the actions of 'webshp' \(did you mean 'webshop'\?\)"):
        judged("webshp", "x", [("search[a]", "b")])


def test_a_smaller_window_forgets_sooner() -> None:
    script = [("inventory", EMPTY_HANDS), ("help", "..."), ("help", "..."), ("inventory", EMPTY_HANDS)]
    turns = table("household", "put a mug in shelf", script)
    assert label_turns(turns, JudgeConfig(window=5)).column("role")[3].as_py() == "R"
    assert label_turns(turns, JudgeConfig(window=2)).column("role")[3].as_py() == "E"


def test_any_text_as_action_goal_and_observation_gets_a_role() -> None:
    odd = ["", "\n", "click[", "search[]", "<search>", "[SEP]", "take  from ", "go to ", "$$", "{}", "é\u2028"]
    for env in ("household", "webshop", "searchqa", "sokoban", "desk"):
        for text in odd:
            window = Window(env, text, (Turn(text, text),), Turn(text, text), (Turn(text, text),))
            assert judge_window(window)[0] in "DENR"
