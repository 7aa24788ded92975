"""Agents play games through a sampling engine, many rollouts at a time, refilling free slots immediately.

With several processes each plays a part of the rollouts with an engine of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from turncredit import agents
from turncredit.agents import Agent, Parsed, Prompt
from turncredit.config import AgentSlice
from turncredit.data.workers import gathered
from turncredit.envs.protocol import State, Step
from turncredit.errors import UserError
from turncredit.policy.open import OpenPolicy
from turncredit.policy.sampling import Request, Response, Sampler, Unordered
from turncredit.rollouts.calls import Calls
from turncredit.rollouts.seats import Seats, given
from turncredit.rollouts.tasks import Games

#: the column of the turns of an environment that marks rollouts which had to be redone (`envs.protocol.Redone`)
REDONE = {"redone": pa.int32()}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A rollout before one of its turns: the environment's state, the agent, and the model's context.

    `context` holds the tokens since the last reset, including the prompt of this turn; an engine may read it once for
    all rollouts that start from here.
    """

    turn: int
    observation: str
    state: State
    agent: Agent
    context: list[int]


@dataclass(frozen=True, slots=True)
class Start:
    """One rollout to be played: its game, and the seed of all its random numbers; from a `checkpoint` on, if given."""

    group_id: str
    rollout_id: str
    task: dict
    seed: int
    checkpoint: Checkpoint | None = None


@dataclass(slots=True)
class Turn:
    """A turn that was played; `columns` are the agent's.

    `context_full`: the rollout ended here because its next prompt, with a response, is longer than the model can read.
    `task_score`, of the last turn: the environment's own score, where it has one beside its rewards.
    `redone`, of the last turn: how often the rollout was begun again because something outside had failed (`Seats`).
    """

    observation: str
    admissible: list[str] | None
    prompt: Prompt
    response: Response
    text: str
    action: str
    valid: bool
    next_observation: str
    reward: float
    done: bool
    success: bool
    well_formed: bool = True
    columns: Mapping[str, Any] = field(default_factory=dict)
    failed: bool | None = None
    error_reply: bool | None = None
    context_full: bool = False
    task_score: float | None = None
    redone: int = 0


@dataclass(slots=True)
class Played:
    """A rollout that has ended."""

    start: Start
    turns: list[Turn] = field(default_factory=list)

    @property
    def success(self) -> bool:
        """Whether the rollout reached its goal."""
        return self.turns[-1].success

    @property
    def score(self) -> float:
        """The sum of the rewards, undiscounted; of a continuation, of those after its checkpoint."""
        return float(sum(turn.reward for turn in self.turns))

    @property
    def tokens(self) -> int:
        """Sampled tokens."""
        return sum(len(turn.response.ids) for turn in self.turns)


#: plays starts, as `Player.stream` does at a temperature
Play = Callable[[Sequence[Start]], Iterator[tuple[int, Played]]]


