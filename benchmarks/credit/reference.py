"""Every closed-form method again, row by row in plain Python: the oracle of the tests, the baseline of the timings.

Written from the equations, not from the library: nothing here is vectorised, and nothing is shared with it but the
seeds of the random draws. `rows` are dicts, one for each turn, in any order; each function returns the advantages (or
what its name says) in that order. A row's number is computed from its definition, looking up its rollout and group;
running sums and counts are mostly avoided, so that a mistake in the library's bookkeeping cannot be repeated here.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable
from difflib import SequenceMatcher
from functools import partial
from itertools import pairwise
from statistics import NormalDist, median

from scipy.optimize import brentq

from benchmarks.credit.rows import Rows, groups, mean, own_and_peers, relative, returns, rollouts, std, step_returns
from turncredit.data.seeding import derive_seed


def flat_grpo(
    rows: Rows, *, norm="mean_std", weighting="rollout", ddof=1, eps=1e-6, singleton="zero", bonus: list | None = None
) -> list[float]:
    out = [0.0] * len(rows)
    for members in groups(rows).values():
        scores = {p: returns(rows, places) + (bonus[p] if bonus else 0.0) for places in members for p in places}
        if weighting == "row" or len(members) == 1:
            others = list(scores.values()) if weighting == "row" else [scores[members[0][0]]]
            for place, score in scores.items():
                out[place] = relative(score, others, norm=norm, ddof=ddof, eps=eps, singleton=singleton)
            continue
        centre = mean([mean([scores[p] for p in places]) for places in members])
        squares = [mean([(scores[p] - centre) ** 2 for p in places]) for places in members]
        spread = math.sqrt(sum(squares) / (len(members) - ddof))
        for place, score in scores.items():
            out[place] = (score - centre) / (spread + eps) if norm == "mean_std" else score - centre
    return out


def rloo(rows: Rows) -> list[float]:
    out = [0.0] * len(rows)
    for members in groups(rows).values():
        for mine in members:
            others = [returns(rows, places) for places in members if places is not mine]
            for place in mine:
                out[place] = returns(rows, mine) - mean(others) if others else 0.0
    return out


def whiten(values: list[float]) -> list[float]:
    centre, spread = mean(values), std(values)
    return [(value - centre) / math.sqrt(spread**2 + 1e-8) for value in values]


def reinforce_pp(rows: Rows) -> list[float]:
    centred = []
    for own, peers in own_and_peers(rows):
        others = [returns(rows, places) for places in peers]
        centred.append(returns(rows, own) - mean(others) if len(others) > 1 else 0.0)
    batch = [centred[places[0]] for places in rollouts(rows).values()]  # each rollout once
    return [(value - mean(batch)) / math.sqrt(std(batch) ** 2 + 1e-8) for value in centred]


def gae(
    rows: Rows, rewards: list[float], *, gamma: float, lam: float, values: list[float] | None = None
) -> list[float]:
    """A_t = sum over k of (gamma lam)^k d_{t+k}, as the sum it is defined by; of the column `value`, or of `values`."""
    values = values or [row["value"] for row in rows]
    out = []
    for row, (own, _) in zip(rows, own_and_peers(rows), strict=True):
        total = 0.0
        for turn in range(row["turn"], len(own)):
            after = values[own[turn + 1]] if turn + 1 < len(own) else 0.0
            delta = rewards[own[turn]] + gamma * after - values[own[turn]]
            total += (gamma * lam) ** (turn - row["turn"]) * delta
        out.append(total)
    return out


def ppo(rows: Rows) -> list[float]:
    return whiten(gae(rows, [row["reward"] for row in rows], gamma=1.0, lam=1.0))


def turn_value(rows: Rows) -> list[float]:
    raw = gae(rows, [row["reward"] for row in rows], gamma=1.0, lam=0.9)
    size = math.sqrt(mean([value**2 for value in raw]))
    return [value / size for value in raw]


def turn_value_calibrated(rows: Rows, *, spread=2.0) -> list[float]:
    best = max([1.0, *(row["value"] for row in rows), *(returns(rows, own) for own, _ in own_and_peers(rows))])

    def logit(row: dict) -> float:
        share = min(max(row["value"] / best, 0.01), 0.99)
        return math.log(share / (1 - share))

    shifted = []
    for row, (own, peers) in zip(rows, own_and_peers(rows), strict=True):
        others = [places for places in peers if places != own]

        def slope(c: float, others=others) -> float:
            surprise = [
                returns(rows, places) / best - 1 / (1 + math.exp(-logit(rows[places[0]]) - c)) for places in others
            ]
            return sum(surprise) - c / spread**2

        c = brentq(slope, -100.0, 100.0, xtol=1e-13) if others else 0.0
        shifted.append({**row, "value": best / (1 + math.exp(-logit(row) - c))})
    return turn_value(shifted)


def agentprm(rows: Rows) -> list[float]:
    return within(rows, [row["value"] for row in rows], lambda place: rows[place]["group_id"])


def agentprm_td(rows: Rows, *, lam=0.95) -> list[float]:
    raw = []
    for row, (own, peers) in zip(rows, own_and_peers(rows), strict=True):
        # The values of the turns, between what stands before the first and the return that replaces the last.
        values = [mean([rows[places[0]]["value"] for places in peers]), *(rows[place]["value"] for place in own)]
        values[-1] = returns(rows, own)
        ahead = range(row["turn"], len(own))
        raw.append(sum(lam ** (turn - row["turn"]) * (values[turn + 1] - values[turn]) for turn in ahead))
    size = math.sqrt(mean([value**2 for value in raw]))
    return [value / size for value in raw]


def carl(rows: Rows) -> list[float]:
    """Values from the tree's definition, from its leaves to its root."""

    def origin(row: dict) -> dict | None:
        """The turn of another rollout from whose state this rollout's first turn leaves; None at the tree's root."""
        return at[row["parent_rollout_id"], row["parent_turn"]] if row["parent_rollout_id"] else None

    def state(row: dict) -> tuple:
        """What two turns that leave the same state have in common."""
        if row["turn"]:
            return (row["rollout_id"], row["turn"])
        parent = origin(row)
        return state(parent) if parent else (row["group_id"],)

    def depth(row: dict) -> int:
        """Turns from the tree's root to the state that a turn leaves."""
        first = at[row["rollout_id"], 0]
        parent = origin(first)
        return row["turn"] + (depth(parent) if parent else 0)

    at = {(row["rollout_id"], row["turn"]): row for row in rows}
    leaving, levels = defaultdict(list), defaultdict(list)
    for place, row in enumerate(rows):
        leaving[state(row)].append(place)
        levels[depth(row)].append(place)
    gain: dict[int, float] = {}
    value: dict[tuple, float] = {}
    for level in sorted(levels, reverse=True):
        for place in levels[level]:
            row = rows[place]
            after = at.get((row["rollout_id"], row["turn"] + 1))
            gain[place] = row["reward"] + (value[state(after)] if after else 0.0)
        for node in {state(rows[place]) for place in levels[level]}:
            value[node] = mean([gain[place] for place in leaving[node]])
    return [gain[place] - value[state(row)] for place, row in enumerate(rows)]


