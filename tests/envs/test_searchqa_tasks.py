"""The generated fact base and its questions; the expert."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.envs.playing import play
from tests.helpers import nonempty
from turncredit.envs import load
from turncredit.envs.judging import Turn
from turncredit.envs.searchqa import ENVIRONMENT, Settings, make_tasks
from turncredit.envs.searchqa.generate import RELATIONS, SPLITS, documents, fact_base, questions
from turncredit.envs.searchqa.tasks import open_retriever, question_of
from turncredit.errors import UserError

DEFAULT = Settings()


@pytest.mark.parametrize(
    "settings", [DEFAULT, Settings(hops=(1, 3), topk=1), Settings(documents=400, base_seed=3, facts=1)]
)
def test_the_expert_answers_every_question_in_one_action_a_hop_and_the_answer(settings: Settings) -> None:
    for row in make_tasks("demos", 150, 7, settings):
        turns = play(ENVIRONMENT, row, settings)
        assert turns[-1].step.success, row["goal"]
        assert len(turns) <= row["optimal_length"] == len(question_of(row).supports) + 1


def test_every_document_is_found_first_by_its_own_title() -> None:
    retriever = open_retriever(DEFAULT)
    for document in documents(*DEFAULT.base):
        assert retriever.search(document.title)[0] == document


def test_the_fact_base_has_different_names_of_two_words_and_one_fact_of_each_other_kind() -> None:
    base = fact_base(800, 0, 3)
    assert len(base) == 800
    assert {len(name.split()) for name in base} == {2}
    assert len({word for name in base for word in name.split()}) == 100
    for entity in base.values():
        assert {relation: base[name].kind for relation, name in entity.facts.items()} == RELATIONS[entity.kind]
        assert {*RELATIONS[entity.kind].values(), entity.kind} == set(RELATIONS)
    first = {kind: {name.split()[0] for name in base if base[name].kind == kind} for kind in RELATIONS}
    assert sum(map(len, first.values())) == len(set().union(*first.values())) == 80


def test_a_question_follows_its_supports_to_its_answer() -> None:
    base = fact_base(800, 0, 3)
    for row in make_tasks("train", 100, 1, Settings(hops=(2, 3))):
        question = question_of(row)
        asked, _, start = question.text.removeprefix("What is the ").removesuffix("?").rpartition(" of ")
        at, passed = start, [start]
        for relation in reversed(asked.split(" of the ")):
            at = base[at].facts[relation]
            passed.append(at)
        assert (*question.supports, question.answers[0]) == tuple(passed)
        assert len(set(passed)) == len(passed)


def test_splits_share_no_question_whatever_their_seeds() -> None:
    goals = [row["goal"] for seed, split in enumerate(SPLITS) for row in make_tasks(split, 400, seed, DEFAULT)]
    assert len(set(goals)) == len(goals) == 1600
    assert [row["family"] for row in make_tasks("train", 4, 3, DEFAULT)] == ["1 hop", "2 hops"] * 2


@given(st.sampled_from([63, 80, 200]), st.integers(0, 500), st.integers(1, 3), st.integers(1, 3))
def test_splits_share_no_fact_and_no_document_that_answers(documents: int, seed: int, facts: int, hops: int) -> None:
    """What is learnt of a training question's documents answers no question of another split."""
    base = (documents, seed, facts)
    read: dict[str, set[str]] = {}
    for split in SPLITS:
        asked = nonempty(questions(split, 0, base, (hops, hops)))
        read[split] = {name for one in asked for name in (*one.supports, *one.answers)}
    assert sum(map(len, read.values())) == len(set().union(*read.values()))


def test_too_few_questions_are_an_error() -> None:
    with pytest.raises(UserError, match=r"has \d+ questions, not 5000; allow more documents or hops"):
        make_tasks("train", 5000, 0, Settings(documents=100))


@pytest.mark.parametrize(
    ("question", "query", "passage", "right", "wrong"),
    [
        ("Где родился Пушкин?", "Пушкин", "Doc 1(Title: Пушкин) Пушкин родился в Москве.", "Москве", "Киеве"),
        ("Which band recorded Tommy?", "Tommy", "Tommy was recorded by The Who, a band.", "The Who", "It"),
        ("Are The Who still on tour?", "the who", "The Who are on tour with All Over.", "All Over", "The If"),
        ("Wer komponierte Fidelio?", "Fidelio", "Fidelio: Ludwig van Beethoven, für Wien.", "für Wien", "fur Wien"),
    ],
)
def test_the_rule_judge_reads_any_alphabet_and_names_of_stop_words_alone(
    question, query, passage, right, wrong
) -> None:
    grammar = load("searchqa").grammar()
    goal = grammar.read_goal(question)
    search = grammar.read_turn(Turn(f"<search>{query}</search>", f"<information>{passage}</information>"))
    answers = [grammar.read_turn(Turn(f"<answer>{one}</answer>", "")) for one in (right, wrong)]
    assert grammar.judge(goal, [], search, ())[0] == "E"
    assert [grammar.judge(goal, [search], answer, ())[0] for answer in answers] == ["D", "R"]
