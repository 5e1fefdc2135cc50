"""Fixtures: `letta_lab("tool")` is the storage directory that the scenario `tool` left."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab import scenarios  # noqa: F401 (registers them)
from tests.lab.driver import find_letta
from tests.lab.lab import Lab
from tests.lab.provider import FakeProvider


@pytest.fixture(scope="session")
def letta_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The lab; every scenario runs once, when it is first asked for."""
    letta = find_letta()
    if letta is None:
        pytest.skip("Letta Code is not installed: pip install 'lettaspace[letta]'")
    with FakeProvider() as provider:
        yield Lab(tmp_path_factory.mktemp("letta"), provider, letta)