def truth(rows: Rows) -> list[float]:
    """r + V(next state) - V(state), V the mean return of a state's continuations."""
    values = [row["return_sum"] / row["continuations"] for row in rows]
    return gae(rows, [row["reward"] for row in rows], gamma=1.0, lam=0.0, values=values)


def vineppo(rows: Rows) -> list[float]:
    return whiten(truth(rows))


def within(rows: Rows, values: list[float], cell: Callable[[int], object], *, norm="mean_std", ddof=1, eps=1e-6):
    """Each value relative to those of the rows in its cell."""
    cells = defaultdict(list)
    for place in range(len(rows)):
        cells[cell(place)].append(values[place])
    return [relative(values[p], cells[cell(p)], norm=norm, ddof=ddof, eps=eps) for p in range(len(rows))]


def gigpo(
    rows: Rows,
    *,
    omega=1.0,
    gamma=0.95,
    norm="mean_std",
    weighting="rollout",
    singleton="zero",
    step_bonus: list | None = None,
    score_bonus: list | None = None,
    anchor: Callable[[int], object] | None = None,
) -> list[float]:
    ahead = [value + (step_bonus[p] if step_bonus else 0.0) for p, value in enumerate(step_returns(rows, gamma))]
    step = within(rows, ahead, anchor or (lambda p: (rows[p]["group_id"], rows[p]["observation"])), norm=norm)
    episode = flat_grpo(rows, norm=norm, weighting=weighting, singleton=singleton, bonus=score_bonus)
    return [e + omega * s for e, s in zip(episode, step, strict=True)]


def gigpo_similar(rows: Rows) -> list[float]:
    cluster: dict[int, tuple] = {}
    for group, members in groups(rows).items():
        firsts: list[str] = []
        for place in (p for places in members for p in places):
            text = rows[place]["observation"]
            like = (k for k, first in enumerate(firsts) if SequenceMatcher(None, text, first).ratio() >= 0.95)
            number = next(like, len(firsts))
            if number == len(firsts):
                firsts.append(text)
            cluster[place] = (group, number)
    return gigpo(rows, anchor=cluster.__getitem__)


def step_grpo(rows: Rows, *, gamma=0.95, step_bonus: list | None = None) -> list[float]:
    ahead = [value + (step_bonus[p] if step_bonus else 0.0) for p, value in enumerate(step_returns(rows, gamma))]
    return within(rows, ahead, lambda p: rows[p]["group_id"])


def hgpo(rows: Rows, *, history=2, gamma=0.95) -> list[float]:
    ahead = step_returns(rows, gamma)
    items: list[list[tuple[int, float]]] = [[] for _ in rows]
    for k in range(1, history + 2):
        cells: dict[tuple, list[int]] = defaultdict(list)
        for (group, _), places in rollouts(rows).items():
            for turn in range(k - 1, len(places)):
                seen = tuple(rows[p]["observation"] for p in places[turn - k + 1 : turn + 1])
                cells[(group, *seen)].append(places[turn])
        for members in cells.values():
            if len(members) > 1:
                values = [ahead[p] for p in members]
                for place in members:
                    items[place].append((k, (ahead[place] - mean(values)) / (std(values, 0) + 1e-6)))
    out = []
    for item in items:
        kept = [(k + 1.0, value) for k, value in item if value != 0]
        total = sum(weight for weight, _ in kept) + 1e-6
        out.append(sum(weight / total * value for weight, value in kept))
    return out


