"""Paths of artifacts: every path says what it is, and nothing else looks like it."""

from __future__ import annotations

import re
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from turncredit.config import RolloutConfig, from_mapping
from turncredit.config.layout import (
    SAMPLING,
    Layout,
    fill,
    keys_in,
    of_sft,
    sampled_by,
    sampler_id,
    sampling_name,
    sampling_words,
    shell_pattern,
)
from turncredit.config.stages import artifacts, stages
from turncredit.data import tables
from turncredit.errors import UserError

names = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,20}", fullmatch=True)
starts = st.just("sft") | st.builds("sft_{}".format, st.from_regex(r"[A-Za-z0-9_]{1,20}", fullmatch=True))
samplings = st.builds(
    "{}-t{}k{}T{}".format, starts, st.integers(1, 999), st.integers(1, 64), st.sampled_from([0.7, 1.0])
)
keys = st.fixed_dictionaries(
    {
        "policy": names | samplings,
        "method": names | starts,
        "seed": st.integers(0, 10**6),
        "round": st.integers(1, 999),
        "split": st.sampled_from(["train", "eval"]),
        "judge": st.sampled_from(["rule", "qwen3-8b-think", "gpt-4.1"]),
        "question": st.sampled_from(["role", "progress", "score"]),
        "hidden_policy": st.sampled_from(["sft", "current"]),
        "hidden_position": st.sampled_from(["observation", "action"]),
        "scorer": st.sampled_from(["sft", "hindsight", "implicit-istar"]),
        "continuations": st.sampled_from(["k9", "k32b20000"]),
        "forks": st.sampled_from(["n1", "n16"]),
        "warm_start": starts,
    }
)


@given(keys=keys, name=st.sampled_from(sorted(artifacts())))
def test_a_path_gives_back_the_artifact_and_the_keys_it_was_made_from(keys, name):
    layout = Layout("results/household")
    located = layout.locate(layout.path(name, keys))
    assert located is not None
    assert located.artifact == name
    assert located.keys == {key: keys[key] for key in artifacts()[name].keys}


def test_a_folder_of_an_experiment_may_be_a_link_to_another_disk(tmp_path):
    layout = Layout(tmp_path / "results/household")
    layout.root.mkdir(parents=True)
    (tmp_path / "scratch").mkdir()
    (layout.root / "rollouts").symlink_to(tmp_path / "scratch")
    path = layout.path("turns", policy="rloo", seed=1, round=2)
    located = layout.locate(path)
    assert located is not None
    assert located.keys == layout.locate_round(Path(path).parent) == {"policy": "rloo", "seed": 1, "round": 2}
    (tmp_path / "link").symlink_to(layout.root)
    assert layout.locate(tmp_path / "link/config.json") is not None
    assert layout.locate(tmp_path / "config.json") is None


@given(keys=keys)
def test_no_two_files_of_an_experiment_have_the_same_path(keys):
    others = [pattern for one in stages().values() for pattern in (one.metrics, one.log)]
    patterns = [kind.pattern for kind in artifacts().values()] + others
    paths = [fill(pattern, keys) for pattern in patterns]
    assert len(set(paths)) == len(paths)


@given(keys=keys, stage=st.sampled_from(sorted(stages())))
def test_a_jobs_metrics_say_which_job_it_was(keys, stage):
    found = [
        one.name for one in stages().values() if keys_in(one.metrics, fill(stages()[stage].metrics, keys)) is not None
    ]
    assert found == [stage]


def test_every_table_of_the_layout_has_a_schema():
    assert {kind.schema for kind in artifacts().values() if kind.schema} <= set(tables.SCHEMAS)


def test_files_on_disk_are_found_by_their_keys(tmp_path):
    layout = Layout(tmp_path)
    for method, round_ in (("gigpo", 1), ("gigpo", 2), ("scpo", 2)):
        path = tmp_path / fill(artifacts()["updates"].pattern, {"method": method, "seed": 0, "round": round_})
        path.parent.mkdir(parents=True)
        path.touch()
    (tmp_path / "runs" / "gigpo" / "notes").mkdir()
    assert [found.keys["round"] for found in layout.find("updates", method="gigpo")] == [1, 2]
    assert len(list(layout.find("updates"))) == 3
    assert list(layout.find("credits")) == []


