from __future__ import annotations

import pytest

from tests.audit import synthetic


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """SYNTHETIC: four methods, two seeds, everything there. Tests must not change it."""
    return synthetic.make(tmp_path_factory.mktemp("results"), synthetic.experiment(games=48, rounds=5))