def empg(rows: Rows) -> list[float]:
    entropy = [-mean(row["response_logprobs"]) for row in rows]
    low, high = min(entropy), max(entropy)
    scaled = [(value - low) / (high - low + 1e-8) for value in entropy]
    sure = [math.exp(-value) for value in scaled]
    centre = mean(sure) + 1e-8
    base = flat_grpo(rows)
    out = [0.0] * len(rows)
    for places in rollouts(rows).values():
        for turn, place in enumerate(places):
            out[place] = base[place] * sure[place] / centre
            if turn + 1 < len(places):
                out[place] += 0.1 * sure[places[turn + 1]]
    middle = mean(out)
    return [value - middle for value in out]


def blended(rows: Rows, credit: list[float], *, alpha=0.5, by="position") -> list[float]:
    cell = {
        "position": lambda p: (rows[p]["group_id"], rows[p]["turn"]),
        "group": lambda p: rows[p]["group_id"],
    }[by]
    turn = within(rows, credit, cell)
    return [alpha * a + (1 - alpha) * b for a, b in zip(flat_grpo(rows), turn, strict=True)]


def has_progressive(rows: Rows) -> list[float]:
    return blended(rows, [row["progress"] - row["progress_before"] for row in rows])


def has_judge(rows: Rows) -> list[float]:
    return blended(rows, [row["score"] for row in rows])


def v_projection(rows: Rows, clip: float = 2.0) -> list[float]:
    out = [0.0] * len(rows)
    for places in rollouts(rows).values():
        clipped = [min(max(rows[p]["value"], -clip), clip) for p in places]
        excess = (sum(clipped) - returns(rows, places)) / len(places)
        for place, value in zip(places, clipped, strict=True):
            out[place] = value - excess
    return out


def has_turnrd(rows: Rows) -> list[float]:
    return blended(rows, v_projection(rows))


def oracle_progress(rows: Rows) -> list[float]:
    def distance(value: int) -> float:
        return 50.0 if value == -1 else float(value)

    credit = [distance(row["distance_before"]) - distance(row["distance"]) for row in rows]
    return blended(rows, credit, alpha=0.0, by="group")


def random_credit(rows: Rows, seed: int = 0) -> list[float]:
    base = flat_grpo(rows)
    out = [0.0] * len(rows)
    for (group, rollout), places in rollouts(rows).items():
        state = derive_seed(seed, "random_credit", str(group), str(rollout))
        for place in places:
            state = (state + 0x9E3779B97F4A7C15) % 2**64
            mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
            mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) % 2**64
            uniform = (((mixed ^ (mixed >> 31)) >> 11) + 0.5) * 2.0**-53
            out[place] = 0.5 * base[place] + 0.5 * NormalDist().inv_cdf(uniform)
    return out


ROLE_CREDIT = {"D": 1.0, "E": 0.5, "N": -0.1, "R": -0.5}


def triage(rows: Rows, *, lam=0.2, without: str = "") -> list[float]:
    credit = [0.0 if row["role"] == without else ROLE_CREDIT[row["role"]] for row in rows]
    return whiten([a + lam * c for a, c in zip(flat_grpo(rows), credit, strict=True)])


def triage_scalar(rows: Rows, *, lam=0.2) -> list[float]:
    return whiten([a + lam * row["score"] for a, row in zip(flat_grpo(rows), rows, strict=True)])


def value_baseline(rows: Rows, *, lam=0.2, clip=0.5) -> list[float]:
    out = flat_grpo(rows)
    for places in rollouts(rows).values():
        for turn, place in enumerate(places):
            last = turn + 1 == len(places)
            after = 0.0 if last else rows[places[turn + 1]]["value"]
            out[place] += lam * min(max(rows[place]["reward"] + after - rows[place]["value"], -clip), clip)
    return whiten(out)


def mgr_reward(rows: Rows, *, beta=0.1, repetition=0.5, free=2, damping=1.0, gate="sampled", seed=0) -> list[float]:
    def valid(place: int) -> bool:
        return rows[place]["valid"] and rows[place]["next_observation"].strip() not in {"", "Nothing happens."}

    def success(places: list[int]) -> float:
        return float(any(rows[place]["success"] for place in places))

    completion = mean([success(places) for places in rollouts(rows).values()])
    validity = mean([float(valid(place)) for place in range(len(rows))])
    keep = 0.1
    if validity < 0.4 or completion < 0.1:
        keep = 1.0
    elif completion < 0.6:
        keep = 1 - 1.5 * completion
    out = []
    for place, (own, peers) in enumerate(own_and_peers(rows)):
        row, size = rows[place], len(peers)
        outcome = size / (size - 1) * (success(own) - mean([success(p) for p in peers])) if size > 1 else 0.0
        local = 1.0 if valid(place) else -1.0
        if row["turn"] > 0 and valid(own[row["turn"] - 1]) != valid(place):
            local += beta * local
        if valid(place):
            count = sum(valid(p) and rows[p]["action"] == row["action"] for p in own[: row["turn"] + 1])
            local -= repetition * max(count - free, 0)
        draw = derive_seed(seed, "mgr_gate", str(row["group_id"]), str(row["rollout_id"])) / 2.0**63
        sign = 1.0 if gate == "keep" or draw < keep else -1.0
        if outcome > 0 and local < 0:
            out.append(damping * local * outcome)
        elif outcome < 0 and local > 0:
            out.append(damping * sign * local * abs(outcome))
        else:
            out.append(local * abs(outcome))
    return out


