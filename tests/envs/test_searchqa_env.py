"""Search-QA's actions, observations, rewards, and the promises of the protocol."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turncredit.envs import load
from turncredit.envs.searchqa import Expert, Settings, make_tasks, open_task, random_command, redact, slip_command
from turncredit.envs.searchqa.actions import parse, write
from turncredit.envs.searchqa.answers import contains, exact_match, f1, normalise
from turncredit.envs.searchqa.qa import NOTHING, REFUSED, RIGHT, START, WRONG, Question, SearchQA
from turncredit.envs.searchqa.retrieve import Bm25, Document

SETTINGS = Settings(topk=2, horizon=4)
DOCUMENTS = (
    Document("a", "Dracula", "Dracula is a novel by Bram Stoker."),
    Document("b", "Bram Stoker", "Bram Stoker was born in Clontarf."),
    Document("c", "Carmilla", "Carmilla is a novel by Sheridan Le Fanu."),
)
INDEX = Bm25(DOCUMENTS, 2)
QUESTION = Question("q", "Where was its author born?", ("Clontarf", "Dublin"), ("Dracula", "Bram Stoker"), "x")
GENERATED = Settings(horizon=6)
FILES = {"source": "files", "questions": {"train": "questions.jsonl"}}
ROWS = make_tasks("train", 8, 0, GENERATED)


def opened(*actions: str, question: Question = QUESTION, **changes) -> SearchQA:
    env = SearchQA(INDEX, question, SETTINGS.model_copy(update=changes))
    assert env.reset() == START
    for action in actions:
        assert env.step(action).valid, action
    return env


# ---------------------------------------------------------------- actions


@pytest.mark.parametrize(
    ("action", "read"),
    [
        ("<search>who wrote  Dracula</search>", ("search", "who wrote Dracula")),
        ("<think>hm <b></think>\n<answer> Bram\nStoker </answer>", ("answer", "Bram Stoker")),
        ("<search>one</search><answer>two</answer>", ("search", "one")),
        ("<search>one <answer>two</answer>", ("answer", "two")),
        ("<search>one", ("search", "one")),
        ("Search[one]", ("search", "one")),
        ("Finish[two]", ("answer", "two")),
        ("<search>cut off", ("search", "cut off")),
        ("search[ Dracula]", ("search", "Dracula")),
        ("  ANSWER[a[1]] ", ("answer", "a[1]")),
        ("finish[x]", ("answer", "x")),
        ("search[a\x00\x1bb\u2028c]", ("search", "a b c")),
        ("search[]", ("search", "")),
        ("<answer></answer>", ("answer", "")),
        ("go to shelf 1", ("", "go to shelf 1")),
        ("", ("", "")),
    ],
)
def test_both_forms_of_actions_are_read(action: str, read: tuple[str, str]) -> None:
    assert parse(action) == read


@given(st.sampled_from(("search", "answer")), st.text("abc [1] X", min_size=1), st.sampled_from(("tags", "brackets")))
def test_a_written_action_is_read_as_it_was_meant(kind: str, text: str, form: str) -> None:
    assert parse(write(kind, text, form)) == (kind, " ".join(text.split()))


@given(
    st.lists(st.sampled_from(("<search>", "</search>", "<answer>", "</answer>", "one", "\n")), max_size=9).map("".join)
)
def test_the_first_closed_tag_counts(action):
    match = re.search(r"<(search|answer)>(.*?)</\1>", action, re.DOTALL)
    assert match is None or parse(action) == (match[1], " ".join(match[2].split()))


def test_a_tag_that_is_opened_again_and_again_is_read_in_linear_time():
    assert parse("<search>" * 50_000)[0] == "search"  # in quadratic time this would take a quarter of an hour


# ---------------------------------------------------------------- a rollout


def test_a_search_shows_numbered_documents_with_titles_and_no_more_than_topk() -> None:
    assert opened().step("search[novel]").observation == (
        "<information>Doc 1(Title: Dracula) Dracula is a novel by Bram Stoker.\n"
        "Doc 2(Title: Carmilla) Carmilla is a novel by Sheridan Le Fanu.</information>"
    )


def test_the_gold_path_wins_and_progress_and_distance_follow_it() -> None:
    env = opened()
    seen = [(env.progress(), env.distance())]
    for action in env.oracle():
        step = env.step(action)
        seen.append((env.progress(), env.distance()))
    assert seen == [(0.0, 3), (1 / 3, 2), (2 / 3, 1), (1.0, 0)]
    assert step == (RIGHT, 1.0, True, True, True)
    assert env.oracle() == []


def test_a_wrong_answer_ends_the_rollout_without_reward_and_the_goal_is_out_of_reach() -> None:
    env = opened("search[Dracula]")
    assert env.step("answer[Bram Stoker]") == (WRONG, 0.0, True, False, True)
    assert (env.progress(), env.distance(), env.oracle()) == (1 / 3, -1, [])
    with pytest.raises(RuntimeError, match="has ended"):
        env.step("answer[Clontarf]")


def test_any_gold_answer_counts_even_a_guess() -> None:
    assert opened().step("<answer>the Dublin!</answer>") == (RIGHT, 1.0, True, True, True)


def test_a_rollout_ends_after_its_horizon_and_the_goal_is_out_of_reach_before() -> None:
    env = opened("search[novel]", "search[carmilla]")
    assert env.distance() == 2  # the search for "novel" has found Dracula
    assert not env.step("nonsense").done
    assert env.distance() == -1
    assert env.step("search[Stoker]")[1:] == (0.0, True, False, True)


@pytest.mark.parametrize(
    "action", ["", " ", "search[]", "<answer> </answer>", "go to shelf 1", "x" * 10_000, "\x00\x07"]
)
def test_what_is_no_action_is_refused_and_costs_a_turn(action: str) -> None:
    env = opened()
    assert env.step(action) == (REFUSED, 0.0, False, False, False)
    assert [env.step(action).done for _ in range(3)] == [False, False, True]


def test_searches_that_find_nothing_are_answered_and_valid() -> None:
    for query in ("zzz", "!?", "zzz " * 2_500):
        assert opened().step(f"search[{query}]") == (NOTHING, 0.0, False, False, True)


def test_the_reward_can_be_f1_and_success_is_still_an_exact_match() -> None:
    env = opened(reward="f1", success_reward=10.0)
    assert env.step("answer[in Clontarf, Dublin]")[1:4] == (pytest.approx(10 * 0.5), True, False)


def test_a_question_without_supports_takes_one_document_that_has_an_answer() -> None:
    env = opened(question=QUESTION._replace(supports=()))
    assert env.distance() == 2
    env.step("search[carmilla]")
    assert (env.progress(), env.distance()) == (0.0, 2)
    env.step("search[bram]")
    assert (env.progress(), env.distance()) == (0.5, 1)


# ---------------------------------------------------------------- answers


def test_normalising_is_squad_s() -> None:
    """The golden texts are those of SQuAD's evaluation script: lower case, punctuation, articles, white space."""
    assert normalise(" The  U.S. -- an answer, a\ttheme ") == "us answer theme"
    assert exact_match("the Beatles", ["Beatles!"])
    assert not exact_match("the", ["a"])
    assert exact_match(" a", ["A"])
    assert exact_match("!!!", ["x", "!!!"])
    assert f1("!!!", ["!!!"]) == 1.0
    assert not exact_match("!!", ["!!!"])
    assert not exact_match("", [""])
    assert f1("cat sat on mat", ["the cat sat"]) == pytest.approx(2 * (2 / 4) * 1 / (2 / 4 + 1))
    assert f1("a b b", ["b c", "b b"]) == pytest.approx(1.0)
    assert f1("x", ["y"]) == f1("", [""]) == 0.0
    assert contains("Born in New York, 1900.", ["new york"])
    assert not contains("a newt", ["new"])


