import pytest

from lettaspace.atproto.tid import TidClock
from lettaspace.errors import InvalidRecord
from lettaspace.space.database import Database
from lettaspace.space.repo import EmbeddedRepo

AUTHOR = "did:web:ada.example"
SPACE = f"at://{AUTHOR}/space/com.example.lab/self"


def refuse_bad(collection, rkey, value):
    if "bad" in value:
        raise InvalidRecord(f"{collection}/{rkey}: bad")


@pytest.fixture(params=["sqlite", "postgresql"])
def target(request, tmp_path):
    """Where a store of each kind is: what `Database.open` takes, as text."""
    if request.param == "postgresql":
        return request.getfixturevalue("postgres_url")
    return str(tmp_path / "home" / "space.db")


@pytest.fixture
def database(target):
    with Database.open(target) as opened:
        yield opened


@pytest.fixture
def repo(database):
    return EmbeddedRepo(database, SPACE, AUTHOR, validate=refuse_bad, clock=TidClock())