def mgr(rows: Rows, **options) -> list[float]:
    return whiten([reward - row["value"] for reward, row in zip(mgr_reward(rows, **options), rows, strict=True)])


def mgr_across_turns(rows: Rows) -> list[float]:
    return whiten(gae(rows, mgr_reward(rows), gamma=1.0, lam=0.95))


def invalid_bonus(rows: Rows, penalty=0.1) -> list[float]:
    return [0.0 if row["valid"] else -penalty for row in rows]


def hipif_bonus(rows: Rows, *, penalty=0.1, plain: frozenset[str]) -> list[float]:
    def words(text: str) -> set[str]:
        return set(re.findall("[a-z]{3,}", text.lower()))

    out = []
    for row, (own, _) in zip(rows, own_and_peers(rows), strict=True):
        turn = row["turn"]
        fined = 0
        if turn == 0 or row["subgoal_index"] != rows[own[turn - 1]]["subgoal_index"]:
            observed_words = words(" ".join([row.get("goal", ""), *(rows[p]["observation"] for p in own[: turn + 1])]))
            fined += bool(row["subgoal"].strip()) and not (words(row["subgoal"]) - plain) & observed_words
        ends = turn + 1 < len(own) and rows[own[turn + 1]]["subgoal_index"] != row["subgoal_index"]
        if ends and any(rows[place]["success"] for place in own):
            fined += "nothing happens" in row["next_observation"].lower()
        begin = turn
        while begin > 0 and rows[own[begin - 1]]["subgoal_index"] == row["subgoal_index"]:
            begin -= 1
        span = [rows[place] for place in own[begin : turn + 1]]
        same = [r for r in span if (r["action"], r["next_observation"]) == (row["action"], row["next_observation"])]
        fined += len(same) >= 3
        fined += not row["well_formed"]
        out.append(-penalty * fined)
    return out


def jaccard(first: str, second: str) -> float:
    a, b = (set(re.findall(r"[^\W_]+", text.lower())) for text in (first, second))
    return len(a & b) / len(a | b) if a | b else 0.0


def matched(similarity: list[list[float]], own: list[list[float]], theta: float, order: list[int], repeat=False):
    """SCPO's algorithm 2, line by line: {failed turn: credited place}."""
    places = len(own)
    following = [-1] * places
    for i in range(1, places):
        k = following[i - 1]
        while k >= 0 and own[k + 1][i] < theta:
            k = following[k]
        following[i] = k + 1 if own[k + 1][i] >= theta else k
    j = furthest = -1
    matches = {}
    for v in order:
        while j >= 0 and similarity[j + 1][v] < theta:
            j = following[j]
        if similarity[j + 1][v] >= theta:
            j += 1
            if repeat or j > furthest:
                matches[v] = j
                furthest = j
        if j == places - 1:
            if not repeat:
                break
            j = following[j]
    return matches


def partition(lengths: list[int], parts: int) -> list[list[int]]:
    """Karmarkar and Karp with parts of equal number, on plain lists; len(lengths) is a multiple of `parts`."""
    order = sorted(range(len(lengths)), key=lambda item: (lengths[item], item))

    def weight(items: list[int]) -> tuple:
        return (sum(lengths[item] for item in items), len(items), items)

    states = [
        sorted(([item] for item in order[start : start + parts]), key=weight, reverse=True)
        for start in range(0, len(order), parts)
    ]
    while len(states) > 1:
        states.sort(key=lambda s: (weight(s[0])[0] - weight(s[-1])[0], weight(s[0])), reverse=True)
        one, two, *states = states
        states.append(sorted((a + b for a, b in zip(one, two[::-1], strict=True)), key=weight, reverse=True))
    return [sorted(items) for items in states[0]]


def scpo_bonus(
    rows: Rows, *, alpha=0.5, theta=0.6, soft_base=0.4, order="chronological", repeat=False, shortest=False
) -> list[float]:
    out = [0.0] * len(rows)
    rank = list(range(len(rows)))
    if order == "balanced":
        ordered = [place for places in rollouts(rows).values() for place in places]
        context: list[int] = []
        for places in rollouts(rows).values():
            total = 0
            for place in places:
                total += len(rows[place]["prompt_ids"]) + len(rows[place]["response_ids"])
                context.append(total)
        pad = -len(context) % 4
        parts = partition([*context, *[0] * pad], 4)
        for visit, item in enumerate(item for part in parts for item in part if item < len(ordered)):
            rank[ordered[item]] = visit
    for members in groups(rows).values():
        won = [places for places in members if any(rows[p]["success"] for p in places)]
        if not won:
            continue
        best = (min if shortest else max)(won, key=len)
        texts = {p: f"{rows[p]['action']}\n{rows[p]['next_observation']}" for places in members for p in places}

        def kept(places: list[int]) -> list[int]:
            return [p for p in places if rows[p]["valid"] and rows[p]["next_observation"] != "Nothing happens."]

        reference = kept(best)
        if not reference:
            continue
        own = [[jaccard(texts[a], texts[b]) for b in reference] for a in reference]
        for places in members:
            failed = [] if places in won else kept(places)
            visits = sorted(range(len(failed)), key=lambda v: rank[failed[v]] if order == "balanced" else v)
            similarity = [[jaccard(texts[a], texts[b]) for b in failed] for a in reference]
            for v, place in matched(similarity, own, theta, visits, repeat).items():
                out[failed[v]] = alpha * max(0.0, (similarity[place][v] - soft_base) / (1 - soft_base))
    return out


