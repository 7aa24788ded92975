"""Reading a model's answers: whatever the wrapping, and never a guess."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turncredit.judges.rubric import ROLES, Label, answer_schema, instructions, prompt_version, read_answer


@pytest.mark.parametrize(
    "text",
    [
        '{"evidence": "first look", "role": "E"}',
        '{"role": "e", "evidence": "first look"}',
        '{"role": "exploration", "evidence": "first look"}',
        '{"labels": ["E"], "evidence": ["first look"]}',
        '```json\n{"evidence": "first\\nlook", "role": "E"}\n```',
        'The agent looks. It is new.\n{"evidence": "first look", "role": "E"}',
        '<think>D? {"role": "D", "evidence": "no"} rather not</think>\n{"evidence": "first look", "role": "E"}',
        'At first {"role": "E", "evidence": "x"}, and then:\n{"evidence": "first look", "role": "exploration"} Done.',
        'At turn [0] {"role": "?"}, of [1, 2]:\n{"evidence": "first look", "role": "E"} Done.',
        '[{"evidence": "first look", "role": "E"}]',
        'The items [{"a": 1}, {"b": 2}] were shown.\n{"evidence": "first look", "role": "E"}',
        'A set {a, b} of {things}. {"evidence": "first look", "role": " E "}',
    ],
)
def test_a_role_is_found_however_it_is_wrapped(text: str) -> None:
    label = read_answer(text, "role")
    assert (label.role, label.evidence, label.reason, label.score) == ("E", "first look", None, None)


@pytest.mark.parametrize("text", ["R", " r\n", '"R"', "R.", "regression", "```\nR\n```", "<think>hm</think>R"])
def test_an_answer_that_is_only_the_role_counts(text: str) -> None:
    assert read_answer(text, "role") == ("R", None, None, None)


@pytest.mark.parametrize(
    ("text", "finish", "reason"),
    [
        ("", "stop", "the answer is empty"),
        ("", "length", "the answer is empty; raise max_tokens"),
        ("<think>It could be D, or {\"role\": \"E\"}", "length", "ends inside its reasoning"),
        ("I would say D or E.", "stop", "no JSON object in the answer: I would say D or E."),
        ('{"evidence": "first lo', "length", "it was cut off; raise max_tokens"),
        ('{"evidence": "x", "role": "X"}', "stop", 'no valid role in the answer: {"evidence": "x", "role": "X"}'),
        ('{"evidence": "x"}', "stop", "no valid role"),
        ('{"role": ["D", "E"], "evidence": []}', "stop", "no valid role"),
        ('{"role": null}', "stop", "no valid role"),
        ('{"role": 1}', "stop", "no valid role"),
        ('["D"]', "stop", "no JSON object"),
        ('At first {"role": "R"}, but then:\n{"role": "E"}', "stop", "2 objects that disagree: At first"),
        ('[{"role": "D"}, {"role": "R"}]', "stop", "a list of 2 answers"),
        ('```json\n[{"role": "D"}, {"role": "D"}]\n```', "stop", "a list of 2 answers"),
        ('["so:", {"role": "D"}, {"role": "X"}]', "stop", "a list of 3 answers"),
        ('[{"a": 1}, {"b": 2}]', "stop", "no JSON object"),
        ('{"a":' * 1200, "stop", "nested too deeply"),
        ('{"evidence": ' + "[" * 100_000 + '"role": "D"}', "stop", "nested too deeply"),
        ('{"role": "\\ud83d"}', "stop", 'no valid role in the answer: {"role": "?"}'),
    ],
)  # fmt: skip
def test_what_is_no_role_is_missing_with_its_reason(text: str, finish: str, reason: str) -> None:
    label = read_answer(text, "role", finish)
    assert label.role is None
    assert reason in (label.reason or "")


@pytest.mark.parametrize(
    ("ask", "text", "score"),
    [
        ("progress", '{"evidence": "x", "score": -0.5}', -0.5),
        ("progress", '{"progress": 1}', 1.0),
        ("score", '{"score": "0.7"}', 0.7),
        ("score", "0.3", 0.3),
        ("score", '{"score": 1.5}', None),
        ("score", '{"score": -0.1}', None),
        ("progress", '{"score": true}', None),
        ("progress", '{"score": "much"}', None),
        ("progress", '{"score": NaN}', None),
        ("progress", '{"score": 1' + 400 * "0" + "}", None),
        ("score", '{"score": 0.5} and so {"score": "0.5"}', 0.5),
        ("score", '{"score": 0.5} or {"score": 0.6}', None),
    ],
)
def test_a_score_is_a_number_on_the_scale_that_was_asked_for(ask: str, text: str, score: float | None) -> None:
    label = read_answer(text, ask)  # type: ignore[arg-type]
    assert label.score == score
    assert label.role is None
    assert (label.reason is None) is (score is not None)


@given(st.text())
def test_any_text_is_a_role_or_a_reason_and_never_both(text: str) -> None:
    label = read_answer(text, "role")
    assert (label.role in ROLES) is (label.reason is None)


def test_the_schema_asks_for_the_evidence_before_the_label() -> None:
    assert list(answer_schema("role")["properties"]) == ["evidence", "role"]
    assert answer_schema("progress")["properties"]["score"] == {"type": "number", "minimum": -1.0, "maximum": 1.0}


def test_without_evidence_neither_wording_nor_schema_asks_for_it_and_the_label_can_be_read() -> None:
    assert 'evidence":' in instructions("role")
    assert 'evidence":' not in instructions("role", evidence=False)
    assert instructions("role", evidence=False).endswith('{"role": "D" or "E" or "N" or "R"}\n')
    assert prompt_version("role", evidence=False) != prompt_version("role")
    assert list(answer_schema("role", evidence=False)["properties"]) == ["role"]
    assert answer_schema("role", evidence=False)["required"] == ["role"]
    assert read_answer('{"role": "E"}', "role") == Label(role="E")


def test_every_question_has_a_wording_and_a_version_of_its_own() -> None:
    texts = {ask: instructions(ask) for ask in ("role", "progress", "score")}  # type: ignore[arg-type]
    assert len(set(texts.values())) == 3
    assert len({prompt_version(ask) for ask in texts}) == 3  # type: ignore[arg-type]
    assert all("must not guess" in text and "JSON" in text for text in texts.values())
