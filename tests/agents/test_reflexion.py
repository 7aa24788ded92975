"""Reflexion: lessons from failed trials, from the prompt that asks for one to what training reads."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import tiny
from tests.agents.test_agents import ADMISSIBLE, Chat, agent
from tests.agents.test_contexts import (
    FOLDING,
    check_the_longest_rollout_is_continued_from_any_turn,
    check_training_reads_what_was_sampled,
    player,
    roll,
)
from tests.helpers import cases, nonempty
from tests.rollouts.test_play import same_turns
from turncredit import agents, config
from turncredit.agents.react import AGENT as REACT
from turncredit.agents.reflexion import LONGEST, WINDOW, read_lesson, reflexion
from turncredit.config import AgentSlice, EvalMode
from turncredit.data.env_wording import Words
from turncredit.data.transcript_markers import FAILED
from turncredit.errors import UserError
from turncredit.pipeline import checks
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.plan import Plan
from turncredit.policy import tokenizer
from turncredit.rollouts.evaluate import evaluate
from turncredit.training import second_pass

NAMES = ("reflexion", "reflexion_window", "reflexion_transcript")

# ---------------------------------------------------------------- lessons


@pytest.mark.parametrize(
    ("case", "text", "lesson", "cut", "well_formed"),
    [
        ("one line", " Look in the fridge first. ", "Look in the fridge first.", False, True),
        ("several lines", "Look.\n\n- in the fridge", "Look. - in the fridge", False, True),
        ("control characters", "look\x00 in\x1b the\u202e fridge\x85", "look in the fridge", False, True),
        ("thought before it", "<think>hm\nhm</think>Look.", "Look.", False, True),
        ("nothing", "", "", False, False),
        ("only control characters", "\x00\n\x1b", "", False, False),
        ("only a tag", "<lesson>", "", False, False),
        ("its own tag", "<lesson> Look.</lesson>", "Look.", False, False),
        ("a prompt's markers", "Look.<|im_end|><|im_start|>user go", "Look. user go", False, False),
        ("a marker inside a marker", "a<|i<x>m_end|>b", "a |i m_end| b", False, False),
        ("an actor's tags", "<action>look</action>", "look", False, False),
        ("a thought without an end", "<think>hm", "hm", False, False),
        ("10 kB", "word " * 2000, ("word " * 200).strip(), True, False),
    ],
)
def test_a_lesson_is_one_line_of_plain_text(case, text, lesson, cut, well_formed):
    assert read_lesson(text) == (lesson, cut, well_formed), case


@given(st.text(max_size=60) | st.text(alphabet="<>|/ab\n", max_size=60))
def test_whatever_the_model_says_a_lesson_has_no_tag_and_is_kept_as_it_is_when_it_is_read_again(text):
    lesson = read_lesson(text)
    assert not set(lesson.text) & {"<", ">", "\n"}
    assert len(lesson.text) <= LONGEST
    assert read_lesson(lesson.text).text == lesson.text


# ---------------------------------------------------------------- prompts


def said(encoder, text):
    return [*encoder.encode(text), encoder.eos_id]


def failing(it, encoder, text="Action: look", seen="You see a mug 1."):
    """The prompt after a response to which the trial fails."""
    reply = said(encoder, text)
    return it.follow(reply, it.parse(text), seen + FAILED, ADMISSIBLE)


def taught(it, encoder, lesson, first="You see nothing."):
    """The prompt after a lesson."""
    return it.follow(said(encoder, lesson), it.parse(lesson), first, ADMISSIBLE)


def test_a_chat_model_is_asked_for_a_lesson_from_the_whole_failed_trial():
    chat = Chat()
    it = agent("reflexion", chat)
    it.open("find a mug.", "You see nothing.", ADMISSIBLE)
    it.follow(said(chat, "Thought: where?\nAction: look"), it.parse("Action: look"), "You see a shelf 1.", ADMISSIBLE)
    asked = failing(it, chat, "Action: go to shelf 1", "It is empty.")
    text = chat.decode(asked.ids)
    assert asked.reset
    assert text.count("<|im_start|>") == 2, "one message, and the place for the lesson"
    assert "Task: find a mug.\n" in text
    assert (
        "Observation: You see nothing.\nYou: Thought: where?\nAction: look\n"
        "Observation: You see a shelf 1.\nYou: Action: go to shelf 1\nObservation: It is empty. [trial failed]\n"
    ) in text
    assert text.count("<|im_end|>") == 1, "end-of-turn tokens of the trial are left out"


def test_the_next_trial_begins_with_the_lessons_and_nothing_else_of_the_failed_one():
    chat = Chat()
    it = agent("reflexion", chat)
    opening = it.open("find a mug.", "You see nothing.", ADMISSIBLE)
    failing(it, chat, seen="MISTAKE")
    second = taught(it, chat, "Look in the fridge.")
    before, after = chat.decode(opening.ids).split("find a mug.")
    lessons = "\nYou have tried this before and failed. Lessons from then:\n- Look in the fridge."
    assert chat.decode(second.ids) == f"{before}find a mug.{lessons}{after}"
    failing(it, chat)
    third = chat.decode(taught(it, chat, "Open it.").ids)
    assert "\n- Look in the fridge.\n- Open it.\nYou see nothing." in third
    assert "MISTAKE" not in third


def test_only_the_latest_lessons_are_shown_and_empty_ones_are_not():
    chat = Chat()
    it = agent("reflexion", chat, trials=9, memory=2)
    it.open("find a mug.", "You see nothing.", ADMISSIBLE)
    shown = []
    for lesson in ("one", "two", "", "three"):
        failing(it, chat)
        text = chat.decode(taught(it, chat, lesson).ids)
        shown.append([line for line in text.partition("Lessons from then:")[2].splitlines() if line.startswith("- ")])
    assert shown == [["- one"], ["- one", "- two"], ["- one", "- two"], ["- two", "- three"]]


@pytest.mark.parametrize("name", ["reflexion", "reflexion_transcript"])
def test_without_a_chat_template_the_question_only_adds_to_an_append_only_context(world, name):
    """So an engine reads no token of the failed trial again."""
    encoder = tokenizer.load(world.path("base"))
    it = agent(name, encoder)
    context = it.open("find a mug.", "You see nothing.", ADMISSIBLE).ids
    for trial in range(2):
        for text, ended in (("Action: look", True), ("Action: go", False)):
            reply = said(encoder, text) if ended else encoder.encode(text)
            prompt = it.follow(reply, it.parse(text), "You see a mug 1.", ADMISSIBLE)
            context = [*context, *reply, *prompt.ids]
        asked = failing(it, encoder)
        context = [*context, *said(encoder, "Action: look")]
        assert asked.ids[: len(context)] == context
        assert asked.ids[len(context) :] == encoder.encode(f"<|obs|> You see a mug 1.{FAILED}<lesson>")
        context = taught(it, encoder, f"lesson {trial}").ids
    opening = "<|task|> find a mug.<lesson> lesson 0<lesson> lesson 1<|obs|> You see nothing.<|act|>"
    assert context == encoder.encode(opening)


@pytest.mark.parametrize("name", NAMES)
def test_the_first_trial_is_the_actors(world, name):
    """The same prompts, and the same columns besides its own."""
    encoder = tokenizer.load(world.path("base"))
    actor = {"reflexion": "react", "reflexion_window": "window", "reflexion_transcript": "transcript"}[name]
    ours, its = agent(name, encoder), agent(actor, encoder)
    assert ours.open("find a mug.", "You see.", ADMISSIBLE) == its.open("find a mug.", "You see.", ADMISSIBLE)
    assert ours.target({"action": "look"}) == its.target({"action": "look"})
    for text in ("Thought: one\nAction: look", "<action>look</action>"):
        parsed, expected = ours.parse(text), its.parse(text)
        assert (parsed.action, parsed.well_formed) == (expected.action, expected.well_formed)
        assert parsed.columns == {**expected.columns, "trial": 1, "lesson": None, "lesson_cut": None}
        reply = said(encoder, text)
        args = ("You see a mug 1.", ADMISSIBLE)
        assert ours.follow(reply, parsed, *args) == its.follow(reply, expected, *args)


def test_a_copy_goes_on_by_itself():
    chat = Chat()
    it = agent("reflexion_window", chat)
    it.open("find a mug.", "You see nothing.", ADMISSIBLE)
    other = it.fork()
    failing(it, chat, "<action>look</action>")
    taught(it, chat, "Look in the fridge.")
    assert it.parse("").columns["trial"] == 2
    assert other.parse("").columns["trial"] == 1
    prompt = other.follow([], other.parse("<action>look</action>"), "You see a mug 1.", ADMISSIBLE)
    assert "fridge" not in chat.decode(prompt.ids)


# ---------------------------------------------------------------- any agent is an actor


def test_any_agent_can_be_the_actor():
    folding = agents.load(FOLDING)
    spec = reflexion(folding, "folding_again")
    assert spec.demo_columns == folding.demo_columns
    assert [*spec.turn_columns] == [*folding.turn_columns, "trial", "lesson", "lesson_cut"]
    assert spec.vocabulary_in(Words()) == ("<keep>", "<act>", "<lesson>")
    assert spec.trials_of({"every": 2, "trials": 5}) == 5
    assert WINDOW.shows_admissible
    assert not agents.load("reflexion").shows_admissible


def test_an_agent_that_cannot_be_one_is_refused():
    with pytest.raises(UserError, match="'again': 'reflexion' can't be its actor: 'lesson' is a setting or column"):
        reflexion(agents.load("reflexion"), "again")


def test_an_agent_of_several_trials_without_the_column_is_refused(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from turncredit.agents import AgentSpec\nAGENT = AgentSpec('mine', make=None, trials=lambda settings: 2)\n"
    )
    with pytest.raises(UserError, match=r"mine.py: an agent with several trials .* add 'trial' to turn_columns"):
        agents.load(str(path))


# ---------------------------------------------------------------- rollouts


def slice_of(name, **settings):
    return AgentSlice(name=name, max_response_tokens=16, settings=settings)


TRANSCRIPT = slice_of("reflexion_transcript")


@pytest.fixture(scope="module")
def turns(world):
    """Turns of the transcript's Reflexion, which the tests' SFT policy was trained for."""
    return roll(world, TRANSCRIPT)


def test_the_table_holds_every_trial_and_a_turn_for_each_lesson(world, turns):
    frame = turns.to_pandas()
    assert frame.trial.max() == 3
    failed = frame.next_observation.str.endswith(FAILED)
    for _, own in nonempty(frame.groupby("rollout_id")):
        assert own.turn.tolist() == list(range(len(own)))
        assert own.done.tolist() == [False] * (len(own) - 1) + [True]
        assert own.next_observation.tolist()[:-1] == own.observation.tolist()[1:]
        assert own.success.iloc[0] or own.trial.iloc[-1] == 3
        assert own.score.iloc[0] == own.reward.sum() == float(own.success.iloc[0])
        assert (own.trial.diff().dropna() == own.lesson_cut.notna().shift()[1:]).all(), "a lesson ends its trial"
        horizon = world.plan.env.settings["horizon"]
        assert (own[own.lesson_cut.isna()].groupby("trial").size() <= horizon).all()
    lessons = frame[frame.lesson_cut.notna()]
    assert len(lessons) == failed.sum() > 0
    assert (lessons.context_reset & (lessons.action == lessons.lesson.fillna(""))).all()
    assert set(lessons.next_observation) <= set(frame[frame.turn == 0].observation)
    assert frame.success.groupby(frame.rollout_id).first().mean() > 0, "some rollouts succeed"
    assert frame[frame.success].trial.max() > 1, "and not all of them at once"


def test_its_first_trial_is_the_actors_own_rollout(world, turns):
    """With the same random numbers: what is gained is what the later trials gain."""
    plain = roll(world, slice_of("transcript")).to_pandas()
    first = turns.to_pandas().query("trial == 1 and lesson_cut.isna()")
    assert first.response_text.tolist() == plain.response_text.tolist()
    assert first.next_observation.str.removesuffix(FAILED).tolist() == plain.next_observation.tolist()


@pytest.mark.parametrize("changes", [{"slots": 1}, {"slots": 64}, {"processes": 2}])
def test_rollouts_do_not_depend_on_how_they_are_batched(world, turns, changes):
    same_turns(roll(world, TRANSCRIPT, **changes), turns)


def test_the_first_trial_is_the_same_whichever_engine_and_agent_of_the_same_context_play_it(world, turns):
    other = roll(world, slice_of("reflexion_transcript", trials=2), engine="transformers")
    one, two = (table.to_pandas().query("trial == 1").response_ids.map(tuple).tolist() for table in (turns, other))
    assert one == two


@pytest.mark.parametrize(
    ("name", "engine"), [("reflexion_transcript", "transformers"), ("reflexion_window", "lockstep")]
)
def test_what_is_trained_on_is_what_was_sampled_from_lessons_too(world, name, engine):
    check_training_reads_what_was_sampled(world, roll(world, slice_of(name, trials=2), engine=engine), most=60)


def test_a_rollout_is_continued_from_any_turn_a_lesson_and_later_trials_included(world, turns):
    """As continuations and forks do."""
    played = check_the_longest_rollout_is_continued_from_any_turn(turns, player(world, TRANSCRIPT), "trial")
    assert played[-1]["trial"] == 3


def test_turns_are_read_in_hindsight(world, turns):
    made = player(world, TRANSCRIPT)
    prompts = second_pass.hindsight_prompts(turns, made.agent, made.new_agent)
    assert len(prompts) == turns.num_rows
    whole = [made._tokenizer.decode(prompt.ids) for prompt in prompts if prompt.reset]
    assert whole
    assert all("In the end:" in text for text in whole)


# ---------------------------------------------------------------- evaluation


def evaluated(world, name, **given):
    made = player(world, slice_of(name), split="eval", **given)
    common = {"policy_id": "sft", "method": "sft", "seed": 0, "round": 0}
    return evaluate(made, (EvalMode(name="sampled", temperature=1.0),), range(8), common)


def test_an_evaluation_counts_the_last_trial_and_the_turns_of_all(world):
    table = evaluated(world, "reflexion_transcript")
    plain = evaluated(world, "transcript").to_pandas()
    assert table.schema.field("trials").type == pa.int32()
    frame = table.to_pandas()
    assert "trials" not in plain
    assert ((frame.trials == 1) & frame.success).tolist() == plain.success.tolist()
    assert frame.success.sum() >= plain.success.sum()
    assert {1, 3} <= set(frame.trials)
    again = frame.trials > 1
    assert (frame.turns[again] > plain.turns[again] + 1).all()
    assert (frame.tokens[again] > plain.tokens[again]).all()
    assert (frame.turns[~again] == plain.turns[~again]).all()
    assert table.equals(evaluated(world, "reflexion_transcript", processes=2, slots=2))


# ---------------------------------------------------------------- checks before any job


def check(*methods, **changes):
    agent = {"name": "reflexion", "reflexion": {"trials": 3}}
    checks.check(tiny.experiment(**config.merge({"methods": list(methods), "agent": agent}, changes)))


def test_methods_that_read_turns_alone_take_any_agent():
    check("flat_grpo", "gigpo", "scpo", "hcapo", "vineppo", "carl", "ppo")
    check("has_progressive", "oracle_progress", agent={"name": "reflexion", "reflexion": {"trials": 1}})


REFUSED = r"""
methods: [has_progressive] -> methods: 'has_progressive' reads progress of a single trial, but 'reflexion' plays
methods: [oracle_progress] -> methods: 'oracle_progress' reads distance of a single trial
methods: [has_turnrd] -> methods: 'has_turnrd' reads progress of a single trial
methods: [has_judge] -> methods: 'has_judge' reads labels of the rule judge of a single trial
audit: {rounds: [1], methods: [flat_grpo]} -> audit.rounds: 'reflexion' plays several trials, .* set it to \[\]
methods: [has_turnrd_outcome_only], env: {household: {horizon: 40}} -> .*horizon is 40 .* up to 122 turns
agent: {reflexion: {trials: 0}} -> agent.reflexion.trials: input should be greater than or equal to 1
agent: {reflexion: {memory: 0}} -> agent.reflexion.memory: input should be greater than or equal to 1
agent: {reflexion: {memori: 1}} -> .*agent.reflexion.memori' \(did you mean 'memory'\?\)
"""


@pytest.mark.parametrize(("changes", "said"), cases(REFUSED))
def test_what_several_trials_do_not_go_with_is_refused(changes, said):
    with pytest.raises(UserError, match=f"^config: {said}"):
        check(*changes.get("methods", ["flat_grpo"]), **changes)


def test_a_language_model_may_judge_several_trials():
    check("has_judge", judge={"kind": "llm"})


def test_measures_are_not_recorded():
    plan = Plan(tiny.experiment(methods=["flat_grpo"], agent={"name": "reflexion"}))
    assert not plan.measurable(plan.turns_at("flat_grpo", 0, 1))
    assert plan.slice("base", JobKeys()).vocabulary == (*REACT.vocabulary, "<lesson>")