def scpo(rows: Rows, **options) -> list[float]:
    return gigpo(rows, step_bonus=scpo_bonus(rows, order="balanced", **options))


def scpo_chronological(rows: Rows) -> list[float]:
    return gigpo(rows, step_bonus=scpo_bonus(rows))


def scpo_grpo(rows: Rows) -> list[float]:
    return step_grpo(rows, step_bonus=scpo_bonus(rows, order="balanced"))


def hipif(rows: Rows) -> list[float]:
    from turncredit.credit.hipif import PLAIN  # a word list, not a computation

    return flat_grpo(rows, weighting="row", bonus=hipif_bonus(rows, plain=PLAIN))


def hipif_gigpo(rows: Rows) -> list[float]:
    from turncredit.credit.hipif import PLAIN

    bonus = hipif_bonus(rows, plain=PLAIN)
    return gigpo(rows, weighting="row", step_bonus=bonus, score_bonus=bonus)


def log_ratio(row: dict) -> float:
    """How much more likely the second pass has the response."""
    return row["logprob"] - row["sampled"]


def progress_advantage(rows: Rows) -> list[float]:
    credit = [-log_ratio(row) for row in rows]
    turn = within(rows, credit, lambda p: rows[p]["group_id"])
    return [0.5 * a + 0.5 * b for a, b in zip(flat_grpo(rows), turn, strict=True)]


def hcapo(rows: Rows, *, smoothing=0.0, position=False) -> list[float]:
    q = [0.0] * len(rows)
    for own in rollouts(rows).values():
        likely = {p: math.exp(rows[p]["logprob"] / rows[p]["tokens"] / 5) for p in own}
        ratio = {p: min(max(likely[p] / mean(list(likely.values())), 0.8), 1.2) for p in own}
        raw = [ratio[p] * 0.95 ** (len(own) - 1 - turn) * returns(rows, own) for turn, p in enumerate(own)]
        for turn, p in enumerate(own):
            q[p] = (1 - smoothing) * raw[turn] + smoothing * raw[min(turn + 1, len(own) - 1)]
    cell = (lambda p: (rows[p]["group_id"], rows[p]["turn"])) if position else (lambda p: rows[p]["group_id"])
    out = []
    for row, base, second in zip(rows, flat_grpo(rows), within(rows, q, cell), strict=True):
        out.append(base + (max(second, 0.0) if row["success"] else second))
    return out


def istar(rows: Rows) -> list[float]:
    reward = [0.05 * log_ratio(row) for row in rows]
    turn = within(rows, reward, lambda p: rows[p]["group_id"])
    return [base + second for base, second in zip(rloo(rows), turn, strict=True)]


def istar_code(rows: Rows, *, first_turn: bool = True) -> list[float]:
    reward = [0.05 * log_ratio(row) for row in rows]
    out = []
    for place, (base, (_, peers)) in enumerate(zip(rloo(rows), own_and_peers(rows), strict=True)):
        if first_turn:
            others = [reward[places[0]] for places in peers]
            second = len(others) / (len(others) - 1) * (reward[place] - mean(others)) if len(others) > 1 else 0.0
        else:
            others = [reward[p] for places in peers for p in places if p != place]
            second = reward[place] - mean(others) if others else 0.0
        out.append(base + second)
    return out


def igpo(rows: Rows, *, gamma: float = 1.0) -> list[float]:
    likely = [math.exp(row["logprob"] / row["tokens"]) for row in rows]
    reward = [0.0] * len(rows)
    for own in rollouts(rows).values():
        for place, after in pairwise(own):
            reward[place] = likely[after] - likely[place]
        reward[own[-1]] = returns(rows, own)
    z = within(rows, reward, lambda p: rows[p]["group_id"])
    out = [0.0] * len(rows)
    for own in rollouts(rows).values():
        for number, place in enumerate(own):
            out[place] = sum(gamma**k * z[later] for k, later in enumerate(own[number:]))
    return out


def trace(rows: Rows, *, gamma: float = 1.0) -> list[float]:
    log_p = [row["logprob"] / row["tokens"] for row in rows]
    error = [0.0] * len(rows)
    inner = []
    for own in rollouts(rows).values():
        for place, after in pairwise(own):
            error[place] = gamma * (log_p[after] - log_p[own[0]]) - (log_p[place] - log_p[own[0]])
            inner.append(place)
    inner_rows = [rows[place] for place in inner]
    turn = within(inner_rows, [error[place] for place in inner], lambda p: inner_rows[p]["group_id"])
    out = flat_grpo(rows)
    for place, second in zip(inner, turn, strict=True):
        out[place] += second
    return out


