"""The implementations that the contract's tests run against.

An implementation is a way to open a space: a function of a name. Opening a name again gives
another handle on the same space, as a second process has it. To add one, add its opener to
`IMPLEMENTATIONS`; the tests ask nothing else of it.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from lettaspace.conversation.space import Space
from tests.conformance.kit import Talk

Opener = Callable[[Path, str], AbstractContextManager[Space]]
MakeSpace = Callable[..., Space]


def embedded(root: Path, name: str) -> AbstractContextManager[Space]:
    return Space.open(root / name)


IMPLEMENTATIONS: dict[str, Opener] = {"embedded": embedded}


@pytest.fixture(params=sorted(IMPLEMENTATIONS))
def make_space(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeSpace]:
    """Opens the space of a name."""
    opener = IMPLEMENTATIONS[request.param]
    with ExitStack() as stack:
        yield lambda name="home": stack.enter_context(opener(tmp_path, name))


@pytest.fixture
def space(make_space: MakeSpace) -> Space:
    return make_space()


@pytest.fixture
def talk(space: Space) -> Talk:
    return Talk.new(space)