class ActiveRollout:
    """A slot of the engine and the rollout that occupies it."""

    def __init__(self, slot: int, start: Start, player: Player):
        self.slot, self.max_new, self.redone = slot, player.max_new, 0
        self._room, self._tokens = player.room, 0
        self.played = Played(start)
        self.environment = player.games.env
        self.env = player.games.open(start.task)
        self._score = player.games.score
        self.rng = np.random.Generator(np.random.Philox(start.seed))
        self.spec = player.agent
        self._lists_admissible = self.spec.shows_admissible and player.games.can("admissible")
        self.agent = player.new_agent() if start.checkpoint is None else start.checkpoint.agent.fork()
        self.observation = ""
        self.prompt = Prompt([], reset=True)
        self.parsed = Parsed("", well_formed=True)
        self.admissible: Sequence[str] = ()

    def begin(self, observation: str) -> None:
        """Show the agent the first observation of a rollout from its start."""
        self.observation = observation
        self._look()
        task = self.played.start.task
        opened = self.spec.opened(self.agent, task["goal"], observation, self.admissible, self._where)
        if not self._go_on_with(opened):
            raise UserError(
                f"task '{task['task_id']}': the first prompt has {len(self.prompt.ids)} tokens and a "
                f"response up to {self.max_new}, more than the model can read (max_position_embeddings); shorten what "
                "the agent shows or agent.max_response_tokens, or use a model with more positions"
            )

    def continue_from(self, checkpoint: Checkpoint) -> None:
        """Continue from the checkpoint. The turns before it have used up their random numbers."""
        self.env.restore(checkpoint.state)
        self.observation = checkpoint.observation
        self._look()
        self._go_on_with(Prompt(checkpoint.context, reset=True))
        self.rng.random(checkpoint.turn * self.max_new)

    def _look(self) -> None:
        """The admissible actions, for an agent that shows them."""
        if self._lists_admissible:
            self.admissible = self.env.admissible()

    @property
    def _where(self) -> str:
        """Rollout and turn, for messages."""
        return f"{self.played.start.rollout_id}, turn {len(self.played.turns)}"

    def request(self) -> Request:
        """The next request. Every turn uses up `max_new` random numbers, however many tokens it samples."""
        return Request(self.slot, self.prompt.ids, self.prompt.reset, self.rng.random(self.max_new))

    def decide(self, text: str) -> str:
        """The action in the response's text."""
        self.parsed = self.spec.call(self.agent, "parse", text, where=self._where)
        self.spec.check(self.parsed, self._where)
        return self.parsed.action

    def _go_on_with(self, prompt: Prompt, response_ids: Sequence[int] = ()) -> bool:
        """Take the prompt that follows a response as the next; false if the model cannot read it and respond."""
        before = 0 if prompt.reset else self._tokens + len(response_ids)
        self.prompt, self._tokens = prompt, before + len(prompt.ids)
        return self._room is None or self._tokens <= self._room

    def take(self, step: Step, response: Response, text: str) -> bool:
        """Record the turn that follows from the response; true when the rollout has ended.

        It also ends, as a failure, where its context has become longer than the model can read.
        """
        parsed = self.parsed
        admissible = list(self.admissible) if self.spec.shows_admissible else None
        turn = Turn(
            self.observation, admissible, self.prompt, response, text, parsed.action,
            step.valid and parsed.well_formed, step.observation, step.reward, step.done, step.success,
            parsed.well_formed, parsed.columns, *self.environment.failed(step),
        )  # fmt: skip
        self.played.turns.append(turn)
        self.observation = step.observation
        if not step.done:
            self._look()
            shown = response.ids, parsed, step.observation, self.admissible
            following = self.spec.call(self.agent, "follow", *shown, where=self._where)
            turn.done = turn.context_full = not self._go_on_with(following, response.ids)
        if turn.done and self.environment.counts_redone:
            for played in self.played.turns:
                played.columns = {**played.columns, **dict.fromkeys(REDONE, self.env.redone)}
        return turn.done

    def close(self) -> None:
        """Take the environment's score of the rollout, which has ended, and release the environment."""
        self.played.turns[-1].task_score = self._score(self.env)
        self.played.turns[-1].redone = self.redone
        self.env.close()


