"""The estimator `turncredit` on real `DataProto`s, called by verl: its GRPO and RLOO, and verl-agent's GiGPO."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl has an environment of its own: make test-integrations")

import numpy as np
import torch
from omegaconf import OmegaConf
from verl import DataProto
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

from turncredit import credit
from turncredit.bridges.verl import rows
from turncredit.errors import UserError

pytestmark = pytest.mark.integrations


def settings(method: str, **params: object):
    """`algorithm` as the trainer hands it over."""
    return OmegaConf.create(
        {"adv_estimator": "turncredit", "turncredit": {"method": method, "params": params}, "gamma": 1.0}
    )


def data(
    masks: list[list[int]], token_rewards: list[list[float]], uids: list[str], **columns: list[object]
) -> DataProto:
    tensors = {"response_mask": torch.tensor(masks), "token_level_rewards": torch.tensor(token_rewards)}
    known = {"uid": uids, **columns}
    return DataProto.from_dict(tensors, non_tensors={name: np.array(it, dtype=object) for name, it in known.items()})


def outcome_batch(rollouts: int = 12, length: int = 9, group: int = 4) -> DataProto:
    """Sequences of several turns, each with a score on its last token; the last group is a group of one."""
    rng = np.random.default_rng(0)
    masks = (rng.random((rollouts + 1, length)) < 0.6).astype(int)
    masks[:, 0] = 1
    rewards = np.zeros(masks.shape)
    for row, mask in enumerate(masks):
        rewards[row, np.flatnonzero(mask)[-1]] = rng.integers(0, 3)
    uids = [f"u{row // group}" for row in range(rollouts)] + ["alone"]
    return data(masks.tolist(), rewards.tolist(), uids)


def estimated(batch: DataProto, method: str, **params: object) -> torch.Tensor:
    made = compute_advantage(batch, "turncredit", config=settings(method, **params))
    assert made.batch["returns"].equal(made.batch["advantages"])
    return made.batch["advantages"]


@pytest.mark.parametrize("scaled", [True, False])
def test_flat_grpo_is_verls_grpo(scaled: bool) -> None:
    theirs = compute_advantage(
        outcome_batch(), core_algos.AdvantageEstimator.GRPO, norm_adv_by_std_in_grpo=scaled, config=settings("")
    ).batch["advantages"]
    ours = estimated(outcome_batch(), "flat_grpo", norm="mean_std" if scaled else "mean")
    assert theirs.abs().max() > 0.5
    torch.testing.assert_close(ours, theirs.float(), rtol=1e-5, atol=1e-6)


def test_rloo_is_verls_rloo() -> None:
    theirs = compute_advantage(outcome_batch(), "rloo", config=settings("")).batch["advantages"]
    torch.testing.assert_close(estimated(outcome_batch(), "rloo")[:12], theirs[:12].float(), rtol=1e-5, atol=1e-6)


def test_the_runs_of_the_mask_are_turns_with_the_rewards_of_their_tokens() -> None:
    masks = [[1, 1, 0, 1], [1, 0, 1, 1]]
    rewards = [[0.0, 0.5, 0.25, 1.0], [0.0, 0.0, 0.0, 0.0]]
    ours = estimated(data(masks, rewards, ["g", "g"]), "step_grpo", gamma=0.5)
    turns = {"group_id": ["g"] * 4, "rollout_id": [0, 0, 1, 1], "turn": [0, 1, 0, 1], "reward": [0.75, 1.0, 0, 0]}
    expected = credit(turns, "step_grpo", preset="verl", gamma=0.5)["advantage"].to_pylist()
    a, b, c, d = expected
    torch.testing.assert_close(ours, torch.tensor([[a, a, 0, b], [c, 0, d, d]]))
    assert len(set(expected)) > 2


def test_sequences_that_are_turns_get_verl_agents_gigpo() -> None:
    """The numbers of tests/credit/test_reference_numbers.py, the sequences in another order, as after balancing."""
    order = [4, 0, 5, 2, 1, 3]
    turns = {
        "traj_uid": ["a", "a", "b", "b", "b", "c"],
        "turn": [0, 1, 0, 1, 2, 0],
        "rewards": [0.0, 10.0, 0.0, 0.0, 0.0, 10.0],
        "anchor_obs": ["s0", "s1", "s0", "s0", "s2", "s0"],
    }
    columns = {name: [values[place] for place in order] for name, values in turns.items()}
    batch = data([[1, 1, 0]] * 6, [[0.0, 10.0, 0.0]] * 6, ["g"] * 6, **columns)
    known = batch.non_tensor_batch
    ids = {"rollout_id": known["traj_uid"], "turn": known["turn"]}
    with rows(**ids, reward=known["rewards"], observation=known["anchor_obs"]):
        ours = estimated(batch, "gigpo", norm="mean", weighting="row")
    expected = np.array([9.625, 5, -9.875, -9.875, -5, 10.125])[order]
    np.testing.assert_allclose(ours[:, 0], expected, atol=1e-5)
    assert not ours[:, 2].any()


def test_a_sequence_that_a_trainer_repeats_counts_once() -> None:
    """verl-agent fills a batch up to a multiple of its GPUs with copies, before it estimates advantages."""
    columns = {"rollout_id": ["a", "a", "b", "c"], "turn": [0, 1, 0, 0], "reward": [0.0, 10.0, 0.0, 4.0]}
    rewards = [[0.0, reward] for reward in columns["reward"]]
    whole = data([[1, 1]] * 4, rewards, ["g"] * 4)
    order = [3, 0, 1, 2, 0, 3]
    filled = data([[1, 1]] * 6, [rewards[row] for row in order], ["g"] * 6)
    with rows(**columns):
        once = estimated(whole, "rloo")
    with rows(**{name: [values[row] for row in order] for name, values in columns.items()}):
        repeated = estimated(filled, "rloo")
    assert once.abs().min() > 0.1
    torch.testing.assert_close(repeated, once[order])


def test_rollout_ids_that_repeat_between_groups_are_no_copies() -> None:
    scores, ids = [1.0, 0.0, 0.0, 1.0, 0.0], ["0", "1", "2", "0", "1"]
    batch = data([[1, 1]] * 5, [[0.0, score] for score in scores], ["g", "g", "g", "h", "h"])
    with (
        rows(rollout_id=ids, turn=[0] * 5),
        pytest.raises(UserError, match="verl's batch: rollout '0' is in more than one group"),
    ):
        estimated(batch, "flat_grpo")


@pytest.mark.parametrize("made", [torch.tensor, np.array, lambda it: [torch.tensor(x) for x in it]])
def test_columns_of_rows_may_be_lists_arrays_and_tensors(made: Callable[[list[Any]], Any]) -> None:
    """A repeated sequence is found in each of them."""
    columns = {"rollout_id": [0, 1, 1, 2, 0], "turn": [0, 0, 1, 0, 0], "reward": [1.0, 0.0, 3.0, 0.0, 1.0]}
    batch = lambda: data([[1, 1]] * 5, [[0.0, reward] for reward in columns["reward"]], ["g"] * 5)  # noqa: E731
    with rows(**columns):
        listed = estimated(batch(), "rloo")
    with rows(**{name: made(values) for name, values in columns.items()}):
        other = estimated(batch(), "rloo")
    assert listed.abs().min() > 0.1
    torch.testing.assert_close(other, listed, rtol=0, atol=0)


def test_outputs_of_a_session_are_one_rollout_with_the_last_ones_score() -> None:
    keys = ["a_0_0", "a_1_0", "a_0_1", "a_1_1", "a_1_2"]
    scores = [7.0, 7.0, 1.0, 7.0, 0.0]
    made = lambda: data([[1, 1]] * 5, [[0.0, score] for score in scores], ["a"] * 5)  # noqa: E731
    grpo = compute_advantage_for_multi_trajectories(made(), keys, core_algos.AdvantageEstimator.GRPO)
    with rows(keys=keys):
        ours = compute_advantage_for_multi_trajectories(made(), keys, "turncredit", config=settings("flat_grpo"))
    assert grpo.batch["advantages"].abs().min() > 0.5
    torch.testing.assert_close(ours.batch["advantages"], grpo.batch["advantages"].float(), rtol=1e-5, atol=1e-6)


def test_the_score_of_a_last_output_without_tokens_is_that_of_the_turn_before() -> None:
    keys = ["a_0_0", "a_0_1", "a_1_0", "a_1_1"]
    made = data([[1, 1], [0, 0], [1, 1], [1, 1]], [[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 0.0]], ["a"] * 4)
    with rows(keys=keys):
        ours = compute_advantage_for_multi_trajectories(made, keys, "turncredit", config=settings("flat_grpo"))
    advantage_BL = ours.batch["advantages"]
    assert (advantage_BL[0] > 0.5).all()
    assert (advantage_BL[1] == 0).all()
    assert (advantage_BL[2:] < -0.5).all()


@pytest.mark.parametrize(
    ("method", "about", "message"),
    [
        ("gigpo", {}, "algorithm.turncredit.method: gigpo reads 'observation', which these turns do not have"),
        ("triage", {}, "triage needs labels, which a trainer does not have"),
        ("gigpo", {"observation": ["a"]}, "has 1 values for 13 sequences"),
        ("gigpo", {"observation": ["a"] * 13}, "one value for a sequence, but a sequence has several turns"),
        (
            "rloo",
            {"rollout_ids": ["a"] * 13},
            r"rows\(rollout_ids=...\): rloo reads no .* \(did you mean 'rollout_id'\?\)",
        ),
        ("rloo", {"rollout_id": ["a"] * 13}, r"two sequences are turn 0 of rollout 'a'; rows\(turn=...\) gives"),
        ("rloo", {"rollout_id": ["a"] * 13, "turn": [0, 1, 2, 0, *range(4, 13)]}, "are turn 0 of rollout 'a'"),
        (
            "rloo",
            {"keys": ["a_0_0"] * 2 + [f"b_{row}_0" for row in range(11)]},
            "two sequences are turn 0 of rollout 'a_0'",
        ),
    ],
)
def test_what_the_estimator_is_not_given_is_one_line(method: str, about: dict[str, list[str]], message: str) -> None:
    with rows(**about), pytest.raises(UserError, match=message):
        estimated(outcome_batch(), method)


def test_a_list_in_the_parameters_is_read_as_in_a_configuration() -> None:
    batch = lambda: data([[1, 1]] * 3, [[0.0, 1.0], [0.0, 0.0], [0.0, 1.0]], ["g"] * 3)  # noqa: E731
    with rows(rollout_id=["a", "b", "c"], turn=[0, 0, 0], valid=[True, False, True]):
        listed, named = (estimated(batch(), "flat_grpo", shapers=it) for it in (["invalid_penalty"], "invalid_penalty"))
        assert listed.equal(named)
        assert not listed.equal(estimated(batch(), "flat_grpo"))


def test_rejection_of_single_tokens_is_refused_because_it_would_cut_turns_in_two() -> None:
    config = settings("step_grpo")
    config.rollout_correction = {"rollout_rs": "seq_mean_k1,token_k1", "rollout_rs_threshold": "0.5_2.0"}
    with pytest.raises(UserError, match="rollout_rs: token_k1 takes single tokens out of the mask"):
        compute_advantage(outcome_batch(), "turncredit", config=config)
    config.rollout_correction.bypass_mode = True  # the trainer leaves the mask as it is
    bypassed = compute_advantage(outcome_batch(), "turncredit", config=config).batch["advantages"]
    config.rollout_correction = {"rollout_rs": "seq_mean_k1", "rollout_rs_threshold": "0.5_2.0"}
    assert compute_advantage(outcome_batch(), "turncredit", config=config).batch["advantages"].equal(bypassed)


def test_verls_own_switch_of_the_deviation_is_not_ignored() -> None:
    config = settings("flat_grpo")
    config.norm_adv_by_std_in_grpo = False
    with pytest.raises(UserError, match="norm_adv_by_std_in_grpo=false would have no effect on flat_grpo"):
        compute_advantage(outcome_batch(), "turncredit", config=config)
    config.turncredit.params.norm = "mean"
    ours = compute_advantage(outcome_batch(), "turncredit", config=config).batch["advantages"]
    assert ours.equal(estimated(outcome_batch(), "flat_grpo", norm="mean"))
    config.turncredit = {"method": "rloo"}  # has no deviation
    assert compute_advantage(outcome_batch(), "turncredit", config=config).batch["advantages"].any()


def test_settings_and_keys_of_another_form_are_refused() -> None:
    config = OmegaConf.create({"turncredit": "gigpo"})
    with pytest.raises(UserError, match="turncredit=gigpo: not settings; write"):
        compute_advantage(outcome_batch(), "turncredit", config=config)
    config = OmegaConf.create({"turncredit": {"methd": "rloo"}})
    with pytest.raises(UserError, match=r"algorithm.turncredit.methd: no such setting \(did you mean 'method'\?\)"):
        compute_advantage(outcome_batch(), "turncredit", config=config)
    with pytest.raises(UserError, match=r"the key 'a' is not {uid}_{session}_{index}"), rows(keys=["a"]):
        pass


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"turn": [0]}, r"rows\(turn=...\) needs rollout_id=..., beside turn"),
        ({"reward": [1.0]}, r"rows\(reward=...\) needs rollout_id=..., beside reward"),
        ({"rollout_ids": ["a"], "turn": [0]}, "needs rollout_id=..., beside rollout_ids, turn"),
        ({"keys": ["a_0_0"], "rollout_id": ["a"]}, r"rows\(rollout_id=...\) repeats the keys"),
    ],
)
def test_rows_without_rollouts_or_with_two_namings_of_them_are_refused(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message), rows(**columns):
        pass


def test_a_session_may_have_rewards_of_its_outputs() -> None:
    batch = data([[1, 1]] * 3, [[0.0, 0.0]] * 3, ["a"] * 3)
    with rows(keys=["a_0_0", "a_0_1", "a_1_0"], reward=[1.0, 1.0, 0.0]):
        ours = estimated(batch, "flat_grpo", norm="mean", weighting="rollout")
    assert ours[:, 0].tolist() == [1.0, 1.0, -1.0]


@pytest.mark.parametrize("method", ["flat_grpo", "gigpo"])
def test_a_column_of_turns_may_be_given_to_methods_that_do_not_read_it(method: str) -> None:
    """The method is of the configuration, the columns are of the trainer."""
    masks, rewards = [[1, 1]] * 3, [[0.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    with rows(rollout_id=["x", "x", "y"], turn=[1, 3, 1], observation=["a", "b", "a"]):
        ours = estimated(data(masks, rewards, ["g"] * 3), method)
    assert ours[0, 0] > 0 > ours[2, 0]


def test_verl_finds_the_plug_in_by_its_entry_point() -> None:
    from importlib.metadata import entry_points

    found = [entry for entry in entry_points(group="verl.plugins") if entry.name == "turncredit"]
    if not found:
        pytest.skip("turncredit is not installed here, only on the path")
    assert found[0].value == "turncredit.bridges.verl"
    assert core_algos.get_adv_estimator_fn("turncredit") is not None
