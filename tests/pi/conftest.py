from tests.letta.conftest import open_space, space  # noqa: F401
