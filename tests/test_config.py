"""The configuration: closed, and a mistake is one line that names the key and the nearest valid one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests import presets
from tests.helpers import as_if_simulators_were_here
from turncredit import config
from turncredit.data.seeding import derive_seed, generator
from turncredit.errors import UserError, nearest
from turncredit.pipeline import checks

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
@pytest.mark.parametrize("name", presets.PRESETS)
def test_every_preset_is_valid_on_top_of_the_default(name, monkeypatch):
    monkeypatch.chdir(ROOT)  # a preset names files of methods as the pipeline finds them
    as_if_simulators_were_here(monkeypatch)
    experiment = presets.experiment(name)
    checks.check(experiment)
    assert experiment.experiment != "household", "a preset keeps its results apart from the default's"


@pytest.mark.parametrize("name", presets.PRETRAINED)
def test_a_preset_for_real_weights_inherits_nothing_of_the_small_regime(name):
    experiment = presets.experiment(name)
    assert experiment.demos.slips == 0
    assert experiment.sft.epochs == 0 or experiment.sft.optimizer == "adamw"
    assert experiment.update.optimizer == "adamw"
    assert (experiment.update.warmup_steps, experiment.update.final_lr) == (0, 1.0)


def test_a_pretrained_policy_never_trains_with_the_values_of_the_small_one(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    mine, entries = tmp_path / "mine.yaml", ["policy={source: org/model}"]
    unset = "agent.max_response_tokens, sft.optimizer, sft.lr, update.lr, update.final_lr would be those of config.yaml"
    with pytest.raises(UserError, match=rf"^config.yaml, --config: .* the pretrained org/model, but {unset}"):
        config.load(["config.yaml"], entries)
    mine.write_text("agent: {max_response_tokens: 64}\nsft: {epochs: 0}\nupdate: {lr: 1.0e-6}")
    with pytest.raises(UserError, match=r"org/model, but update\.final_lr would be"):
        config.load(["config.yaml", mine], entries)
    mine.write_text("agent: {max_response_tokens: 64}\nsft: {epochs: 0}\nupdate: {lr: 1.0e-6, final_lr: 1}")
    assert config.load(["config.yaml", mine], entries).update.lr == 1e-6
    mine.write_text("agent: {max_response_tokens: 64}\nsft: {epochs: 0}\nmethods: [sft]")  # nothing is trained
    assert config.load(["config.yaml", mine], entries).methods == ("sft",)


def test_a_config_yaml_for_a_pretrained_policy_keeps_its_values(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text("policy: {source: org/model}\nupdate: {lr: 1.0e-5}", encoding="utf-8")
    assert config.load(["config.yaml"], ["rounds=2"]).update.lr == 1e-5


def test_files_are_merged_key_by_key(tmp_path):
    (tmp_path / "a.yaml").write_text(yaml.safe_dump({"rounds": 4, "rollout": {"tasks": 3, "group_size": 2}}))
    (tmp_path / "b.yaml").write_text(yaml.safe_dump({"rollout": {"tasks": 5}}))
    experiment = config.load([tmp_path / "a.yaml", tmp_path / "b.yaml"])
    assert (experiment.rounds, experiment.rollout.tasks, experiment.rollout.group_size) == (4, 5, 2)


def test_settings_are_read_only_of_what_is_chosen_whatever_file_they_come_from(monkeypatch):
    """So a file that chooses another environment or agent may be laid over one that has settings of its own."""
    monkeypatch.chdir(ROOT)
    base = {"env": {"household": {"horizon": 9}}, "agent": {"name": "window", "window": {"history": 2}}}
    assert config.from_mapping(base).env.chosen().settings == {"horizon": 9}
    assert config.from_mapping(base).agent.chosen().settings == {"history": 2}
    counting = {"name": "examples/counting_env.py", "counting": {"longest": 3}}
    other = {"env": counting, "agent": {"name": "transcript"}, "audit": {"rounds": []}, "demos": {"slips": 0}}
    experiment = config.from_mapping(config.merge(base, other))
    checks.check(experiment)
    assert experiment.env.chosen().settings == {"longest": 3}
    assert experiment.agent.chosen().settings == {}
    assert config.from_mapping(experiment.model_dump(mode="json")) == experiment


def test_the_last_three_rounds_are_always_evaluated():
    experiment = config.from_mapping({"rounds": 12, "eval": {"every": 7}})
    assert experiment.eval_rounds() == [7, 10, 11, 12]
    assert config.from_mapping({"rounds": 2}).eval_rounds() == [1, 2]


def test_a_method_overrides_its_own_rollouts_only():
    experiment = config.from_mapping({"define": {"small": {"base": "rloo", "rollout": {"group_size": 4}}}})
    assert experiment.section_for("small", "rollout").group_size == 4
    assert experiment.section_for("flat_grpo", "rollout").group_size == 8


def test_nearest_offers_nothing_where_nothing_is_close():
    assert nearest("zzz", ["alpha"]) == ""
    assert nearest("alpah", ["alpha", "beta"]) == " (did you mean 'alpha'?)"


def test_purposes_have_generators_of_their_own():
    assert len({derive_seed(0, "a"), derive_seed("0", "a"), derive_seed(0, "b"), derive_seed(1, "a")}) == 4
    assert 0 <= derive_seed(0, "a") < 2**63
    draws = [generator(1, name).random() for name in ("x", "x", "y")]
    assert draws[0] == draws[1]
    assert draws[0] != draws[2]


def test_null_on_the_command_line_is_null_also_inside_a_block():
    entries = ["policy={revision: null}", "tracking={uri: null}", "env={timeout: null}", "judge={thinking: null}"]
    read = config.load([], entries)
    assert (read.policy.revision, read.tracking.uri, read.env.timeout, read.judge.thinking) == (None,) * 4


def test_settings_of_a_chat_template_keep_their_types_on_the_command_line():
    settings = "{enable_thinking: false, budget: 3, share: 0.5, effort: high, limit: inf}"
    read = config.load([], [f"policy={{source: org/model, chat_template: {settings}}}"]).policy.chat_template
    assert read["enable_thinking"] is False  # a template takes the text for true
    assert read == {"enable_thinking": False, "budget": 3, "share": 0.5, "effort": "high", "limit": "inf"}
    judge = config.load([], ["judge={kind: llm, chat_template: {low_effort: true}}"]).judge
    assert judge.chat_template == {"low_effort": True}


def test_a_mistake_is_said_to_be_in_the_last_file_that_sets_the_key(tmp_path):
    for name, text in (("a.yaml", "rounds: 3"), ("b.yaml", "update: {lr: -1}"), ("c.yaml", "seeds: [0]")):
        (tmp_path / name).write_text(text)
    files = [tmp_path / name for name in ("a.yaml", "b.yaml", "c.yaml")]
    with pytest.raises(UserError, match=rf"^{tmp_path / 'b.yaml'}: update.lr: input should be greater than 0"):
        config.load(files)
    with pytest.raises(UserError, match=r"^--config: update.lr: input should be"):
        config.load(files, ["update={lr: -2}"])
    (tmp_path / "c.yaml").write_text("metods: [x]")
    with pytest.raises(UserError, match=rf"^{tmp_path / 'c.yaml'}: unknown key 'metods'"):
        config.load([files[0], files[2]])
    (tmp_path / "c.yaml").write_text("update: {learning_rate: 1}\nrollot: {tasks: 4}")
    with pytest.raises(UserError, match=r"'update.learning_rate'; choose one of .*, lr, .* \(also wrong: rollot\)$"):
        config.load([files[0], files[2]])


def test_a_mistake_of_several_keys_is_said_to_be_in_all_files_and_never_in_a_sweep_that_is_not_there(tmp_path):
    (tmp_path / "a.yaml").write_text("tasks: {eval: 8}")
    needed = "evaluations need 768 held-out games, 256 in each of the rounds 2, 3, 4, but tasks.eval is 8; raise it"
    with pytest.raises(UserError, match=rf"^config.yaml, {tmp_path / 'a.yaml'}: {needed}"):
        config.load(["config.yaml", tmp_path / "a.yaml"])


def test_a_grid_is_one_method_for_every_combination_of_its_values():
    experiment = config.from_mapping(
        {
            "methods": ["rloo", "tuned"],
            "define": {
                "tuned": {
                    "update": {"epochs": 2},
                    "grid": {
                        "base": ["gigpo", "hgpo"],
                        "update.lr": [1.0e-4, 0.02],
                        "rollout.group_size": {"small": 4},
                    },
                }
            },
            "audit": {"run": "tuned", "methods": ["tuned", "scpo"], "rounds": [1]},
        }
    )
    names = [f"tuned_{base}_lr_{lr}_small" for base in ("gigpo", "hgpo") for lr in ("0_0001", "0_02")]
    assert experiment.methods == ("rloo", *names)
    assert experiment.audit.run == tuple(names)
    assert experiment.audit.methods == (*names, "scpo")
    assert [experiment.define[name].base for name in names] == ["gigpo", "gigpo", "hgpo", "hgpo"]
    assert [experiment.section_for(name, "update").lr for name in names] == [1.0e-4, 0.02, 1.0e-4, 0.02]
    assert {experiment.section_for(name, "update").epochs for name in names} == {2}
    assert {experiment.section_for(name, "rollout").group_size for name in names} == {4}


def test_a_grid_that_grows_keeps_its_methods_and_a_resolved_one_is_itself():
    def with_rates(*rates):
        define = {"tuned": {"base": "rloo", "grid": {"update.lr": list(rates)}}}
        return config.from_mapping({"methods": ["tuned"], "define": define})

    small, large = with_rates(0.1, 0.2), with_rates(0.1, 0.2, 0.3)
    assert large.methods[:2] == small.methods
    assert large.define[small.methods[1]] == small.define[small.methods[1]]
    assert config.from_mapping(large.model_dump()) == large
    assert with_rates("1.0e-1", 2e-1).methods == small.methods


def test_a_sweep_is_one_experiment_for_every_combination_of_its_values(tmp_path):
    grid = {"policy.scratch.hidden": [64, 128], "define.tuned.params.norm": {"one": "none"}, "rounds": [3]}
    given = {"experiment": "size", "define": {"tuned": {"base": "rloo"}}, "rounds": 5, "sweep": {"grid": grid}}
    (file := tmp_path / "sweep.yaml").write_text(json.dumps(given))
    names = ["size_hidden_64_one_rounds_3", "size_hidden_128_one_rounds_3"]
    assert config.names_in_sweep([file]) == names
    for name, hidden in zip(names, (64, 128), strict=True):
        assert config.names_in_sweep([file], [f"sweep={{only: {name}}}"]) == []
        experiment = config.load([file], [f"sweep={{only: {name}}}"])
        assert (experiment.experiment, experiment.policy.scratch.hidden, experiment.rounds) == (name, hidden, 3)
        assert experiment.define["tuned"].params == {"norm": "none"}
        assert experiment.sweep is None
    (file := tmp_path / "none.yaml").write_text("rounds: 3")
    assert config.names_in_sweep([file]) == []
    with pytest.raises(UserError, match=r"^.*none.yaml, --config: sweep.grid.rounds: give a list of values"):
        config.names_in_sweep([file], ["sweep={grid: {rounds: 3}}"])


def test_a_sweep_lists_experiments_whose_keys_are_merged_as_those_of_a_file(tmp_path):
    listed = {"long": {"rounds": 9, "policy.scratch.layers": 3, "policy": {"scratch": {"heads": 4}}}, "plain": None}
    given = {"experiment": "size", "rounds": 5, "sweep": {"experiments": listed}}
    (file := tmp_path / "sweep.yaml").write_text(json.dumps(given))
    assert config.names_in_sweep([file]) == ["size_long", "size_plain"]
    long, plain = (config.load([file], [f"sweep={{only: size_{name}}}"]) for name in listed)
    assert (long.rounds, long.policy.scratch.layers, long.policy.scratch.heads) == (9, 3, 4)
    assert plain == config.from_mapping({"experiment": "size_plain", "rounds": 5})


def test_a_key_that_a_list_of_experiments_would_win_over_is_refused_and_changed_in_the_list(tmp_path):
    listed = {"long": {"rounds": 9, "update.lr": 0.1}, "short": {"rounds": 2}}
    given = {"experiment": "size", "rounds": 5, "seeds": [0], "sweep": {"experiments": listed, "only": "size_long"}}
    (file := tmp_path / "sweep.yaml").write_text(json.dumps(given))
    (later := tmp_path / "later.yaml").write_text(json.dumps({"update": {"lr": 0.2}}))
    (default := tmp_path / "default.yaml").write_text(json.dumps({"rounds": 4, "seeds": [0, 1]}))
    with pytest.raises(UserError, match=r"^update\.lr is 0\.2,.*'size_long' sets it to 0\.1.*long: \{update\.lr: 0\.2"):
        config.load([file, later])
    for rounds in (3, 5):
        with pytest.raises(UserError, match=f"^rounds is {rounds}, but"):
            config.load([default, file], [f"rounds={rounds}"])
    made = config.load([default, file], ["seeds=[1]", "rounds=9", "sweep={experiments: {long: {update.lr: 0.3}}}"])
    assert (made.rounds, made.seeds, made.update.lr) == (9, (1,), 0.3)


def test_every_listed_experiment_of_a_sweep_has_every_combination_of_its_grid_whose_values_win(tmp_path):
    swept = {"experiments": {"a": {"rounds": 9}, "b": {"update.lr": 1.0}}, "grid": {"update.lr": [0.1, 0.2]}}
    (file := tmp_path / "sweep.yaml").write_text(json.dumps({"experiment": "x", "sweep": swept}))
    names = ["x_a_lr_0_1", "x_a_lr_0_2", "x_b_lr_0_1", "x_b_lr_0_2"]
    assert config.names_in_sweep([file]) == names
    made = [config.load([file], [f"sweep={{only: {name}}}"]) for name in names]
    assert [(one.rounds, one.update.lr) for one in made] == [(9, 0.1), (9, 0.2), (12, 0.1), (12, 0.2)]


def test_a_mapping_in_a_sweep_is_merged_as_one_in_a_file_is():
    given = {"policy": {"scratch": {"layers": 3}}, "sweep": {"grid": {"policy.scratch": {"wide": {"hidden": 64}}}}}
    experiment = config.from_mapping(config.merge(given, {"sweep": {"only": "household_wide"}}))
    assert (experiment.policy.scratch.layers, experiment.policy.scratch.hidden) == (3, 64)