def test_a_rounds_folder_says_whose_turns_or_whose_run_it_holds(tmp_path):
    layout = Layout(tmp_path)
    assert layout.locate_round(tmp_path / "rollouts/sft-t4k4T1.0/seed0/round01") == {
        "policy": "sft-t4k4T1.0",
        "seed": 0,
        "round": 1,
    }
    assert layout.locate_round(tmp_path / "runs/gigpo/seed3/round12") == {"method": "gigpo", "seed": 3, "round": 12}
    for elsewhere in ("runs/gigpo/seed3", "runs/gigpo/seed3/round2", "other/gigpo/seed3/round12", "../x"):
        assert layout.locate_round(tmp_path / elsewhere) is None


def test_several_files_are_one_shell_pattern():
    several = shell_pattern(artifacts()["evals"].pattern, method=["gigpo"], seed=[0, 1], round=[9, 10])
    assert several == "runs/gigpo/seed{0,1}/round{09,10}/evals.parquet"
    assert shell_pattern(artifacts()["turns"].pattern, seed=[0]) == "rollouts/*/seed0/round*/turns.parquet"


def test_a_key_that_is_missing_is_named():
    with pytest.raises(UserError, match="the round is missing"):
        Layout("results/household").path("updates", method="gigpo", seed=0)


def test_an_unknown_artifact_names_the_nearest():
    with pytest.raises(UserError, match="did you mean 'credits'"):
        Layout("results/household").path("credit")


def test_a_path_outside_the_experiment_is_no_artifact(tmp_path):
    assert Layout(tmp_path / "a").locate(tmp_path / "b" / "config.json") is None
    assert Layout(tmp_path).locate(tmp_path / "runs" / "gigpo" / "seed0" / "round2" / "updates.parquet") is None


def test_round_1_is_sampled_by_the_sft_policy_with_the_methods_own_settings():
    hot = {"base": "flat_grpo", "rollout": {"temperature": 1.5}}
    experiment = from_mapping({"define": {"hot": hot}, "rollout": {"tasks": 4, "group_size": 2}})
    assert sampled_by(experiment, "flat_grpo", 1) == "sft-t4k2T1.0"
    assert sampled_by(experiment, "hot", 1) == "sft-t4k2T1.5"
    assert sampled_by(experiment, "hot", 2) == "hot"
    assert of_sft(sampled_by(experiment, "hot", 1))
    assert not of_sft(sampled_by(experiment, "hot", 2))
    assert (sampler_id("sft-t4k2T1.5", 3, 1), sampler_id("hot", 3, 2)) == ("sft", "hot/seed3/round01")


def test_round_1_of_a_method_with_another_agent_is_sampled_by_that_agents_sft_policy():
    define = {"cold": {"base": "flat_grpo", "agent": "plain", "rollout": {"temperature": 0.5}}}
    agents = {"plain": {"name": "window"}}
    experiment = from_mapping({"agents": agents, "define": define, "rollout": {"tasks": 4, "group_size": 2}})
    assert sampled_by(experiment, "cold", 1) == "sft_plain-t4k2T0.5"
    assert sampled_by(experiment, "cold", 2) == "cold"
    assert sampled_by(experiment, "sft_plain", 1) == "sft_plain-t4k2T1.0"
    assert of_sft("sft_plain-t4k2T0.5")
    assert not of_sft("sft_plain")
    assert sampler_id("sft_plain-t4k2T0.5", 3, 1) == "sft_plain"


def test_the_warm_start_of_the_experiments_own_agent_lies_where_it_always_did():
    layout = Layout("results/tiny")
    kinds = ("base", "sft_policy", "sft_log")
    assert [layout.path(kind, warm_start="sft") for kind in kinds] == [
        f"results/tiny/sft/{name}" for name in ("base", "policy", "log.parquet")
    ]
    assert [fill(stages()[stage].metrics, {"warm_start": "sft"}) for stage in ("base", "sft")] == [
        "sft/metrics/base.json",
        "sft/metrics/sft.json",
    ]


@given(st.floats(min_value=1e-12, max_value=1e12))
def test_every_temperature_has_a_name_that_paths_can_have(temperature):
    name = sampling_name(RolloutConfig(temperature=temperature))
    assert re.fullmatch(SAMPLING, name)
    assert float(sampling_words(name).rpartition(" ")[2]) == temperature
    assert "e" in str(temperature) or name.endswith(f"T{temperature}")  # as results of before have it
