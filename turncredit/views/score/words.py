"""What a card says, in sentences, and its numbers as text. The terminal, the page and the leaderboard share them."""

from __future__ import annotations

from math import isfinite, isnan

from turncredit.audit.score.blocks import Measured
from turncredit.audit.score.card import SIZE, SIZES, VALID, Card, Summary, WorldScore
from turncredit.audit.score.validity import Decision
from turncredit.audit.score.worth import gains
from turncredit.credit.parts.baselines import BASELINE

#: Rank correlations, and deviations paid for going on, that are nearer to zero are called none.
SMALL = 0.05
#: A gap of this many standard errors is no accident of the rollouts that were drawn.
CLEAR = 3.0


def two(value: float) -> str:
    """Two decimals with a sign; a dash where there is no number."""
    return "-" if not isfinite(value) else "0.00" if abs(value) < 0.005 else f"{value:+.2f}"


def share(value: float) -> str:
    """Two decimals without a plus sign."""
    return two(value).lstrip("+")


def times(value: float) -> str:
    """A multiple, such as `0.22`; `never` where it is infinite."""
    return "-" if isnan(value) else f"{value:.2f}" if isfinite(value) else "never"


def count(value: float) -> str:
    """A number of rollouts; `never` where it is infinite."""
    return "-" if isnan(value) else f"{max(value, 1):.0f}" if isfinite(value) else "never"


def verdict(card: Card, summary: Summary) -> list[str]:
    """What the card says, one sentence for each part."""
    return [_identified(summary), _valid(card, summary), _noise(summary), *_going_on(card), *_measured(card.method)]


def _identified(summary: Summary) -> str:
    rank = f"rank correlation with the true advantage {two(summary.rank)} within rollouts"
    if abs(summary.rank) < SMALL:
        return f"It does not say which turns of a rollout mattered: {rank} (A*: 1)."
    orders = "It ranks the turns of a rollout" if summary.rank > 0 else "It ranks the turns of a rollout wrongly"
    return f"{orders}: {rank} (flat GRPO: 0, A*: 1)."


def _valid(card: Card, summary: Summary) -> str:
    if isnan(summary.worst):
        return "It has no expected gradient that differs from zero."
    worst = f"cosine {share(summary.worst)}"
    if summary.worst >= VALID:
        return f"Its expected gradient points along the policy gradient: {worst} or more in each world."
    wrong = next(one.validity[SIZE] for one in card.scored() if one.world == summary.where)
    return f"Its expected gradient is biased: {worst} in {summary.where}{_where(wrong.paid, wrong.charged)}."


def _where(paid: Decision | None, charged: Decision | None) -> str:
    parts = [
        f"'{one.action}' at '{one.observation}' gets too {much}"
        for one, much in ((paid, "much"), (charged, "little"))
        if one is not None
    ]
    return f", where {' and '.join(parts)}" if parts else ""


def _noise(summary: Summary) -> str:
    if isnan(summary.noise):
        return "Its noise cannot be compared with flat GRPO's."
    if not isfinite(summary.noise):
        return "In some world no number of rollouts is enough: the expected gradient does not point uphill."
    return f"It needs {summary.noise:.2f} times flat GRPO's rollouts until its noise is as large as its signal."


def _going_on(card: Card) -> list[str]:
    paid = {one.world: one.going_on[SIZE] for one in card.worlds if not one.matters}
    return [
        f"Going on is {_pays(number)} in {world}, where it changes nothing: {deviations(number)}."
        for world, number in paid.items()
    ]


def _measured(method: str) -> list[str]:
    """The method's gains, where it was trained."""
    found = [(setting, of_setting[method]) for setting, of_setting in gains().items() if method in of_setting]
    if method == BASELINE or not found:
        return []
    told = [f"{gain.value:+.1f} ({gain.low:+.1f} to {gain.high:+.1f}) in {setting}" for setting, gain in found]
    return [f"In training, against flat GRPO: {', '.join(told)} points of success."]


def _pays(paid: Measured) -> str:
    if abs(paid.value) < SMALL or abs(paid.value) < CLEAR * paid.error:
        return "neither paid nor charged"
    return "rewarded by itself" if paid.value > 0 else "punished by itself"


def deviations(paid: Measured) -> str:
    """A number of deviations of the credit, with its error where it has one."""
    error = f" (± {paid.error:.2f})" if paid.error > 0 else ""
    return f"{two(paid.value)}{error} deviations"


def honesty(card: Card) -> list[tuple[str, str]]:
    """What the method depends on: name and words."""
    found = card.traits
    ids = "not asked: it is random" if found.ids is None else "no" if found.ids else "yes: ties are decided by them"
    cost = f"{found.seconds:.3f} s for 128 rollouts of 50 turns"
    if card.continuations:
        cost += f"; {card.continuations} continuations from each state"
    return [
        ("reads", ", ".join(found.reads) or "nothing"),
        ("costs", cost),
        ("draws random numbers", "yes" if found.random else "no"),
        ("depends on other groups", "no" if found.own_group else "yes: on statistics of the batch"),
        ("depends on the order of rows", "no" if found.row_order else "yes"),
        ("depends on the names of groups and rollouts", ids),
        ("depends on the wording", "no" if found.wording else "yes"),
        ("credit where a group's returns are equal", f"up to {found.dead_groups:.2f} deviations"),
        ("credit in groups of one", "refuses them" if isnan(found.alone) else f"up to {found.alone:.2f}"),
        ("explained by the outcome alone", f"{100 * found.outcome_share:.0f}% of the credit's variance"),
        ("explained by the turn's number", f"{100 * found.turn_share:.0f}% (A*: 0%)"),
        ("refused actions, against A*", f"{two(found.refused)} deviations"),
    ]


#: Headings of `row`, in its order, and what each says.
COLUMNS = {
    "rank": "rank correlation of credit and A* within rollouts",
    "sign": "share of turns that matter whose credit has the right sign",
    "top": "share of rollouts whose decisive turn stands out most",
    "chance": "the same for a turn picked at random",
    **{f"cosine {size}": f"cosine of expected and policy gradient, groups of {size}" for size in SIZES},
    "scale": "length of the step along the policy gradient, as a multiple of it",
    "bias": "share of the expected gradient's square that points elsewhere",
    "rollouts": "rollouts until noise is as large as signal",
}


def row(one: WorldScore) -> list[str]:
    """A world's numbers, in the order of `COLUMNS`."""
    found, valid = one.identification, one.validity[SIZE]
    return [
        two(found.rank.value),
        share(found.sign.value),
        share(found.top.value),
        share(found.chance.value),
        *(share(one.validity[size].cosine.value) for size in SIZES),
        share(valid.scale.value),
        share(valid.bias.value),
        count(valid.rollouts),
    ]
