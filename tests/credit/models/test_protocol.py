"""A new kind of credit model is one file, and none of them needs torch before it is used."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.credit.models.synthetic import HIDDEN_SIZE, as_tables, noise_rollouts
from turncredit.config import from_mapping
from turncredit.credit import METHODS, models
from turncredit.credit.models import protocol, replay, train
from turncredit.credit.models.protocol import ModelSettings, load_kind
from turncredit.credit.models.settings import (
    kinds,
    learns_from_credits,
    model_settings,
    replay_rounds,
    required_capabilities,
)
from turncredit.credit.parts import lookup
from turncredit.errors import UserError

ONE_FILE = '''
"""The mean reward so far, learned as one number; its settings, its network and its loss."""

from pydantic import Field

from turncredit.credit.models.protocol import ModelKind, ModelSettings


class ConstantSettings(ModelSettings):
    start: float = 0.0
    lr: float = Field(0.1, gt=0)
    epochs: int = 3
    batch: int = 2


class Constant(ModelKind):
    last_round_only = True

    def network(self, width, settings):
        import torch
        from torch import nn

        class Number(nn.Module):
            def __init__(self):
                super().__init__()
                self.number = nn.Parameter(torch.tensor(settings.start))

            def forward(self, rollouts):
                return self.number.expand(rollouts.present.shape)

        return Number()

    def losses(self, network, batch, settings):
        return {"return": (network(batch)[:, 0] - batch.returns).square().mean()}

    def requires(self, settings):
        return ("distance",) if settings.start else ()

    def measures(self, network, view, rollouts, value_N, weight_N, rng):
        return {"constant": float(network.number)}


KIND = Constant(ConstantSettings())
'''


@pytest.fixture
def constant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The kind `constant` in a file that the package finds beside its own."""
    (tmp_path / "constant.py").write_text(ONE_FILE)
    monkeypatch.setattr(models, "__path__", [*models.__path__, str(tmp_path)])
    protocol._kind_of_module.cache_clear()
    yield
    protocol._kind_of_module.cache_clear()
    sys.modules.pop("turncredit.credit.models.constant", None)
    vars(models).pop("constant", None)


def test_only_models_that_say_so_are_used_before_their_first_training() -> None:
    untrained = {name for name, kind in kinds().items() if kind.ready(0, kind.settings)}
    assert untrained == {"critic", "turnrd", "turnrd_film"}


@pytest.mark.usefixtures("constant")
def test_one_file_makes_a_model_that_is_trained_applied_and_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = METHODS["turn_value"].map_parts(lambda part: replace(part, model="constant") if part.model else part)
    monkeypatch.setitem(lookup.builtin().methods, "turn_value", changed)
    experiment = from_mapping({"define": {"mine": {"base": "turn_value", "model": {"start": 0.5, "epochs": 20}}}})
    kind, settings = model_settings(experiment, "mine")
    assert (kind, settings.model_dump()["start"]) == ("constant", 0.5)
    assert replay_rounds(kind, 4) == [3]
    assert not learns_from_credits(kind)
    assert required_capabilities(experiment, "mine") == ("distance",)
    with pytest.raises(UserError, match=r"unknown key 'define.mine.model.strat' .did you mean 'start'"):
        model_settings(from_mapping({"define": {"mine": {"base": "turn_value", "model": {"strat": 1}}}}), "mine")

    view, rollouts = replay.load(*as_tables(noise_rollouts(lengths=[3, 4, 2, 5], returns=[1] * 4)))
    given = {"width": HIDDEN_SIZE, "seed": 0}
    model, _ = train.next_model(kind, settings, previous=None, rounds=[], round=1, **given)
    table, metrics = train.values_table(model, view, rollouts, seed=0, round=1)
    assert metrics == {"trained": 0.0}
    assert table.column("value").null_count == table.num_rows
    model, _ = train.next_model(kind, settings, previous=model, rounds=[rollouts], round=2, **given)
    train.save(model, tmp_path)
    table, metrics = train.values_table(train.load(tmp_path), view, rollouts, seed=0, round=2)
    assert metrics["constant"] == pytest.approx(1.0, abs=0.1)
    assert set(table.column("model").to_pylist()) == {"constant"}
    assert np.allclose(table.column("value").to_numpy(), metrics["constant"])
    assert table.column("weight").null_count == table.num_rows


