"""What playing needs and is not here, a package or the files of `source: real`, is refused before any job."""

from __future__ import annotations

import json

import pytest

from tests import tiny
from turncredit.cli import configured
from turncredit.cli.plan import lines_of
from turncredit.config import Experiment
from turncredit.envs.household.real import RELEASE
from turncredit.envs.virtualhome import engine
from turncredit.envs.webshop import catalogue
from turncredit.errors import UserError
from turncredit.pipeline import checks

#: Each environment with released data: the variable that names their folder, and what is said without it.
DATA = {
    "household": ("ALFWORLD_DATA", "real household games need a folder: fetch the games with `alfworld-download`"),
    "webshop": ("WEBSHOP_DATA", "env.webshop: source 'real' needs the original's files; set data_root"),
    "virtualhome": ("VIRTUALHOME_DATA", "env.virtualhome.source is real: set env.virtualhome.data_root"),
}
PACKAGE = "the environment 'virtualhome' needs the package virtualhome 2.3.0: pip install --no-deps virtualhome==2.3.0"


def played(name: str, **settings: str) -> Experiment:
    """The tiny experiment in this environment."""
    return tiny.experiment(env={"name": name, name: settings}, methods=["flat_grpo"], audit={"rounds": []})


def refusal(experiment: Experiment) -> str:
    """The line with which an experiment is refused."""
    with pytest.raises(UserError) as refused:
        checks.check(experiment)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.fixture
def package(monkeypatch):
    """VirtualHome's package, as if it were installed."""
    monkeypatch.setattr(engine, "package", lambda: None)


@pytest.fixture
def no_package(monkeypatch):
    """VirtualHome's package is not installed."""
    monkeypatch.setattr(engine, "find_spec", lambda _: None)
    monkeypatch.setattr(engine, "package", engine.package.__wrapped__)  # whatever is in its cache


@pytest.mark.parametrize("name", DATA)
@pytest.mark.usefixtures("package")
def test_released_data_without_a_folder_are_refused_in_one_line(name, monkeypatch):
    variable, message = DATA[name]
    monkeypatch.delenv(variable, raising=False)
    assert refusal(played(name, source="real")).startswith(message)
    checks.check(played(name, source="real"), installed=False)
    checks.check(played(name))  # generated tasks need none


@pytest.mark.parametrize("name", DATA)
@pytest.mark.usefixtures("package")
def test_a_folder_of_released_data_that_is_not_there_is_named(name, monkeypatch, tmp_path):
    nowhere = str(tmp_path / "nowhere")
    assert nowhere in refusal(played(name, source="real", data_root=nowhere))
    monkeypatch.setenv(DATA[name][0], nowhere)
    assert nowhere in refusal(played(name, source="real"))


@pytest.mark.usefixtures("package")
def test_a_folder_with_the_released_data_is_taken(tmp_path):
    (tmp_path / RELEASE).mkdir()
    for files in (catalogue.PRODUCTS, catalogue.ATTRIBUTES, (catalogue.HUMAN,)):
        (tmp_path / files[0]).touch()
    for name in DATA:
        checks.check(played(name, source="real", data_root=str(tmp_path)))


def test_webshop_s_goals_of_people_need_their_file(tmp_path):
    for files in (catalogue.PRODUCTS, catalogue.ATTRIBUTES):
        (tmp_path / files[0]).touch()
    human = played("webshop", source="real", goals="human", data_root=str(tmp_path))
    assert refusal(human).startswith(f"{tmp_path / catalogue.HUMAN}: there is no such file; goals 'human' need it")
    checks.check(played("webshop", source="real", data_root=str(tmp_path)))


@pytest.mark.usefixtures("no_package")
def test_virtualhome_without_its_package_is_refused_in_one_line():
    assert refusal(played("virtualhome")) == PACKAGE
    checks.check(played("virtualhome"), installed=False)


def test_a_folder_with_the_name_of_virtualhome_s_package_is_not_the_package(monkeypatch, tmp_path):
    """Such as a checkout of its repository where Snakemake runs, which Python takes for a namespace."""
    (tmp_path / "virtualhome").mkdir()
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    with pytest.raises(UserError, match="needs the package virtualhome"):
        engine.package.__wrapped__()


@pytest.mark.parametrize("name", DATA)
@pytest.mark.usefixtures("package")
def test_a_plan_without_the_released_data_only_warns(name, monkeypatch, tmp_path):
    variable, message = DATA[name]
    monkeypatch.delenv(variable, raising=False)
    (tmp_path / "config.yaml").write_text(json.dumps(played(name, source="real").model_dump(mode="json")))
    monkeypatch.chdir(tmp_path)
    lines = lines_of(configured.plan_of(None, tmp_path, installed=False))
    assert [line for line in lines if line.startswith(f"warning: {message}")]
    with pytest.raises(UserError, match=r"data_root|folder"):
        configured.plan_of(None, tmp_path)