class Player:
    """Plays the games of a table with a policy and agents of one kind."""

    def __init__(
        self,
        policy: OpenPolicy,
        agent: AgentSlice,
        games: Games,
        slots: int,
        *,
        processes: int = 1,
        gpus: int = 1,
        engines: int = 1,
    ):
        """`slots` rollouts at a time, divided among `processes`; a single process opens the policy's sampler here.

        With vLLM that is `engines` engines, each on as many `gpus`.
        """
        self.agent = agents.load(agent.name)
        self.games, self._policy = games.with_trials(self.agent.trials_of(agent.settings)), policy
        self._slots, self._processes = slots, processes
        self._tokenizer = policy.tokenizer
        self.new_agent = agents.agent_factory(self.agent, self._tokenizer, agent.settings, games.env.words)
        self.max_new = agent.max_response_tokens
        prompt = getattr(self.agent.Settings.model_validate(agent.settings), "max_prompt_tokens", None)
        self._longest = None if prompt is None else prompt + self.max_new
        #: tokens that a context may have before a response
        self.room = None if policy.positions is None else policy.positions - self.max_new
        self._sampler = None
        if processes == 1:
            self._sampler = policy.sampler(slots, longest=self._longest, gpus=gpus, engines=engines)

    @property
    def turn_columns(self) -> Mapping[str, pa.DataType]:
        """The columns of turns beyond the table's own: the agent's, and the mark of rollouts that were redone."""
        return {**self.agent.turn_columns, **(REDONE if self.games.env.counts_redone else {})}

    def play(
        self,
        starts: Sequence[Start],
        *,
        temperature: float,
        on_done: Callable[[int], None] = lambda _: None,
    ) -> list[Played]:
        """Play every start to its end. Returns the rollouts in the order given, whatever order they ended in.

        A rollout's samples depend on its own seed and on the policy, not on the other rollouts (up to the rounding of
        batched arithmetic). A slot is refilled with the next start as soon as its rollout has ended; `on_done` is
        called with the number of finished rollouts. A start with a `checkpoint` is played from there: its turns and its
        random numbers begin at that turn.

        With several processes, an error in one ends all: see `turncredit.data.workers.gathered`.
        """
        ended: dict[int, Played] = {}
        for number, played in self.stream(starts, temperature=temperature):
            ended[number] = played
            on_done(len(ended))
        return [ended[number] for number in sorted(ended)]

    def stream(self, starts: Sequence[Start], *, temperature: float) -> Iterator[tuple[int, Played]]:
        """As `play`, but yields each rollout with its index in `starts` as soon as it has ended."""
        if self._sampler is not None:
            numbered = list(enumerate(starts))
            if isinstance(self._sampler, Unordered) and not self.games.steps_together:
                playing = WhenReady(self._sampler, self, temperature).play(numbered)
            else:
                playing = self._lockstep(self._sampler, numbered, temperature)
            for number, rollout in playing:
                yield number, rollout.played
            return
        parts = shares(starts, self._processes)
        slots = max(1, self._slots // self._processes)

        def work(part: int) -> Iterator[tuple[int, list[Turn]]]:
            chosen = [(number, starts[number]) for number in parts[part]]
            engine = self._policy.sampler(min(slots, len(chosen)), longest=self._longest)
            for number, rollout in self._lockstep(engine, chosen, temperature):
                yield number, rollout.played.turns

        for number, turns in gathered(work, len(parts)):
            yield number, Played(starts[number], turns)

    def at(self, temperature: float) -> Play:
        """`stream` at a temperature."""
        return partial(self.stream, temperature=temperature)

    def _lockstep(
        self, engine: Sampler, starts: Sequence[tuple[int, Start]], temperature: float
    ) -> Iterator[tuple[int, ActiveRollout]]:
        """Play numbered starts with `engine`; yields each number with its rollout when the rollout has ended.

        Every turn samples all responses together and then takes all steps, which overlap if the environment is
        asynchronous.
        """
        seats = Seats(self.games, self.seat, starts, engine.slots)
        try:
            while seats:
                self._begin(seats)
                playing = seats.playing()
                if not playing:
                    continue
                responses = engine.sample([rollout.request() for rollout in playing], temperature, self.max_new)
                texts = [self.decode(response) for response in responses]
                actions = [rollout.decide(text) for rollout, text in zip(playing, texts, strict=True)]
                steps = self.games.each([rollout.env for rollout in playing], "step", actions, keep_faults=True)
                for rollout, step, response, text in zip(playing, steps, responses, texts, strict=True):
                    with seats.going_on(rollout):
                        if rollout.take(given(step), response, text):
                            yield seats.end(rollout)
        finally:
            seats.close()

    def seat(self, slot: int, start: Start) -> ActiveRollout:
        """A rollout in a slot of the engine, before its first observation."""
        return ActiveRollout(slot, start, self)

    def decode(self, response: Response) -> str:
        """The text of a response."""
        return self._tokenizer.decode(response.ids)

    def _begin(self, seats: Seats[Start, ActiveRollout]) -> None:
        """Begin or continue rollouts in the free slots."""
        opened = seats.fill()
        fresh = [rollout for rollout in opened if rollout.played.start.checkpoint is None]
        observations = self.games.each([rollout.env for rollout in fresh], "reset", keep_faults=True)
        for rollout, observation in zip(fresh, observations, strict=True):
            with seats.going_on(rollout):
                rollout.begin(given(observation))
        for rollout in opened:
            if rollout.played.start.checkpoint is not None:
                with seats.going_on(rollout):
                    rollout.continue_from(rollout.played.start.checkpoint)


class WhenReady:
    """Plays rollouts that do not wait for each other, with an engine that answers in any order.

    The next request of a rollout is submitted as soon as its environment has replied, while the engine samples for the
    others. In lockstep each turn of all rollouts takes as long as the longest response among them. The rollouts are the
    same, but for the rounding of batched arithmetic: each draws from its own random numbers.
    """

    def __init__(self, engine: Unordered, player: Player, temperature: float):
        self._engine, self._player, self._temperature = engine, player, temperature
        self._said: dict[int, tuple[Response, str]] = {}  # the responses that environments carry out, by slot
        self._calls = Calls(player.games)
        self._asked = 0  # requests that the engine has not answered

    def play(self, starts: Sequence[tuple[int, Start]]) -> Iterator[tuple[int, ActiveRollout]]:
        """Play numbered starts; yields each number with its rollout when the rollout has ended."""
        seats = Seats(self._player.games, self._player.seat, starts, self._engine.slots)
        try:
            while seats:
                self._open(seats)
                yield from self._replies(seats)
                if self._asked and not seats.can_fill:
                    self._act(seats)
        finally:
            with suppress(Exception):  # an engine that has failed may not take this either; its error is raised
                self._engine.cancel()
            self._calls.cancel()
            seats.close()

    def _open(self, seats: Seats[Start, ActiveRollout]) -> None:
        """Begin or continue rollouts in the free slots."""
        fresh = []
        for rollout in seats.fill():
            checkpoint = rollout.played.start.checkpoint
            if checkpoint is None:
                fresh.append(rollout)
                continue
            with seats.going_on(rollout):
                rollout.continue_from(checkpoint)
                self._submit(rollout)
        self._calls.start({rollout.slot: rollout.env for rollout in fresh}, "reset")

    def _replies(self, seats: Seats[Start, ActiveRollout]) -> Iterator[tuple[int, ActiveRollout]]:
        """Go on where environments have replied; yields the rollouts that have ended, with their numbers."""
        for slot, reply in self._calls.ended(wait=not self._asked):
            rollout, said = seats[slot], self._said.pop(slot, None)
            with seats.going_on(rollout):
                if said is None:
                    rollout.begin(given(reply))
                elif rollout.take(given(reply), *said):
                    yield seats.end(rollout)
                    continue
                self._submit(rollout)

    def _act(self, seats: Seats[Start, ActiveRollout]) -> None:
        """Have environments carry out the responses that are there; waits for one if no environment is busy."""
        answered = self._engine.answered(wait=not self._calls)
        self._asked -= len(answered)
        actions = []
        for slot, response in answered:
            self._said[slot] = response, self._player.decode(response)
            actions.append(seats[slot].decide(self._said[slot][1]))
        self._calls.start({slot: seats[slot].env for slot, _ in answered}, "step", actions)

    def _submit(self, rollout: ActiveRollout) -> None:
        self._engine.submit(rollout.request(), self._temperature, self._player.max_new)
        self._asked += 1


def shares(starts: Sequence[Start], processes: int) -> list[range]:
    """`starts` cut into at most `processes` parts of about the same size.

    Cuts are moved to the nearby end of a group (or of one checkpoint's continuations), so that a context with which
    several rollouts begin is read once.
    """
    count = len(starts)
    whole = [at for at in range(1, count) if not _alike(starts[at - 1], starts[at])]
    edges = [0]
    for part in range(1, processes):
        even = round(part * count / processes)
        near = min(whole, key=lambda at: abs(at - even), default=even)
        edges.append(near if abs(near - even) * 8 * processes <= count else even)
    edges.append(count)
    return [range(low, high) for low, high in pairwise(sorted(set(edges))) if low < high]


def _alike(one: Start, two: Start) -> bool:
    return one.group_id == two.group_id and one.checkpoint is two.checkpoint
