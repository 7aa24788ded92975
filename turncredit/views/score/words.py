"""What a card says, in sentences, and its numbers as text. The terminal, the page and the leaderboard share them."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite, isnan

from turncredit.audit.score.agreement import Agreement, PartScore, RolloutScore, Share
from turncredit.audit.score.blocks import Measured
from turncredit.audit.score.card import SIZE, SIZES, VALID, Card, Summary, WorldScore
from turncredit.audit.score.validity import Decision
from turncredit.audit.score.worth import gains
from turncredit.credit.parts.baselines import BASELINE

#: Rank correlations, and deviations paid for going on, that are nearer to zero are called none.
SMALL = 0.05
#: A share of the credit's variance from which on it is the same for all turns of a rollout, but for rounding.
SAME = 1 - 1e-9
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
    exact = [_identified(card, summary), _valid(card, summary), _noise(summary), *_going_on(card)]
    if card.lacks is not None:
        exact = [f"It is not scored on exact worlds: it {card.lacks}."]
    return [*exact, *_recorded(card), *_measured(card.method)]


def _recorded(card: Card) -> list[str]:
    """What the recorded rollouts say; nothing where no set was given."""
    found = card.recorded
    if found is None:
        return []
    if isinstance(found, str):
        return [f"It is not scored on recorded rollouts: it {found}."]
    rank = f"rank correlation {within(found.rank)}, where the truth would reach {share(found.rank.ceiling)}"
    if not (round(found.rank.low, 2) > 0 or round(found.rank.high, 2) < 0):  # as it is printed
        return [f"On recorded rollouts it is not shown to order the turns: {rank}."]
    orders = "it orders the turns" if found.rank.value > 0 else "it orders the turns wrongly"
    return [f"On recorded rollouts {orders}: {rank}."]


def within(number: Agreement, form: Callable[[float], str] = two) -> str:
    """A number with its interval, such as `+0.31 (+0.25 to +0.37)`."""
    if isnan(number.low):
        return form(number.value)
    return f"{form(number.value)} ({form(number.low)} to {form(number.high)})"


#: Headings of `recorded_row`, in its order, and what each says.
RECORDED_COLUMNS = {
    "rank": "rank correlation of credit and A* within rollouts; what the truth would reach",
    "sign": "share of turns with |A*| above its error whose credit has the right sign; what the truth would reach",
    "top": "share of rollouts whose decisive turn stands out most; what the truth would reach",
    "chance": "the same for a turn picked at random",
    "alignment": "cosine of credit and A* over turns; what the truth would reach",
    "between rollouts": "share of the credit's variance that says nothing of turns; that of A*",
    "turn's number": "share of the credit's variance that the turn's number explains; that of A*",
    "refused": "credit of refused actions less their A*, in deviations; right is 0",
    "dead groups": "largest credit where a group's returns are equal, in deviations",
}


def recorded_row(one: PartScore) -> list[str]:
    """A part's numbers, in the order of `RECORDED_COLUMNS`."""
    return [
        f"{two(one.rank.value)} of {share(one.rank.ceiling)}",
        f"{share(one.sign.value)} of {share(one.sign.ceiling)}",
        f"{share(one.top.value)} of {share(one.top.ceiling)}",
        share(one.chance),
        f"{two(one.alignment.value)} of {share(one.alignment.ceiling)}",
        _shares(one.between),
        _shares(one.by_turn),
        two(one.refused.value),
        share(one.dead),
    ]


def recorded_mean(found: RolloutScore) -> list[str]:
    """The means over parts with their intervals, in the order of `RECORDED_COLUMNS`."""
    return [
        within(found.rank),
        within(found.sign, share),
        within(found.top, share),
        share(found.chance),
        within(found.alignment),
        *[""] * 4,
    ]


def recorded_about(found: RolloutScore) -> str:
    """Which set the numbers are from, and what the parts that were left out lack."""
    left_out = "".join(f" Not scored in {part}: {reason}." for part, reason in found.left_out)
    return (
        f"{found.set}, version {found.version} ({found.digest[:12]}): {found.seconds:.2f} s for {found.turns:,} turns."
        f"{left_out}"
    )


def _shares(found: Share) -> str:
    return f"{100 * found.credit:.0f}% ({100 * found.truth:.0f}%)"


def _identified(card: Card, summary: Summary) -> str:
    if card.traits is not None and card.traits.outcome_share > SAME:
        return (
            "On exact worlds it gives all turns of a rollout the same credit. If it reads an environment's texts, only "
            "recorded rollouts can show what it does."
        )
    rank = f"rank correlation with the true advantage {two(summary.rank)} within rollouts"
    if abs(summary.rank) < SMALL:
        return f"On exact worlds it does not say which turns of a rollout mattered: {rank} (A*: 1)."
    wrongly = "" if summary.rank > 0 else " wrongly"
    return f"On exact worlds it ranks the turns of a rollout{wrongly}: {rank} (flat GRPO: 0, A*: 1)."


def _valid(card: Card, summary: Summary) -> str:
    if isnan(summary.worst):
        return "It has no expected gradient that differs from zero."
    worst, none = f"cosine {share(summary.worst)}", _without_direction(card)
    if summary.worst >= VALID:
        return f"Its expected gradient points along the policy gradient: {worst} in the worst world.{none}"
    wrong = next(one.validity[SIZE] for one in card.scored() if one.world == summary.where)
    return f"Its expected gradient is biased: {worst} in {summary.where}{_where(wrong.paid, wrong.charged)}.{none}"


def _without_direction(card: Card) -> str:
    """In which worlds there is no cosine, as a sentence; empty where all have one."""
    worlds = [one.world for one in card.scored() if isnan(one.validity[SIZE].cosine.value)]
    return f" It does not differ from zero in {', '.join(worlds)}." if worlds else ""


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
    """What going on is paid, a sentence for each answer: worlds that have the same one share it."""
    found: dict[str, dict[str, list[str]]] = {}
    for one in card.worlds:
        if not one.matters:
            number = one.going_on[SIZE]
            found.setdefault(_pays(number), {}).setdefault(deviations(number), []).append(one.world)
    told = {
        pays: [f"{number} in {' and '.join(worlds)}" for number, worlds in numbers.items()]
        for pays, numbers in found.items()
    }
    return [f"Going on is {pays} where it changes nothing: {', '.join(parts)}." for pays, parts in told.items()]


def _measured(method: str) -> list[str]:
    """The method's gains, where it was trained."""
    found = [(setting, of_setting[method]) for setting, of_setting in gains().items() if method in of_setting]
    if method == BASELINE or not found:
        return []
    told = [f"{gain.value:+.1f} ({gain.low:+.1f} to {gain.high:+.1f}) in {setting}" for setting, gain in found]
    return [f"In training, against flat GRPO: {', '.join(told)} points of success."]


def _pays(paid: Measured) -> str:
    if abs(paid.value) < SMALL:
        return "hardly paid or charged"
    if abs(paid.value) < CLEAR * paid.error:
        return "not shown to be paid or charged"
    return "rewarded by itself" if paid.value > 0 else "punished by itself"


def deviations(paid: Measured) -> str:
    """A number of deviations of the credit, with its error where it has one."""
    error = f" (± {paid.error:.2f})" if paid.error > 0 else ""
    return f"{two(paid.value)}{error} deviations"


def honesty(card: Card) -> list[tuple[str, str]]:
    """What the method depends on: name and words. Empty without exact worlds, on which this is found."""
    found = card.traits
    if found is None:
        return []
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
        ("credit in groups that have all failed", f"up to {found.dead_groups:.2f} deviations"),
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
