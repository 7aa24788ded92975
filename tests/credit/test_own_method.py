"""A file of one's own brings whole methods: parts that declare what they read, and a learned model."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from benchmarks.credit import synthetic
from tests import tiny
from tests.credit.models.synthetic import HIDDEN_SIZE, as_tables, noise_rollouts
from tests.credit.tables import numbers
from turncredit.cli.main import app
from turncredit.credit import METHODS, compute, resolve
from turncredit.credit.models import replay, train
from turncredit.credit.models.protocol import load_kind
from turncredit.credit.models.settings import model_settings
from turncredit.data import tables
from turncredit.data.provenance import file_hash
from turncredit.errors import UserError
from turncredit.pipeline import checks
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.plan import Plan

TABLE, SIDE = synthetic.tables(synthetic.rows(2, 3, 6, seed=0))
EXAMPLE = Path(__file__).parents[2] / "examples" / "judged_value.py"
OWN = '''
from turncredit.credit import Method, Part
from turncredit.credit.flat_grpo import FLAT_GRPO


def later(turns, base_N, *, rate: float = 0.1):
    """More for later turns."""
    return (1 + rate * turns.turn_N) * base_N


def scored(turns, *, floor=0.5):
    return floor + turns.side_table("labels").numbers("score", nulls=True)


LATER = Part("later", later, "turn_term", reads=("observation",), requires=("progress",))
SCORED = Part("scored", scored, "estimator", asks="score")
METHOD = Method("mine", "flat GRPO, more for later turns", FLAT_GRPO, turn_term=LATER)
'''


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file `own.py` in the working folder."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "own.py"
    file.write_text(OWN)
    return file


@pytest.mark.usefixtures("own")
def test_a_method_in_a_file_declares_what_it_reads_and_has_its_parts_parameters() -> None:
    method = resolve({"credit": "own.py:METHOD", "params": {"rate": "2"}}, "named")
    assert (method.name, method.reads, method.requires) == ("named", ("observation",), ("progress",))
    assert method.declares_reads
    grpo_N = numbers(compute(TABLE, METHODS["flat_grpo"]))
    np.testing.assert_allclose(numbers(compute(TABLE, method)), (1 + 2 * numbers(TABLE, "turn")) * grpo_N)


@pytest.mark.usefixtures("own")
def test_a_part_in_a_file_is_a_method_if_it_is_an_estimator() -> None:
    method = resolve("own.py:SCORED")
    assert (method.name, method.needs, method.asks) == ("scored", ("labels",), "score")
    assert np.isfinite(numbers(compute(TABLE, method, SIDE))).all()
    with pytest.raises(UserError, match=r"^own\.py:LATER: is a turn_term, which needs an estimator; write a Method"):
        resolve("own.py:LATER")
    with pytest.raises(UserError, match=r"own\.py: has no function, Part or Method 'LATR' \(did you mean 'LATER'\?\)"):
        resolve("own.py:LATR")
    with pytest.raises(UserError, match=r"'own'; it has later, scored, LATER, SCORED, METHOD: write own\.py:later"):
        resolve("own.py")


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("own_estimator", ["own.py:SCORED", "own.py:scored", lambda turns: turns.reward_N])
def test_another_estimator_in_place_of_ones_own_is_refused(own_estimator) -> None:
    with pytest.raises(UserError, match="is the estimator, and estimator='gigpo' would leave nothing of it; remove"):
        resolve({"credit": own_estimator, "params": {"estimator": "gigpo"}})
    assert resolve({"credit": own_estimator, "params": {"turn_term": "has_judge"}}).turn_term is not None
    of_terms = resolve({"credit": "own.py:METHOD", "params": {"estimator": "gigpo"}})
    assert [part.name for part in of_terms.parts] == ["gigpo", "later"]


@pytest.mark.usefixtures("own")
def test_a_part_in_a_file_can_be_put_into_any_method() -> None:
    for name in ("own.py:LATER", "own.py:METHOD"):
        method = resolve({"base": "gigpo", "params": {"turn_term": name, "later.rate": 0.3}})
        assert [part.name for part in method.parts] == ["gigpo", "later"]
        assert method.requires == ("progress",)
        np.testing.assert_allclose(
            numbers(compute(TABLE, method)),
            (1 + 0.3 * numbers(TABLE, "turn")) * numbers(compute(TABLE, METHODS["gigpo"])),
        )
    assert resolve({"base": "has_judge", "params": {"estimator": "own.py:scored"}}).estimator.name == "scored"
    experiment = tiny.experiment(methods=["m"], define={"m": {"base": "gigpo", "params": {"turn_term": name}}})
    at = JobKeys(policy="m", method="m", seed=0, round=2)
    assert Plan(experiment).slice("credit", at).code == file_hash("own.py")
    assert Plan(experiment).inputs("credit", at)["method"] == "own.py"
    for params, message in (
        (
            {"turn_term": "own.py:SCORED"},
            "turn_term 'own.py:SCORED' has no parts of the kind turn_term; name",
        ),
        (
            {"estimator": "own.py:METHOD"},
            "estimator 'own.py:METHOD' has no parts of the kind estimator; name",
        ),
        ({"turn_term": "own.py:LATR"}, "own.py: has no function, Part or Method 'LATR' (did you mean 'LATER'?)"),
    ):
        with pytest.raises(UserError, match=re.escape(message)):
            resolve({"base": "gigpo", "params": params})


@pytest.mark.usefixtures("own")
def test_the_record_of_a_table_of_credits_has_the_files_hash() -> None:
    pq.write_table(TABLE, "turns.parquet")
    for name, coded in (("own.py:METHOD", True), ("flat_grpo", False)):
        command = ["credit", "--method", name, "--turns", "turns.parquet", "--out", f"{coded}.parquet"]
        assert CliRunner().invoke(app, command).exit_code == 0
        config = tables.metadata(Path(f"{coded}.parquet"))["config"]
        assert config.get("code") == (file_hash("own.py") if coded else None)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("(1 + rate * turns.turn_N)", "turns.lengths", "own.py:8: later: AttributeError: 'Turns' object has no"),
        ("(1 + rate * turns.turn_N) * base_N", "[1]", "own.py:later: column 'advantage' has shape (1,)"),
        ("turns, base_N, *", "turns, *", "own.py:later: takes no base_N; write def later(turns, base_N, *, parameter="),
    ],
)
def test_an_error_in_a_part_of_a_file_names_its_line(own: Path, old: str, new: str, message: str) -> None:
    own.write_text(OWN.replace(old, new), encoding="utf-8")
    with pytest.raises(UserError) as caught:
        compute(TABLE, resolve("own.py:METHOD"))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_function_that_reads_labels_is_told_before_any_job_to_become_a_method(own: Path) -> None:
    experiment = tiny.experiment(methods=["m"], define={"m": {"credit": "own.py:scored"}})
    said = r"define\.m: scored reads labels, but a function in a file gets turns and measures only; write a Method that"
    with pytest.raises(UserError, match=said):
        checks.check(experiment)
    for entry in ({"credit": "own.py:SCORED"}, {"credit": "own.py:scored", "params": {"turn_term": "has_judge"}}):
        assert checks.check(tiny.experiment(methods=["m"], define={"m": entry})) is None  # these get labels
    own.write_text(OWN.replace('"labels"', '"measures"'), encoding="utf-8")
    assert checks.check(experiment) is None


def test_the_example_declares_labels_log_probabilities_and_a_model_in_its_own_file(monkeypatch) -> None:
    monkeypatch.chdir(EXAMPLE.parents[1])
    entry = {"credit": "examples/judged_value.py:METHOD", "model": {"epochs": 40}}
    experiment = tiny.experiment(methods=["mine"], define={"mine": entry})
    assert checks.check(experiment) is None
    method = resolve(experiment.definition("mine"), "mine")
    assert (method.needs, method.asks, method.reads) == (("labels", "values"), "score", ("response_logprobs",))
    kind, settings = model_settings(experiment, "mine")
    assert (kind, settings.model_dump()["epochs"]) == ("examples/judged_value.py", 40)
    result = CliRunner().invoke(app, ["methods", entry["credit"]])
    assert "reads reward, response_logprobs; side table labels and values" in result.output


def test_the_model_of_the_example_learns_and_is_loaded_from_its_file(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(EXAMPLE.parents[1])
    name = "examples/judged_value.py"
    kind = load_kind(name)
    view, rollouts = replay.load(*as_tables(noise_rollouts(lengths=[3, 4, 2, 5], returns=[1] * 4)))
    settings = kind.settings_from({"epochs": 60, "batch": 2})
    model = train.fresh(name, settings, HIDDEN_SIZE, seed=0)
    train.train(model, [rollouts], seed=0, round=2)
    train.save(model, tmp_path)
    table, metrics = train.values_table(train.load(tmp_path), view, rollouts, seed=0, round=2)
    assert set(table.column("model").to_pylist()) == {name}
    assert metrics["value_mean"] == pytest.approx(1.0, abs=0.2)
    changed = EXAMPLE.read_text(encoding="utf-8")
    for old, new, line in (
        ("[:, None]", "[:, Nothing]", r"own\.py:\d+: NameError: name 'Nothing' is not defined$"),
        ("nn.Linear(width, 1)", "nn.Linear(widths, 1)", r"own\.py:\d+: NameError: name 'widths' is not defined$"),
        (
            "return network(batch.hidden)",
            "return network(batch.hiddens)",
            r"own\.py:\d+: AttributeError: .* 'hiddens'$",
        ),
    ):
        (tmp_path / "own.py").write_text(changed.replace(old, new))
        own_kind, given = str(tmp_path / "own.py"), {"width": HIDDEN_SIZE, "seed": 0}
        with pytest.raises(UserError, match=line):  # noqa: PT012
            model, _ = train.next_model(own_kind, settings, previous=None, rounds=[], round=1, **given)
            train.next_model(own_kind, settings, previous=model, rounds=[rollouts], round=2, **given)
    with pytest.raises(UserError, match=r"^examples/novelty\.py: has no ModelKind called KIND; declare it as KIND"):
        load_kind("examples/novelty.py")


@pytest.mark.parametrize("setting", ["lr", "epochs", "batch"])
def test_a_model_whose_settings_lack_what_the_training_reads_is_refused_before_any_job(
    setting: str, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = re.sub(rf"    {setting}: .*\n", "", EXAMPLE.read_text(encoding="utf-8"))
    (tmp_path / "own.py").write_text(text, encoding="utf-8")
    experiment = tiny.experiment(methods=["m"], define={"m": {"credit": "own.py:METHOD"}})
    with pytest.raises(UserError, match=rf"own\.py: Settings has no {setting}, which the training reads; add it"):
        checks.check(experiment)


@pytest.mark.parametrize("setting", ["epochs", "batch"])
def test_a_model_with_minibatches_of_its_own_needs_no_setting_for_them(
    setting: str, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = "class Outcome(ModelKind):\n    def minibatches(self, sizes, settings, steps, rng):\n        yield [0]\n"
    text = EXAMPLE.read_text(encoding="utf-8").replace("class Outcome(ModelKind):\n", own)
    (tmp_path / "own.py").write_text(re.sub(rf"    {setting}: .*\n", "", text), encoding="utf-8")
    checks.check(tiny.experiment(methods=["m"], define={"m": {"credit": "own.py:METHOD"}}))
