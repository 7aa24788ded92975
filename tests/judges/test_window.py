"""What a judge is shown. The invariant of this file: nothing that tells the outcome can reach a prompt."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turncredit.config.judge import JudgeConfig
from turncredit.data import tables
from turncredit.data.transcript_markers import FAILED
from turncredit.errors import UserError
from turncredit.judges.label import label_turns
from turncredit.judges.window import COLUMNS, TEXT_LIMIT, read_rollouts, redact, render, windows

from .chat_server import ChatServer
from .conftest import turns_table

OUTCOME = {"success", "score", "reward", "progress", "progress_before", "distance", "distance_before", "done"}

HIDDEN = "(the environment's reply is not shown)"


def prompts(table: pa.Table, size: int = 5) -> list[str]:
    return [render(window) for window in windows(read_rollouts(table), size)]


def full_turns(**columns: Any) -> pa.Table:
    """Turns with every column of the schema and the measures; those given replace the made-up ones."""
    table = turns_table(2, 4)
    made_up = {"string": "sentinel-text", "double": 0.123454321, "float": 0.123454321, "bool": True}
    for field in (*tables.schema("turns"), *tables.schema("measures")):
        if field.name not in table.column_names:
            name = str(field.type)
            value = made_up.get(name, [] if pa.types.is_list(field.type) else 987654321)
            given_value = columns.get(field.name, value)
            table = table.append_column(field.name, pa.array([given_value] * table.num_rows, field.type))
    return table


def test_the_columns_that_are_read_are_none_that_tell_the_outcome() -> None:
    assert set(COLUMNS) == {"group_id", "rollout_id", "turn", "env", "goal", "action", "next_observation"}
    assert not set(COLUMNS) & OUTCOME
    assert {*tables.schema("turns").names, *tables.MEASURED} >= OUTCOME  # the names above are the tables'


@settings(max_examples=25, deadline=None)
@given(
    success=st.booleans(),
    score=st.floats(allow_nan=False, allow_infinity=False),
    reward=st.floats(allow_nan=False, allow_infinity=False),
    progress=st.floats(0, 1),
    distance=st.integers(-1, 1000),
)
def test_no_outcome_of_any_kind_changes_a_prompt(
    success: bool, score: float, reward: float, progress: float, distance: int
) -> None:
    changed = full_turns(
        success=success, done=not success, score=score, reward=reward, progress=progress,
        progress_before=progress, distance=distance, distance_before=distance,
    )  # fmt: skip
    assert prompts(changed) == prompts(turns_table(2, 4))


def test_success_score_and_reward_are_in_no_request_that_leaves_the_process(
    server: ChatServer, llm: Callable[..., JudgeConfig], tmp_path: Path
) -> None:
    label_turns(full_turns(success=True, score=0.123454321, reward=9.87656789), llm(), cache=tmp_path)
    sent = repr(server.requests)
    assert len(server.requests) == 8
    for told in ("0.123454321", "9.87656789", "987654321", "sentinel-text", "True", "'success'", "'reward'"):
        assert told not in sent.replace("'enable_thinking': False", "").replace("'strict': True", "")


@pytest.mark.parametrize(
    ("env", "action", "observation", "shown"),
    [
        (
            "webshop",
            "click[Buy Now]",
            "Thank you for shopping with us! [SEP] Your code: [SEP] None [SEP] Reward [SEP] "
            "Your score (min 0.0, max 1.0) [SEP] 0.75",
            "Thank you for shopping with us!",
        ),
        ("webshop", "click[buy now]", "Your score (min 0.0, max 1.0): 1.0", "Thank you for shopping with us!"),
        ("searchqa", "<answer>Paris</answer>", "Correct!", HIDDEN),
        ("searchqa", "<think>so</think><answer>Rome</answer>", "The right answer is Paris.", HIDDEN),
        ("searchqa", "finish[Rome]", "wrong", HIDDEN),
        (
            "household",
            "move mug 1 to cabinet 1",
            "You move the mug 1 to the cabinet 1. You won!",
            "You move the mug 1 to the cabinet 1.",
        ),
        ("household", "look", "You are here.\n*** You have won ***", "You are here."),
        ("scienceworld", "focus on ball", "You focus on the ball. Task completed.", "You focus on the ball."),
        ("scienceworld", "look", "A room. Score: 0.5", "A room."),
        ("other", "go", "Done. reward=1.0", "Done."),
        ("other", "go", "success: true", HIDDEN),
        ("other", "go", '{"reward": 1.0, "observation": "A door."}', '{, "observation": "A door."}'),
        ("other", "go", '{"success": 1, "is_correct":true}', '{"success": 1, }'),
        ("other", "go", "You lose", HIDDEN),
    ],
)
def test_what_an_environment_says_of_the_outcome_is_taken_out(
    env: str, action: str, observation: str, shown: str
) -> None:
    found = redact(env, action, observation)
    assert found == shown
    for word in ("score", "won", "lose", "0.75", "1.0", "0.5", "Correct", "Paris", "wrong", "completed", "true"):
        assert word not in found


def test_that_a_trial_has_failed_is_not_shown() -> None:
    reply = "You arrive at shelf 1."
    assert prompts(turns_table(next_observation=reply + FAILED)) == prompts(turns_table(next_observation=reply))


@pytest.mark.parametrize(
    "observation",
    [
        "You arrive at cabinet 1. The cabinet 1 is closed.",
        "On the desk 1, you see a scorecard 1, and a lottery ticket 1.",
        "<information>Doc 1(Title: Goal) The goal of the task force was peace. They lost 3 ships.</information>",
        "Your task is to: put a mug in cabinet.",
        "B09 [SEP] Reward stickers for kids, 500 pieces [SEP] $7.99",
    ],
)
def test_other_texts_stay_as_they_are(observation: str) -> None:
    assert redact("searchqa", "<search>x</search>", observation) == observation


#: what is taken out of any environment's reply, as one expression: it begins anew at every letter of a sentence
TELLING = re.compile(
    r"""\*{3}[^*\n]{0,80}\*{3}
    | [^.!?\n]*\b(?:you(?:'ve|\ have)?\ (?:won|lost|win|lose)\b|task\ (?:completed|complete|failed|succeeded)\b
        |(?:goal|task)\ (?:was\ |has\ been\ |is\ )?(?:achieved|accomplished|reached)\b)[^.!?\n]*[.!?]?
    | [^.!?\n]*\byour\ score\b[^\n]*
    | \b(?:reward|score|success|won|is_correct|correct)\s*(?:\[SEP\]\s*)?[:=]\s*(?:-?\d+(?:\.\d+)?|true|false)\b
    | "(?:reward|won|is_correct)"\s*:\s*(?:-?\d+(?:\.\d+)?|true|false)\b""",
    re.IGNORECASE | re.VERBOSE,
)
PIECES = (
    "***", " ", ".", "!", "?", "\n", "0.5", "mug 1", "you won", "You've lost", "you", "won", "task failed", "task ",
    "goal", " has been ", "reached", "your score", "Your Score is", "reward: 1.0", "score = -3", "success [SEP] : true",
    "won\n= 5", "correct:false", "_", "é", '"won": 1', '"', "reward",
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=16).map("".join))
def test_whole_sentences_lines_and_marks_are_taken_out_from_left_to_right(observation: str) -> None:
    assert (redact("other", "go", observation).strip() or HIDDEN) == (TELLING.sub("", observation).strip() or HIDDEN)


@pytest.mark.parametrize("piece", ['{"id": 3, "task": "x"}, ', "you won. ", "reward: 1 ", "*** a", "your score\n"])
def test_a_long_reply_is_read_in_linear_time(piece: str) -> None:
    started = time.process_time()
    redact("other", "go", piece * (60_000 // len(piece)))
    assert time.process_time() - started < 10


def test_a_window_has_the_turns_around_and_no_more_than_five_on_a_side() -> None:
    table = turns_table(1, 14)
    found = list(windows(read_rollouts(table), 5))
    assert [(len(window.before), len(window.after)) for window in found] == [
        (min(5, at), min(5, 13 - at)) for at in range(14)
    ]
    window = found[7]
    assert [turn.action for turn in window.before] == [f"go to shelf {at}" for at in range(2, 7)]
    assert window.turn.action == "go to shelf 7"
    assert [turn.action for turn in window.after] == [f"go to shelf {at}" for at in range(8, 13)]
    text = render(window)
    assert text.index("[-5]") < text.index("[-1]") < text.index("[0]") < text.index("[+1]") < text.index("[+5]")
    assert text.startswith("TASK\nput a mug in cabinet.\n")


def test_a_window_never_reaches_into_another_rollout() -> None:
    for window, prompt in zip(windows(read_rollouts(turns_table(3, 4)), 5), prompts(turns_table(3, 4)), strict=True):
        own = int(window.turn.action.split()[-1]) // 100
        assert {int(turn.action.split()[-1]) // 100 for turn in (*window.before, *window.after)} <= {own}
        assert len(window.before) + len(window.after) == 3
        assert prompt.count("action:") == 4


def test_the_order_of_the_input_rows_does_not_matter() -> None:
    table = turns_table(3, 5)
    shuffled = table.take(pa.array([7, 2, 14, 0, 9, 4, 11, 1, 13, 6, 3, 12, 5, 10, 8]))
    assert prompts(shuffled) == prompts(table)


@pytest.mark.parametrize("column", ["goal", "action", "next_observation"])
def test_a_long_text_keeps_its_two_ends(column: str) -> None:
    (prompt,) = prompts(turns_table(1, 1, **{column: "a" * 3000 + "b" * 3000}))
    assert f"a [... {6000 - TEXT_LIMIT} characters left out ...] b" in prompt
    assert (prompt.count("aa"), prompt.count("bb")) == (TEXT_LIMIT // 4, TEXT_LIMIT // 4)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (turns_table().drop_columns("goal"), "needs the column 'goal', which the table does not have"),
        (turns_table().rename_columns(["group_id", "rollout_id", "turn", "env", "goal", "action", "next_observatoin"]),
         "'next_observation', which the table does not have .did you mean 'next_observatoin'"),
        (turns_table(action=None), "'action', which has nulls"),
        (turns_table(action=3), "'action' must hold text, not int64"),
        (pa.concat_tables([turns_table(), turns_table()]), "duplicate key"),
        (turns_table(1, 4).filter(pa.array([True, False, True, True])), "has no turn 1"),
        (turns_table().slice(0, 0), "has no rows"),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_judged_is_one_clear_line(table: pa.Table, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        read_rollouts(table, "mine.parquet")
    assert str(caught.value).startswith("mine.parquet: ")
    assert "\n" not in str(caught.value)


def test_numbers_as_ids_are_welcome() -> None:
    table = turns_table(2, 2).set_column(0, "group_id", pa.array([1, 1, 1, 1]))
    labels = label_turns(table, JudgeConfig())
    assert labels.column("group_id").to_pylist() == ["1"] * 4