def mt_grpo(rows: Rows, *, progress=False, alpha=1.0) -> list[float]:
    """The sum over the turns ahead, each term looked up from its definition."""
    rewards, last = turn_rewards(rows, progress=progress), last_places(rows)
    inner_cell = [None if p in last else (row["group_id"], row["turn"]) for p, row in enumerate(rows)]
    relative_at = within(rows, rewards, lambda p: inner_cell[p] or ("outcome", rows[p]["group_id"]))
    return [
        sum(alpha ** (turn - row["turn"]) * relative_at[own[turn]] for turn in range(row["turn"], len(own)))
        for row, (own, _) in zip(rows, own_and_peers(rows), strict=True)
    ]


def mt_grpo_unbiased(rows: Rows, *, progress=False, alpha=1.0) -> list[float]:
    rewards = turn_rewards(rows, progress=progress)

    def ahead(places: list[int], turn: int) -> float:
        return sum(alpha**k * rewards[place] for k, place in enumerate(places[turn:]))

    out = []
    for row, (own, peers) in zip(rows, own_and_peers(rows), strict=True):
        others = [ahead(places, row["turn"]) for places in peers if places != own]
        out.append(ahead(own, row["turn"]) - mean(others) if others else 0.0)
    return out


def turn_rewards(rows: Rows, *, progress: bool) -> list[float]:
    last = last_places(rows)
    if not progress:
        return [row["reward"] for row in rows]
    gains = [row["progress"] - row["progress_before"] for row in rows]
    return [returns(rows, own) if place in last else gains[place] for place, (own, _) in enumerate(own_and_peers(rows))]


def last_places(rows: Rows) -> set[int]:
    return {places[-1] for places in rollouts(rows).values()}


def rebn(rows: Rows) -> list[float]:
    return within(rows, step_returns(rows, 1.0), lambda _: "batch", eps=1e-9)


def turn_loo(rows: Rows) -> list[float]:
    out = []
    for row, (own, peers) in zip(rows, own_and_peers(rows), strict=True):
        others = [returns(rows, places) for places in peers if places != own and len(places) > row["turn"]]
        out.append(returns(rows, own) - (mean(others) if others else 0.0))
    return out


def turn_credit(rows: Rows, *, beta=1.0, gamma=0.9) -> list[float]:
    def change(places: list[int], turn: int) -> float:
        return rows[places[turn]]["progress"] - rows[places[turn - 1]]["progress"] if turn else 0.0

    def ahead(places: list[int], turn: int) -> float:
        return sum(
            gamma ** (later - turn) * change(places, later) / sum(gamma**d for d in range(later + 1))
            for later in range(turn, len(places))
        )

    def total(places: list[int]) -> float:
        return returns(rows, places) + sum(change(places, turn) for turn in range(len(places)))

    out = []
    for row, (own, peers) in zip(rows, own_and_peers(rows), strict=True):
        tokens = [max(len(rows[place]["response_ids"]), 1) for place in own]
        centre = sum(n * ahead(own, turn) for turn, n in enumerate(tokens)) / sum(tokens)
        level = total(own) - mean([total(places) for places in peers]) if len(peers) > 1 else 0.0
        out.append(level + beta * (ahead(own, row["turn"]) - centre))
    return out


