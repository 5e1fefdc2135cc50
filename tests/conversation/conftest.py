import pytest

from lettaspace.conversation.space import Space
from tests.conversation.talk import Talk


@pytest.fixture
def space(tmp_path):
    with Space.open(tmp_path / "home") as opened:
        yield opened


@pytest.fixture
def talk(space):
    return Talk(space)