def test_a_model_of_another_package_is_named_by_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "their_models"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "constant.py").write_text(ONE_FILE)
    (folder / "broken.py").write_text("raise RuntimeError('no\\nway')")
    monkeypatch.syspath_prepend(tmp_path)
    model = train.fresh("their_models.constant", load_kind("their_models.constant").settings, HIDDEN_SIZE, seed=0)
    assert not model.ready
    with pytest.raises(UserError, match=r"'their_models\.broken' cannot be imported: RuntimeError: no way"):
        load_kind("their_models.broken")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "unknown credit model 'nothing': turncredit.credit.models.nothing: there is no such module"),
        ("replay", "unknown credit model 'replay': turncredit.credit.models.replay: it has no ModelKind called KIND"),
        ("nowhere.at_all", "the credit model 'nowhere.at_all' cannot be imported: ModuleNotFoundError"),
    ],
)
def test_a_kind_that_there_is_not_is_one_line(name: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        load_kind(name)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_the_kinds_say_what_they_learn_from_and_what_they_require() -> None:
    assert {name for name, kind in kinds().items() if kind.last_round_only} == {"critic", "value_head"}
    assert {name for name, kind in kinds().items() if kind.learns_from_credits} == {"critic"}
    assert {name for name, kind in kinds().items() if kind.reads_pairs} == {"agentprm"}
    neither = {"lambda_value": 0, "lambda_progress": 0}
    for model, wanted in (({}, ("progress",)), (neither, ()), ({"lambda_value": 0}, ("progress",))):
        experiment = from_mapping({"define": {"mine": {"base": "has_turnrd", "model": model}}})
        assert required_capabilities(experiment, "mine") == wanted


AS_PUBLISHED = {
    "lambda_value": 1.0,
    "lambda_progress": 0.01,
    "lambda_rank": 0.1,
    "hidden_policy": "current",
    "hidden_position": "action",
}
FORMER = {
    "lambda_value": 0.0,
    "lambda_progress": 0.0,
    "lambda_rank": 0.1,
    "hidden_policy": "sft",
    "hidden_position": "observation",
}


@pytest.mark.parametrize(
    ("method", "film", "wanted"),
    [
        ("has_turnrd", False, AS_PUBLISHED),
        ("has_turnrd_film", True, AS_PUBLISHED),
        ("has_turnrd_outcome_only", False, FORMER),
        ("has_turnrd_film_outcome_only", True, FORMER),
    ],
)
def test_turnrd_is_the_papers_table_6_and_its_ablation_is_without_progress(
    method: str, film: bool, wanted: dict[str, object]
) -> None:
    _, settings = model_settings(from_mapping({"methods": [method]}), method)
    assert {name: settings.model_dump()[name] for name in wanted} == wanted
    assert settings.model_dump()["film"] is film
    assert required_capabilities(from_mapping({}), method) == (("progress",) if wanted["lambda_value"] else ())


def test_a_methods_own_model_settings_are_over_the_kinds_and_under_the_configurations() -> None:
    def settings(model: dict[str, object], **params: object) -> dict[str, object]:
        entry = {"base": "has_turnrd_outcome_only", "params": params, "model": model}
        return model_settings(from_mapping({"define": {"mine": entry}}), "mine")[1].model_dump()

    kind = load_kind("turnrd").settings.model_dump()
    own = METHODS["has_turnrd_outcome_only"].model_settings
    assert settings({}) == {**kind, **own}
    assert settings({"lambda_value": 0.5, "hidden": 64}) == {**kind, **own, "lambda_value": 0.5, "hidden": 64}
    assert settings({}, turn_term="has_turnrd") == kind
    with pytest.raises(UserError, match=r"unknown key 'define.mine.model.lambda_valu' .did you mean 'lambda_value'"):
        settings({"lambda_valu": 1})


def test_a_composed_method_brings_the_model_settings_of_its_parts() -> None:
    entry = {"base": "gigpo", "params": {"turn_term": "has_turnrd_film_outcome_only"}}
    kind, settings = model_settings(from_mapping({"define": {"mine": entry}}), "mine")
    assert kind == "turnrd_film"
    assert settings.model_dump()["lambda_value"] == 0.0
    assert METHODS["gigpo"].model_settings == {}


def test_settings_are_checked_without_torch() -> None:
    code = (
        "import sys\n"
        "from turncredit.config import from_mapping\n"
        "from turncredit.credit.models.settings import kinds, model_settings\n"
        "kinds()\n"
        "model_settings(from_mapping({'define': {'m': {'base': 'has_turnrd_film', 'model': {'layers': 1}}}}), 'm')\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_settings_are_recorded_under_the_names_of_older_versions_and_read_back(tmp_path: Path) -> None:
    kind = load_kind("turn_value")
    settings = kind.settings_from({"hidden_policy": "current", "hidden_position": "action"})
    recorded = settings.recorded()
    assert (recorded["read"], recorded["point"]) == ("current", "action")
    assert kind.recorded_settings(recorded) == settings
    train.save(train.fresh("turn_value", settings, HIDDEN_SIZE, seed=0), tmp_path)
    assert json.loads((tmp_path / train.RECORD).read_text())["settings"] == recorded


@pytest.mark.parametrize(("old", "new"), [("read", "hidden_policy"), ("point", "hidden_position")])
def test_an_old_setting_is_refused_with_its_new_name(old: str, new: str) -> None:
    experiment = from_mapping({"define": {"mine": {"base": "turn_value", "model": {old: "current"}}}})
    with pytest.raises(UserError, match=rf"{old} is now {new}: write model\.{new}"):
        model_settings(experiment, "mine")
    with pytest.raises(UserError, match=rf"the setting {old} of credit models is now {new}"):
        type("Mine", (ModelSettings,), {"__annotations__": {old: "str"}, old: "action"})
