"""Which files a user's own Python file imports from its folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import tiny
from turncredit.data.own_imports import own_imports
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.plan import Plan


def write(folder: Path, **files: str) -> Path:
    """Files below `folder`, `a__b` for `a/b.py`; returns `mine.py`."""
    for name, text in files.items():
        file = folder / f"{name.replace('__', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder / "mine.py"


FILES = {
    "mine": "import helper\n\ndef f():\n    from package import inner\n    import spaced.deep\n    import missing\n",
    "helper": "from further import *\n",
    "further": "import mine\n",
    "package__up": "",
    "package__inner": "from . import up\nfrom ...outside import y\n",
    "spaced__deep": "",
    "unused": "",
}
IMPORTED = ["further.py", "helper.py", "package/inner.py", "package/up.py", "spaced/deep.py"]


def test_neighbours_are_found_through_one_another_in_functions_and_in_packages(tmp_path):
    assert own_imports(write(tmp_path, **FILES)) == [str(tmp_path / name) for name in IMPORTED]
    (tmp_path / "package" / "__init__.py").touch()
    assert str(tmp_path / "package" / "__init__.py") in own_imports(tmp_path / "mine.py")


def test_they_are_given_as_the_file_is_given(tmp_path, monkeypatch):
    write(tmp_path / "own", **FILES)
    monkeypatch.chdir(tmp_path)
    assert own_imports("own/mine.py") == [f"own/{name}" for name in IMPORTED]
    monkeypatch.chdir(tmp_path / "own")
    assert own_imports("mine.py") == IMPORTED
    (tmp_path / "linked.py").symlink_to(tmp_path / "own" / "mine.py")
    assert own_imports(tmp_path / "linked.py") == [str(tmp_path / "own" / name) for name in IMPORTED]


def test_installed_modules_are_not_their_namesakes_in_the_folder(tmp_path):
    mine = write(tmp_path, mine="import random, numpy, turncredit.data\n", random="", numpy="", turncredit__data="")
    assert own_imports(mine) == []


@pytest.mark.parametrize("content", [b"def (", b"\x00", b"\xff = 1"])
def test_a_file_that_cannot_be_read_imports_nothing(tmp_path, content):
    (tmp_path / "mine.py").write_bytes(content)
    assert own_imports(tmp_path / "mine.py") == own_imports(tmp_path / "none.py") == []


def test_what_own_files_import_is_an_input_of_their_jobs_and_part_of_a_methods_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, mine="import beside_mine\n\n\ndef half(turns, rate=1.0):\n    return beside_mine.zeros(turns)\n")
    write(tmp_path, beside_mine="import numpy as np\n\n\ndef zeros(turns):\n    return np.zeros(len(turns))\n")
    write(tmp_path, world="import beside_mine\n")
    define = {"mine": {"credit": "mine.py:half"}}
    experiment = tiny.experiment(methods=["mine"], define=define)
    at = JobKeys(policy="mine", method="mine", seed=0, round=1)
    plan = Plan(experiment)
    assert plan.inputs("credit", at)["method_imports"] == ["beside_mine.py"]
    before = plan.slice("credit", at).model_dump()["code"]
    write(tmp_path, beside_mine="import numpy as np\n\n\ndef zeros(turns):\n    return np.ones(len(turns))\n")
    assert Plan(experiment).slice("credit", at).model_dump()["code"] != before
    world = experiment.model_copy(update={"env": experiment.env.model_copy(update={"name": "world.py"})})
    assert Plan(world).environment_file == {"environment": "world.py", "environment_imports": ["beside_mine.py"]}