def seen_with(rows: Rows) -> dict[tuple, list[int]]:
    """(group, observation) -> its rows' places."""
    cells: dict[tuple, list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        cells[row["group_id"], row["observation"]].append(place)
    return cells


def g2po(rows: Rows, *, gamma=0.95) -> list[float]:
    cells, own_of = seen_with(rows), [own for own, _ in own_and_peers(rows)]

    def value(place: int) -> float:
        there = cells[rows[place]["group_id"], rows[place]["observation"]]
        return mean([gamma ** (len(own_of[p]) - rows[p]["turn"]) * returns(rows, own_of[p]) for p in there])

    def after(place: int) -> float:
        own, turn = own_of[place], rows[place]["turn"]
        if turn + 1 < len(own):
            return value(own[turn + 1])
        return returns(rows, own) if any(rows[p]["success"] for p in own) else 0.0

    led = [after(place) for place in range(len(rows))]
    node = within(rows, led, lambda p: (rows[p]["group_id"], rows[p]["observation"]))
    edge = within(rows, [led[p] - value(p) for p in range(len(rows))], lambda p: rows[p]["group_id"])
    return [a + b + c for a, b, c in zip(flat_grpo(rows), node, edge, strict=True)]


def gagpo(rows: Rows, *, gamma=0.95, lam=0.95) -> list[float]:
    cells, ahead = seen_with(rows), step_returns(rows, gamma)
    values = [mean([ahead[p] for p in cells[row["group_id"], row["observation"]]]) for row in rows]
    raw = gae(rows, [row["reward"] for row in rows], gamma=gamma, lam=lam, values=values)
    return within(rows, [round(value, 12) for value in raw], lambda p: rows[p]["group_id"])


def graphgpo(rows: Rows, *, omega=0.1) -> list[float]:
    reward = [0.0] * len(rows)
    for members in groups(rows).values():
        edges = []  # place, the text that it leaves, the text that it leads to; None is success
        for own in members:
            won = any(rows[place]["success"] for place in own)
            ends = [rows[place]["observation"] for place in own[1:]]
            ends.append(None if won else rows[own[-1]]["next_observation"])
            edges += [(place, rows[place]["observation"], end) for place, end in zip(own, ends, strict=True)]
        level: dict[str | None, int] = {None: 0}  # breadth first, from success backwards
        for distance in range(len(edges)):
            for _, start, end in edges:
                if level.get(end) == distance:
                    level.setdefault(start, distance + 1)
        top = max((returns(rows, own) for own in members if any(rows[p]["success"] for p in own)), default=None)
        if top is None:
            continue
        furthest = max(level.values())
        for place, _, end in edges:
            reward[place] = top * omega ** level.get(end, furthest + 1)
    graph = within(rows, reward, lambda p: (rows[p]["group_id"], rows[p]["observation"]))
    return [a + b for a, b in zip(flat_grpo(rows), graph, strict=True)]


def adca_grpo(rows: Rows, *, alpha=0.1) -> list[float]:
    base = flat_grpo(rows, ddof=0, eps=1e-12)
    out = [0.0] * len(rows)
    flag = [0.2 if row["role"] in "DE" else -0.2 for row in rows]
    for members in groups(rows).values():
        centre = mean([mean([flag[p] for p in own]) for own in members])
        spread = mean([mean([(flag[p] - centre) ** 2 for p in own]) for own in members])
        for own in members:
            for turn, place in enumerate(own):
                ahead = [(flag[p] - centre) / (math.sqrt(spread + 1e-8) + 1e-12) for p in own[turn:]]
                out[place] = base[place] + alpha * sum(ahead)
    return out


def proxmo(rows: Rows, *, beta=0.1, alpha=4.0, tau=0.1, gamma=0.95) -> list[float]:
    def sigma(x: float) -> float:
        return 1 / (1 + math.exp(-x))

    def words(row: dict) -> list[str]:
        return re.findall(r"\b\w\w+\b", row["observation"].lower())

    def vector(row: dict) -> dict[str, float]:
        found = words(row)
        raw = {w: found.count(w) * (math.log((1 + len(rows)) / (1 + holding[w])) + 1) for w in set(found)}
        size = math.sqrt(sum(value**2 for value in raw.values()))
        return {word: value / size for word, value in raw.items()}

    holding: dict[str, int] = defaultdict(int)
    for row in rows:
        for word in set(words(row)):
            holding[word] += 1
    vectors = {text: vector({"observation": text}) for text in {row["observation"] for row in rows}}
    ahead = step_returns(rows, gamma)
    out = []
    for place, (own, peers) in enumerate(own_and_peers(rows)):
        share = mean([float(any(rows[p]["success"] for p in places)) for places in peers])
        won = any(rows[p]["success"] for p in own)
        weight = 1 + beta * (sigma((1 - share) ** alpha if won else -(share**alpha)) - 0.5)
        level = returns(rows, own) - mean([returns(rows, places) for places in peers]) if len(peers) > 1 else 0.0
        mine = vectors[rows[place]["observation"]]
        everyone = [p for places in peers for p in places]
        like = [sum(mine.get(w, 0.0) * x for w, x in vectors[rows[p]["observation"]].items()) for p in everyone]
        share_of = [math.exp(value / tau) for value in like]
        near = sum(s * ahead[p] for s, p in zip(share_of, everyone, strict=True)) / sum(share_of)
        out.append(weight * level + ahead[place] - near)
    return out


def turn_ppo(rows: Rows, *, gamma=0.99, lam=0.9) -> list[float]:
    return whiten(gae(rows, [row["reward"] for row in rows], gamma=gamma, lam=lam))


def tree_grpo(rows: Rows) -> list[float]:
    """Leaf by leaf: the path from the start, its outcome, and the leaf's advantage on every turn of it."""
    own = {rollout: places for (_, rollout), places in rollouts(rows).items()}

    def path(rollout: str) -> list[int]:
        first = rows[own[rollout][0]]
        before = path(first["parent_rollout_id"])[:] if first["parent_rollout_id"] else []
        if before:  # up to the state that the fork left: the parent's own turns follow what the parent shares itself
            shared = len(before) - len(own[first["parent_rollout_id"]])
            before = before[: shared + first["parent_turn"]]
        return before + own[rollout]

    def root(rollout: str) -> str:
        parent = rows[own[rollout][0]]["parent_rollout_id"]
        return root(parent) if parent else rollout

    leaves = [{"group": group, "tree": root(rollout), "rollout": rollout} for group, rollout in rollouts(rows)]
    outcome = [sum(rows[place]["reward"] for place in path(leaf["rollout"])) for leaf in leaves]
    task = within(leaves, outcome, lambda number: leaves[number]["group"])
    tree = within(leaves, outcome, lambda number: leaves[number]["tree"])
    out = [0.0] * len(rows)
    for number, leaf in enumerate(leaves):
        for place in path(leaf["rollout"]):
            out[place] += task[number] + tree[number]
    return out


def hiper(rows: Rows, *, gamma=1.0, lam=1.0, lam_seg=0.95) -> list[float]:
    low = [0.0] * len(rows)
    high: dict[int, float] = {}
    for own in rollouts(rows).values():
        segments: list[list[int]] = []
        for place in own:
            if not segments or rows[place]["subgoal_index"] != rows[segments[-1][-1]]["subgoal_index"]:
                segments.append([])
            segments[-1].append(place)
        starts = [rows[segment[0]]["value"] for segment in segments] + [0.0]
        deltas = []
        for k, segment in enumerate(segments):
            values = [*(rows[place]["value"] for place in segment), starts[k + 1]]
            errors = [rows[p]["reward"] + gamma * values[i + 1] - values[i] for i, p in enumerate(segment)]
            for i, place in enumerate(segment):
                low[place] = sum((gamma * lam) ** n * error for n, error in enumerate(errors[i:]))
            earned = sum(gamma**i * rows[place]["reward"] for i, place in enumerate(segment))
            deltas.append(earned + gamma ** len(segment) * starts[k + 1] - starts[k])
        for k, segment in enumerate(segments):
            total, weight = 0.0, 1.0
            for later in range(k, len(segments)):
                total += weight * deltas[later]
                weight *= gamma ** len(segments[later]) * lam_seg
            high[segment[0]] = total
    every, firsts = within(rows, low, lambda _: 0, ddof=0, eps=1e-8), list(high)
    above = [{"value": high[place]} for place in firsts]
    relative_high = within(above, [row["value"] for row in above], lambda _: 0, ddof=0, eps=1e-8)
    out = list(every)
    for place, value in zip(firsts, relative_high, strict=True):
        out[place] += value
    return out


def delta_belief(rows: Rows, *, beta=0.1) -> list[float]:
    def reward(places: list[int], turn: int) -> float:
        if turn >= len(places):
            return 0.0
        after = places[min(turn + 1, len(places) - 1)]
        gain = rows[after]["logprob"] - rows[places[turn]]["logprob"]
        return returns(rows, places) + beta * max(gain, 0.0)

    return [
        relative(
            reward(own, row["turn"]),
            [reward(places, row["turn"]) for places in peers],
            norm="mean_std",
            ddof=1,
            eps=1e-6,
        )
        for row, (own, peers) in zip(rows, own_and_peers(rows), strict=True)
    ]


def lotapo(rows: Rows) -> list[float]:
    out = flat_grpo(rows, ddof=0)
    for members in groups(rows).values():
        gain = {}
        for own in members:
            left = [rows[place]["logprob"] / rows[place]["tokens"] for place in own]
            gain |= {place: left[-1] - value for place, value in zip(own[:-1], left[:-1], strict=True)}
        sizes = [abs(value) for value in gain.values() if abs(value) > 1e-6]
        if not sizes:
            continue
        bounded = [math.tanh(value / (median(sizes) + 1e-6)) for value in gain.values()]
        for (place, value), b in zip(gain.items(), bounded, strict=True):
            n = relative(b, bounded, norm="mean_std", ddof=0, eps=1e-6)
            out[place] += n if value * n > 0 else 0.0
    return out


#: every named method
METHODS: dict[str, Callable[[Rows], list[float]]] = {
    "flat_grpo": flat_grpo,
    "rloo": rloo,
    "reinforce_pp": reinforce_pp,
    "ppo": ppo,
    "gigpo": gigpo,
    "gigpo_similar": gigpo_similar,
    "hgpo": hgpo,
    "step_grpo": step_grpo,
    "empg": empg,
    "has_progressive": has_progressive,
    "has_judge": has_judge,
    "has_turnrd": has_turnrd,
    "has_turnrd_film": has_turnrd,
    "has_turnrd_outcome_only": has_turnrd,
    "has_turnrd_film_outcome_only": has_turnrd,
    "scpo": scpo,
    "scpo_grpo": scpo_grpo,
    "scpo_chronological": scpo_chronological,
    "triage": triage,
    "scpo_repeat": partial(scpo, repeat=True),
    "scpo_shortest": partial(scpo, shortest=True),
    "triage_scalar": triage_scalar,
    "triage_no_regression": partial(triage, without="R"),
    "triage_no_exploration": partial(triage, without="E"),
    "value_baseline": value_baseline,
    "mgr": mgr,
    "mgr_no_gate": partial(mgr, gate="keep"),
    "mgr_no_repetition": partial(mgr, repetition=0.0),
    "mgr_no_critic": mgr_reward,
    "mgr_across_turns": mgr_across_turns,
    "turn_value": turn_value,
    "turn_value_calibrated": turn_value_calibrated,
    "agentprm": agentprm,
    "agentprm_td": agentprm_td,
    "progress_advantage": progress_advantage,
    "istar": istar,
    "istar_code": istar_code,
    "igpo": igpo,
    "trace": trace,
    "hcapo": hcapo,
    "hcapo_smooth": partial(hcapo, smoothing=0.5),
    "hipif": hipif,
    "hipif_gigpo": hipif_gigpo,
    "mt_grpo": mt_grpo,
    "mt_grpo_progress": partial(mt_grpo, progress=True),
    "mt_grpo_unbiased": mt_grpo_unbiased,
    "mt_grpo_unbiased_progress": partial(mt_grpo_unbiased, progress=True),
    "rebn": rebn,
    "turn_loo": turn_loo,
    "turn_credit": turn_credit,
    "g2po": g2po,
    "gagpo": gagpo,
    "graphgpo": graphgpo,
    "adca_grpo": adca_grpo,
    "proxmo": proxmo,
    "turn_ppo": turn_ppo,
    "bi_level_gae": partial(turn_ppo, gamma=0.95, lam=1.0),
    "tree_grpo": tree_grpo,
    "hiper": hiper,
    "delta_belief": delta_belief,
    "lotapo": lotapo,
    "carl": carl,
    "vineppo": vineppo,
    "truth": truth,
    "random_credit": random_credit,
    "oracle_progress": oracle_progress,
}
