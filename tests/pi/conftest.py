from tests.cli.conftest import cli
from tests.letta.conftest import open_space, space
from tests.viewer.conftest import serve

__all__ = ["cli", "open_space", "serve", "space"]
