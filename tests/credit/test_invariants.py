"""What every method must keep, whatever the table.

1. The order of the rows, and the names of groups and rollouts, change nothing but the order of the result.
2. A group's credits depend on that group alone, but for methods that whiten or take a statistic of the batch.
3. Where a method contains flat GRPO, it is flat GRPO exactly at that setting.
4. Adding a constant to all returns of a group changes nothing in group-relative methods.
5. SCPO credits a reference place at most once; MGR never gives an invalid action a positive reward, nor, while its
   critic knows nothing, a positive advantage before whitening, whatever follows.
Don't weaken one of these to make a change pass.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from benchmarks.credit import synthetic
from tests.credit.tables import numbers
from turncredit.credit import METHODS, compute, resolve

#: methods with a statistic over the whole batch (whitening, RMS, entropy range, the gate's schedule, balancing,
#: returns to go, words of the observations)
BATCH = {name for name, method in METHODS.items() if method.normaliser} | {
    "reinforce_pp",
    "empg",
    "mgr_no_critic",
    "scpo",
    "scpo_grpo",
    "scpo_repeat",
    "scpo_shortest",
    "rebn",
    "hiper",
    "proxmo",
}
#: methods whose draws come from the ids, and those in which ties are broken by them
DRAWN = {"random_credit", "mgr", "mgr_across_turns", "mgr_no_critic", "mgr_no_repetition"}
BY_ID = {"scpo", "scpo_grpo", "scpo_repeat", "scpo_shortest", "gigpo_similar"}

ROWS = st.builds(
    synthetic.rows,
    groups=st.integers(1, 3),
    size=st.integers(1, 4),
    turns=st.integers(1, 7),
    seed=st.integers(0, 10_000),
)
few = settings(max_examples=8, deadline=None)


def credits_of(made: list[dict], name: str, **params: object) -> np.ndarray:
    table, side = synthetic.tables(made)
    return numbers(compute(table, resolve({"base": name, "params": params}), side))


@pytest.mark.parametrize("name", sorted(METHODS))
@few
@given(made=ROWS, seed=st.integers(0, 99))
def test_permuting_rows_permutes_the_result_bit_for_bit(name: str, made: list[dict], seed: int) -> None:
    order = np.random.default_rng(seed).permutation(len(made))
    got = credits_of([made[place] for place in order], name)
    assert got.tobytes() == credits_of(made, name)[order].tobytes()


@pytest.mark.parametrize("name", sorted(set(METHODS) - DRAWN - BY_ID))
@few
@given(made=ROWS, seed=st.integers(0, 99))
def test_renaming_groups_and_rollouts_changes_nothing(name: str, made: list[dict], seed: int) -> None:
    names = sorted({row["rollout_id"] for row in made})
    lengths = [sum(row["rollout_id"] == rollout for row in made) for rollout in names]
    assume(name != "scpo_chronological" or len(set(lengths)) == len(lengths))  # equal references: the first by id
    draw = np.random.default_rng(seed).permutation(1000)
    new = {rollout: f"y{draw[place]}" for place, rollout in enumerate(names)}
    renamed = [
        {
            **row,
            "group_id": f"x{draw[int(row['group_id'][1:])]}",
            "rollout_id": new[row["rollout_id"]],
            "parent_rollout_id": new.get(row["parent_rollout_id"], ""),
        }
        for row in made
    ]
    np.testing.assert_allclose(credits_of(renamed, name), credits_of(made, name), atol=1e-9)


@pytest.mark.parametrize("name", sorted(set(METHODS) - BATCH))
@few
@given(made=ROWS)
def test_a_group_does_not_depend_on_other_groups(name: str, made: list[dict]) -> None:
    alone = [row for row in made if row["group_id"] == "g00000"]
    got = credits_of(made, name)[[row["group_id"] == "g00000" for row in made]]
    np.testing.assert_allclose(got, credits_of(alone, name), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", sorted(name for name in METHODS if METHODS[name].normaliser or name not in BATCH))
@few
@given(made=ROWS)
def test_longer_rollouts_elsewhere_leak_nothing_before_whitening(name: str, made: list[dict]) -> None:
    """Nothing is padded to a common length: long rollouts in another group leave the credits of this one alone."""
    params = {"normaliser": None} if METHODS[name].normaliser else {}
    if name.startswith("mgr"):
        params["gate"] = "keep"
    if name == "turn_value_calibrated":
        params["best"] = 10.0  # otherwise the batch's
    longer = [
        {**row, "group_id": "z", "rollout_id": "z" + row["rollout_id"], "parent_rollout_id": "", "parent_turn": -1}
        for row in synthetic.rows(1, 2, 20, seed=1, equal_length=True)
    ]
    got = credits_of(made + longer, name, **params)[: len(made)]
    np.testing.assert_allclose(got, credits_of(made, name, **params), rtol=1e-12, atol=1e-12)


#: methods, and the parameters at which they are flat GRPO: those at which a turn term declares to be neutral, on it
CONTAINED = {name: m.turn_term.neutral for name, m in METHODS.items() if m.turn_term and m.turn_term.neutral}
CONTAINED |= {name: {"omega": 0, "estimator": "flat_grpo"} for name in ("istar", "istar_code")}
CONTAINED |= {"gigpo": {"omega": 0}, "scpo": {"omega": 0}, "g2po": {"omega": 0}, "graphgpo": {"beta": 0}}
CONTAINED |= {"adca_grpo": {"alpha": 0, "estimator": "flat_grpo"}, "lotapo": {"lam": 0, "estimator": "flat_grpo"}}


@pytest.mark.parametrize("name", CONTAINED)
@few
@given(made=ROWS)
def test_at_its_neutral_setting_a_method_is_flat_grpo_bit_for_bit(name: str, made: list[dict]) -> None:
    got = credits_of(made, name, normaliser=None, **CONTAINED[name])
    assert got.tobytes() == credits_of(made, "flat_grpo").tobytes()


@few
@given(made=ROWS)
def test_hipif_without_penalties_is_flat_grpo(made: list[dict]) -> None:
    got = credits_of(made, "hipif", penalty=0, weighting="rollout")
    np.testing.assert_allclose(got, credits_of(made, "flat_grpo"), atol=1e-12)


WITH_EPS = sorted(name for name in METHODS if {"eps", "var_eps"} & set(METHODS[name].params()))


@pytest.mark.parametrize("name", WITH_EPS)
@pytest.mark.filterwarnings("error")
@few
@given(made=ROWS)
def test_nothing_is_divided_by_nothing_without_an_epsilon(name: str, made: list[dict]) -> None:
    """Outcomes, values and labels are the same everywhere, so that the groups and the batch have no deviation."""
    same = {"reward": 0.0, "success": False, "value": 0.0, "score": 0.5, "role": "N", "return_sum": 0.0}
    flat = [{**row, **same, "return_square_sum": 0.0} for row in made]
    params = {key: 0.0 for key in ("eps", "var_eps") if key in METHODS[name].params()}
    assert np.isfinite(credits_of(flat, name, **params)).all()
    assert np.isfinite(credits_of(made, name, **params)).all()


#: methods whose terms are all divided by deviations with the `ddof` that is set (iStar's are, on flat GRPO)
DIVIDED = [
    "flat_grpo",
    "gigpo",
    "g2po",
    "graphgpo",
    "gagpo",
    "step_grpo",
    "hgpo",
    "rebn",
    "igpo",
    "delta_belief",
    "hcapo",
    "tree_grpo",
    "mt_grpo",
    "agentprm",
    "has_progressive",
    "has_judge",
    "has_turnrd",
    "progress_advantage",
    "istar",
]


@pytest.mark.parametrize("name", DIVIDED)
def test_of_three_values_the_population_deviation_is_smaller_by_the_same_factor_in_every_term(name: str) -> None:
    """Three rollouts of one turn in one state and one tree: every mean and deviation is of three values."""
    first, *others = synthetic.rows(1, 3, 1, seed=0)
    forked = {"parent_rollout_id": first["rollout_id"], "parent_turn": 0}
    made = [
        {**row, "reward": reward, "success": reward > 0}
        for row, reward in zip((first, *({**row, **forked} for row in others)), (0.0, 1.0, 3.0), strict=True)
    ]
    params = {"estimator": "flat_grpo"} if name == "istar" else {}
    sample, population = (credits_of(made, name, ddof=ddof, eps=0.0, **params) for ddof in (1, 0))
    assert np.abs(sample).max() > 0.1
    np.testing.assert_allclose(population, np.sqrt(3 / 2) * sample, atol=1e-12)


@pytest.mark.parametrize("name", ["flat_grpo", "rloo", "reinforce_pp"])
@few
@given(made=ROWS, shift=st.integers(-50, 50))
def test_a_constant_on_all_returns_of_a_group_changes_nothing(name: str, made: list[dict], shift: int) -> None:
    moved = [{**row, "reward": row["reward"] + shift * (row["turn"] == 0)} for row in made]
    np.testing.assert_allclose(credits_of(moved, name), credits_of(made, name), atol=1e-9)


@few
@given(made=ROWS, shift=st.integers(-50, 50))
def test_a_constant_on_all_first_rewards_changes_no_episode_term(made: list[dict], shift: int) -> None:
    moved = [{**row, "reward": row["reward"] + shift * (row["turn"] == 0)} for row in made]
    for name in ("gigpo", "hipif_gigpo"):
        one, two = (compute(*synthetic_method(rows, name))["advantage_rollout"] for rows in (made, moved))
        np.testing.assert_allclose(one.to_numpy(), two.to_numpy(), atol=1e-9)


def synthetic_method(made: list[dict], name: str) -> tuple:
    table, side = synthetic.tables(made)
    return table, METHODS[name], side


@few
@given(made=ROWS, theta=st.floats(0.1, 0.9), order=st.sampled_from(["balanced", "chronological", "longest_first"]))
def test_scpo_credits_a_reference_place_at_most_once_and_only_in_failed_rollouts(
    made: list[dict], theta: float, order: str
) -> None:
    table, side = synthetic.tables(made)
    got = compute(table, resolve({"base": "scpo", "params": {"theta": theta, "order": order}}), side)
    taken = set()
    for row, place, credit in zip(made, numbers(got, "scpo_reference"), numbers(got, "scpo_credit"), strict=True):
        assert 0 <= credit <= 1
        if place < 0:
            assert credit == 0
            continue
        assert not row["success"]
        assert row["valid"]
        assert (row["rollout_id"], place) not in taken
        taken.add((row["rollout_id"], place))


@few
@given(made=ROWS, theta=st.floats(0.1, 0.9))
def test_scpo_leaves_the_rollouts_advantage_and_groups_without_contrast_alone(made: list[dict], theta: float) -> None:
    table, side = synthetic.tables(made)
    plain = compute(table, METHODS["gigpo"], side)
    shaped = compute(table, resolve({"base": "scpo", "params": {"theta": theta}}), side)
    np.testing.assert_array_equal(numbers(plain, "advantage_rollout"), numbers(shaped, "advantage_rollout"))
    won: dict[str, set] = {}
    for row in made:
        won.setdefault(row["group_id"], set()).add(row["success"])
    for row, bonus in zip(made, numbers(shaped, "step_bonus"), strict=True):
        assert bonus == 0 or len(won[row["group_id"]]) == 2


def test_scpo_gives_a_bonus_where_a_failure_repeats_what_a_success_did() -> None:
    """Otherwise the two properties above would hold for a method that does nothing."""
    same = {"observation": "a shelf", "action": "take mug 1", "next_observation": "you take mug 1", "valid": True}
    made = [
        {"group_id": "g", "rollout_id": rollout, "turn": turn, "success": won, "reward": float(won and turn), **same}
        for rollout, won in (("a", True), ("b", False))
        for turn in (0, 1)
    ]
    shaped = compute(pa.Table.from_pylist(made), METHODS["scpo"])
    bonus = np.array(numbers(shaped, "step_bonus")).reshape(2, 2)
    assert bonus[0].tolist() == [0, 0]
    assert bonus[1].max() > 0


@few
@given(made=ROWS, gate=st.sampled_from(["sampled", "keep"]))
def test_mgr_never_gives_an_invalid_action_a_positive_reward(made: list[dict], gate: str) -> None:
    table, side = synthetic.tables(made)
    got = compute(table, resolve({"base": "mgr", "params": {"gate": gate}}), side)
    invalid = np.array([not row["valid"] for row in made])
    assert (numbers(got, "reward_mgr")[invalid] <= 0).all()


@pytest.mark.parametrize("name", ["mgr", "mgr_no_gate", "mgr_no_repetition", "mgr_no_critic"])
@few
@given(made=ROWS)
def test_what_follows_an_invalid_action_never_earns_it_a_positive_advantage(name: str, made: list[dict]) -> None:
    params = {"normaliser": None} if METHODS[name].normaliser else {}
    got = credits_of([{**row, "value": 0.0} for row in made], name, **params)
    assert (got[[not row["valid"] for row in made]] <= 0).all()


@few
@given(made=ROWS)
def test_a_group_whose_returns_are_all_equal_has_no_rollout_advantage_at_all(made: list[dict]) -> None:
    dead = [{**row, "reward": 0.1 if row["turn"] == 0 else 0.0} for row in made]
    for name in ("flat_grpo", "rloo", "reinforce_pp"):
        assert not credits_of(dead, name).any()


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_single_turn_in_a_single_rollout_is_credited_without_a_warning(name: str) -> None:
    made = synthetic.rows(1, 1, 1, seed=0)
    with np.errstate(all="raise"):
        assert np.isfinite(credits_of(made, name)).all()


@pytest.mark.parametrize("name", sorted(METHODS))
def test_the_input_table_is_left_as_it_was(name: str) -> None:
    table, side = synthetic.tables(synthetic.rows(2, 3, 6, seed=0))
    before = pa.Table.from_pylist(table.to_pylist(), schema=table.schema)
    compute(table, METHODS[name], side)
    assert table.equals(before)