@given(st.text("ab the,.", max_size=20), st.lists(st.text("ab the,.", max_size=20), max_size=3))
def test_f1_is_1_where_an_answer_matches_exactly_and_never_above(answer: str, gold: list[str]) -> None:
    share = f1(answer, gold)
    assert 0.0 <= share <= 1.0 + 1e-12
    assert not exact_match(answer, gold) or share == pytest.approx(1.0)


# ---------------------------------------------------------------- the description


def test_the_environment_has_what_methods_and_audits_need() -> None:
    assert load("searchqa").capabilities == {
        "progress", "distance", "snapshot", "replay", "expert", "gold_answers", "tasks_by_seed",
    }  # fmt: skip


def test_the_gold_answer_stands_in_its_action_in_both_forms() -> None:
    gold = load("searchqa").gold_answer
    for form in ("brackets", "tags"):
        action, answer = gold(ROWS[0], GENERATED.model_copy(update={"actions": form}))
        env = open_task(ROWS[0], GENERATED)
        env.reset()
        assert env.step(action).success
        assert action.count(answer) == 1


def test_judges_do_not_see_the_reply_to_an_answer() -> None:
    assert redact("answer[x]", RIGHT) != RIGHT
    assert redact("<think>so</think><answer>x", WRONG) != WRONG
    assert redact("search[x]", NOTHING) == NOTHING


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hops": (0, 2)}, r"hops: \[fewest, most\] within 1..6, not \[0, 2\]"),
        ({"source": "files"}, "needs the file of each split"),
        ({**FILES, "retriever": "remote", "url": "localhost:8000"}, "https:// address, not 'localhost:8000'"),
        ({"retriever": "remote", "url": "http://localhost:8000"}, "corpus and retriever: remote need source: files"),
        ({"corpus": "documents.jsonl"}, "corpus and retriever: remote need source: files"),
    ],
)
def test_wrong_settings_are_errors(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings(**settings)


def test_noise_and_slips_never_answer() -> None:
    rng = random.Random(0)
    env = open_task(ROWS[0], GENERATED.model_copy(update={"horizon": 100}))
    env.reset()
    kinds = []
    for number in range(90):
        action = (slip_command if number % 2 else random_command)(env, rng)
        kinds.append(parse(action)[0] if env.step(action).valid else "refused")
    assert set(kinds) == {"search", "refused"}
    assert Expert is load("searchqa").expert
