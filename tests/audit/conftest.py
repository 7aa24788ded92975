from __future__ import annotations

import pytest

from tests.audit import synthetic


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """SYNTHETIC: four methods, two seeds, everything there. Tests must not change it."""
    return synthetic.make(tmp_path_factory.mktemp("results"), synthetic.experiment(games=48, rounds=5))


@pytest.fixture(scope="session")
def audited(tmp_path_factory):
    """SYNTHETIC: the same with an audit of flat GRPO's rounds 1 and 3. Tests must not change it."""
    config = synthetic.experiment(games=12, rounds=3)
    folder = synthetic.make(tmp_path_factory.mktemp("audited"), config)
    synthetic.audit(folder, config)
    return folder
