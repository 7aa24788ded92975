from __future__ import annotations

import pytest

from tests.viewer import world as worlds
from tests.viewer.serving import served
from turncredit.views.viewer.given import Given
from turncredit.views.viewer.viewer import Viewer


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """SYNTHETIC results. Tests must not change them."""
    return worlds.make(tmp_path_factory.mktemp("viewed"))


@pytest.fixture(scope="session")
def viewer(made):
    return Viewer(Given([made.results]))


@pytest.fixture(scope="session")
def server(viewer):
    with served(viewer) as found:
        yield found


@pytest.fixture
def own(tmp_path):
    """SYNTHETIC results that a test may change, and their viewer."""
    made = worlds.make(tmp_path)
    return made, Viewer(Given([made.results]))
