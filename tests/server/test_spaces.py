"""Spaces and members over HTTP: who may govern, what is declared, and tombstones."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import select

from lettaspace.atproto.uri import SpaceRef
from lettaspace.errors import Conflict, InvalidInput, NotFound
from lettaspace.server import tables
from lettaspace.server.policies import AppAccess, MemberList, Public, Settings
from lettaspace.server.spaces import MAX_URI, Member, Spaces
from lettaspace.space.database import Database
from tests.server.hosts import Clock, Server
from tests.server.parties import (
    DEFS,
    MEMBERS,
    OPEN,
    PUBLIC,
    SIMPLE,
    SPACE,
    TYPE,
    Reader,
    User,
    error,
    only,
)

SETTINGS = {"readPolicy": MEMBERS, "writePolicy": PUBLIC, "appAccess": OPEN}
DID = "did:web:otto.example"


@pytest.fixture
def alice(server: Server) -> User:
    return User(server, "alice")


@pytest.fixture
def bob(server: Server) -> User:
    return User(server, "bob")


def test_a_space_is_created_and_described(alice: User) -> None:
    answer = alice.post(SIMPLE + "createSpace", spaceType=TYPE, skey="a~b", **SETTINGS)
    uri = f"at://{alice.did}/space/{TYPE}/a~b"
    assert (answer.status_code, answer.json()) == (200, {"uri": uri})
    answer = alice.get(SIMPLE + "getSpace", space=uri)
    assert answer.json() == {"uri": uri, **SETTINGS}
    again = alice.post(SIMPLE + "createSpace", spaceType=TYPE, skey="a~b", **SETTINGS)
    assert error(again) == (400, "SpaceAlreadyExists")


def test_a_space_without_a_key_gets_a_new_one(alice: User) -> None:
    made = {
        alice.post(SIMPLE + "createSpace", spaceType=TYPE, **SETTINGS).json()["uri"]
        for _ in range(5)
    }
    assert len(made) == 5
    assert all(len(uri.rpartition("/")[2]) == 13 for uri in made)


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({"skey": "a/b"}, "InvalidRequest"),
        ({"skey": ".."}, "InvalidRequest"),
        ({"skey": ""}, "InvalidRequest"),
        ({"spaceType": "room"}, "InvalidRequest"),
        ({"readPolicy": None}, "InvalidRequest"),
        ({"readPolicy": {}}, "InvalidRequest"),
        ({"readPolicy": {"$type": DEFS + "managingAppPolicy"}}, "InvalidRequest"),
        ({"appAccess": {"$type": DEFS + "allowList", "allowed": [1]}}, "InvalidRequest"),
        ({"readPolicy": {"$type": "org.example.other"}}, "UnsupportedPolicy"),
        ({"writePolicy": {"$type": DEFS + "managingAppPolicy", "managingApp": "x"}},
         "UnsupportedPolicy"),
        ({"appAccess": {"$type": "org.example.other"}}, "UnsupportedAppAccess"),
    ],
)  # fmt: skip
def test_what_no_space_is_made_of(alice: User, change: dict[str, Any], refusal: str) -> None:
    body = {"spaceType": TYPE, "skey": "self"} | SETTINGS | change
    answer = alice.post(SIMPLE + "createSpace", **body)
    assert error(answer) == (400, refusal)
    assert alice.get(SPACE + "listSpaces").json() == {"spaces": []}


def test_settings_are_replaced_one_by_one(alice: User) -> None:
    uri = alice.create(read=MEMBERS, write=MEMBERS)
    apps = only("https://app.example/client.json")
    assert alice.post(SIMPLE + "updateSpace", space=uri, readPolicy=PUBLIC).status_code == 200
    assert alice.post(SIMPLE + "updateSpace", space=uri, appAccess=apps).status_code == 200
    wanted = {"uri": uri, "readPolicy": PUBLIC, "writePolicy": MEMBERS, "appAccess": apps}
    assert alice.get(SIMPLE + "getSpace", space=uri).json() == wanted
    # One that is not known leaves all as it was, also what was known beside it.
    unknown = {"$type": "org.example.other"}
    for change in ({"readPolicy": MEMBERS, "writePolicy": unknown}, {"readPolicy": unknown}):
        answer = alice.post(SIMPLE + "updateSpace", space=uri, **change)
        assert error(answer) == (400, "UnsupportedPolicy")
    answer = alice.post(SIMPLE + "updateSpace", space=uri, appAccess=unknown)
    assert error(answer) == (400, "UnsupportedAppAccess")
    assert alice.get(SIMPLE + "getSpace", space=uri).json() == wanted
    assert alice.post(SIMPLE + "updateSpace", space=uri).status_code == 200


@pytest.mark.parametrize(
    ("method", "body"),
    [
        ("updateSpace", {"readPolicy": PUBLIC}),
        ("deleteSpace", {}),
        ("putMember", {"did": DID, "read": True, "write": True}),
        ("removeMember", {"did": DID}),
        ("getSpace", None),
        ("listMembers", None),
    ],
)
def test_only_the_authority_governs(
    alice: User, bob: User, method: str, body: dict[str, Any] | None
) -> None:
    def ask(user: User, uri: str) -> Any:
        if body is None:
            return user.get(SIMPLE + method, space=uri)
        return user.post(SIMPLE + method, space=uri, **body)

    uri = alice.create()
    alice.admit(uri, bob.did)
    missing = f"at://{alice.did}/space/{TYPE}/missing"
    # Whether there is such a space is nobody else's business.
    for other in (uri, missing):
        assert error(ask(bob, other)) == (400, "NotSpaceOwner")
    assert error(ask(alice, missing)) == (400, "SpaceNotFound")
    assert error(ask(alice, "at://x")) == (400, "InvalidRequest")
    assert ask(alice, uri).status_code == 200
    nobody = alice.server.client.request(
        "GET" if body is None else "POST", f"/xrpc/{SIMPLE}{method}", params={"space": uri}
    )
    assert nobody.status_code == 401


def test_a_credential_describes_the_space_and_not_its_members(alice: User) -> None:
    uri = alice.create()
    reader = Reader(alice.server).open(alice, uri)
    assert reader.get(SIMPLE + "getSpace", alice.did, space=uri).json()["uri"] == uri
    wrong = reader.get(SIMPLE + "getSpace", alice.server.host.config.did, space=uri)
    assert error(wrong) == (401, "BadSpaceAudience")
    refused = reader.get(SIMPLE + "listMembers", alice.did, space=uri)
    assert 400 <= refused.status_code < 500


def test_members(alice: User) -> None:
    uri = alice.create()
    dids = [f"did:web:m{number}.example" for number in range(5)]
    for did in reversed(dids):
        alice.admit(uri, did, read=True, write=False)
    alice.admit(uri, dids[1], read=False, write=True)
    wanted = [{"did": did, "read": True, "write": False} for did in dids]
    wanted[1] = {"did": dids[1], "read": False, "write": True}
    found: list[Any] = []
    cursor: dict[str, str] = {}
    sizes = []
    while True:
        page = alice.get(SIMPLE + "listMembers", space=uri, limit=2, **cursor).json()
        found += page["members"]
        sizes.append(len(page["members"]))
        if "cursor" not in page:
            break
        cursor = {"cursor": page["cursor"]}
    assert found == wanted
    assert sizes == [2, 2, 1]
    # A last page that is full says that it is the last one.
    assert "cursor" not in alice.get(SIMPLE + "listMembers", space=uri, limit=5).json()
    for _ in range(2):
        answer = alice.post(SIMPLE + "removeMember", space=uri, did=dids[0])
        assert answer.status_code == 200
    page = alice.get(SIMPLE + "listMembers", space=uri).json()
    assert page == {"members": wanted[1:]}


def test_the_authority_is_no_member(alice: User) -> None:
    uri = alice.create()
    member = {"did": alice.did, "read": False, "write": False}
    assert error(alice.post(SIMPLE + "putMember", space=uri, **member)) == (400, "InvalidRequest")
    assert alice.get(SIMPLE + "listMembers", space=uri).json() == {"members": []}


def test_what_the_authority_writes_afterwards_leaves_the_tombstone(alice: User) -> None:
    uri = alice.create()
    alice.admit(uri, DID)
    alice.write(uri, "before", "old")
    assert alice.post(SIMPLE + "deleteSpace", space=uri).status_code == 200
    assert alice.post(SIMPLE + "deleteSpace", space=uri).status_code == 200
    listed = {"space": uri, "repo": alice.did}
    assert alice.get(SPACE + "listRecords", **listed).json()["records"] == []
    assert error(alice.get(SPACE + "getLatestCommit", **listed)) == (400, "RepoNotFound")
    for method in ("getSpace", "listMembers"):
        assert error(alice.get(SIMPLE + method, space=uri)) == (400, "SpaceNotFound")
    alice.write(uri, "after")
    assert error(alice.get(SIMPLE + "getSpace", space=uri)) == (400, "SpaceNotFound")
    answer = Reader(alice.server).exchange(alice.delegate(uri), uri)
    assert error(answer) == (400, "SpaceDeleted")
    assert alice.get(SPACE + "listSpaces").json() == {"spaces": []}
    # Made anew it knows nothing of what it was; what was written since stays.
    assert alice.create(read=PUBLIC) == uri
    assert alice.get(SIMPLE + "listMembers", space=uri).json() == {"members": []}
    assert alice.get(SIMPLE + "getSpace", space=uri).json()["readPolicy"] == PUBLIC
    records = alice.get(SPACE + "listRecords", **listed).json()["records"]
    assert [record["value"]["text"] for record in records] == ["after"]
    assert alice.get(SPACE + "listSpaces").json() == {"spaces": [{"uri": uri}]}


def test_what_was_written_before_there_was_a_space_stays_and_is_listed(alice: User) -> None:
    uri = f"at://{alice.did}/space/{TYPE}/self"
    alice.write(uri, "early")
    assert error(alice.get(SIMPLE + "getSpace", space=uri)) == (400, "SpaceNotFound")
    member = {"did": DID, "read": True, "write": True}
    assert error(alice.post(SIMPLE + "putMember", space=uri, **member)) == (400, "SpaceNotFound")
    assert alice.create() == uri
    reader = Reader(alice.server).open(alice, uri)
    (repo,) = reader.get(SPACE + "listRepos", alice.did, space=uri).json()["repos"]
    commit = reader.get(SPACE + "getLatestCommit", alice.did, space=uri, repo=alice.did)
    assert repo["did"] == alice.did
    assert (repo["repoRev"], repo["hash"]) == (
        commit.json()["commit"]["rev"],
        commit.json()["commit"]["hash"],
    )


def test_the_spaces_of_an_account(alice: User, bob: User) -> None:
    governed = [bob.create(skey) for skey in ("b", "a")]
    written = alice.create()
    elsewhere = f"at://did:web:zoe.example/space/{TYPE}/self"
    other = f"at://did:web:zoe.example/space/{TYPE}Two/self"
    gone = alice.create("gone")
    for space in (written, elsewhere, other, gone, governed[0]):
        bob.write(space)
    alice.create("not-of-bob")
    alice.post(SIMPLE + "deleteSpace", space=gone)
    wanted = sorted([*governed, written, elsewhere, other])

    def listed(**params: Any) -> list[str]:
        answer = bob.get(SPACE + "listSpaces", **params)
        assert answer.status_code == 200, answer.text
        return [space["uri"] for space in answer.json()["spaces"]]

    assert listed() == wanted
    assert listed(spaceType=TYPE) == [uri for uri in wanted if "Two" not in uri]
    assert listed(did=alice.did) == [written]
    assert listed(did=bob.did, spaceType=TYPE) == sorted(governed)
    assert listed(did=bob.did, spaceType=TYPE + "Two") == []
    found: list[str] = []
    cursor: dict[str, str] = {}
    for _ in wanted:
        page = bob.get(SPACE + "listSpaces", limit=2, **cursor).json()
        found += [space["uri"] for space in page["spaces"]]
        if "cursor" not in page:
            break
        cursor = {"cursor": page["cursor"]}
    assert found == wanted
    assert "cursor" not in bob.get(SPACE + "listSpaces", limit=len(wanted)).json()


def test_an_account_that_is_out_of_service_governs_nothing(alice: User) -> None:
    uri = alice.create()
    accounts = alice.server.host.accounts
    for state, refusal in (
        ("takendown", (401, "AccountTakedown")),
        ("deactivated", (400, "RepoDeactivated")),
    ):
        accounts.set_state(alice.account, state)  # type: ignore[arg-type]
        assert error(alice.post(SIMPLE + "deleteSpace", space=uri)) == refusal
        assert error(alice.get(SPACE + "getDelegationToken", space=uri)) == refusal
    accounts.set_state(alice.account, "active")
    assert alice.get(SIMPLE + "getSpace", space=uri).status_code == 200


# Without HTTP: the store itself


@pytest.fixture
def spaces(database: Database, clock: Clock) -> Spaces:
    return Spaces(database, clock)


REF = SpaceRef("did:web:alice.example", TYPE, "self")
PLAIN = Settings(MemberList(), Public(), AppAccess())


def test_one_of_many_creates_a_space(spaces: Spaces) -> None:
    def create(_: int) -> str:
        try:
            return spaces.create(REF, PLAIN).uri
        except Conflict:
            return "conflict"

    with ThreadPoolExecutor(8) as pool:
        for round_ in range(2):  # then once more in the tombstone's place
            done = sorted(pool.map(create, range(8)))
            assert done == sorted([str(REF), *["conflict"] * 7]), round_
            assert spaces.delete(str(REF)) == []


def test_changes_of_settings_at_once_lose_nothing(spaces: Spaces) -> None:
    uri = spaces.create(REF, PLAIN).uri

    def change(number: int) -> None:
        def added(settings: Settings) -> Settings:
            allowed = (settings.apps.allowed or ()) + (str(number),)
            return Settings(settings.read, settings.write, AppAccess(allowed))

        spaces.change(uri, added)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(change, range(16)))
    allowed = spaces.get(uri).settings.apps.allowed
    assert allowed is not None
    assert sorted(allowed, key=int) == [str(number) for number in range(16)]


def test_tombstones_are_known(spaces: Spaces, clock: Clock, database: Database) -> None:
    uri = spaces.create(REF, PLAIN).uri
    other = spaces.create(SpaceRef(REF.authority, TYPE, "other"), PLAIN).uri
    spaces.put_member(uri, Member(DID, read=True, write=False))
    clock.pass_(10)
    spaces.delete(uri)
    found = spaces.find(uri)
    assert found is not None
    assert found.deleted_at == found.created_at + 10
    assert spaces.members(uri) == []
    with pytest.raises(NotFound):
        spaces.get(uri)
    with pytest.raises(NotFound):
        spaces.put_member(uri, Member(DID, read=True, write=False))
    with pytest.raises(NotFound):
        spaces.delete(uri + "x")
    assert [space.uri for space in spaces.all()] == [other]
    assert [space.uri for space in spaces.all(REF.authority, deleted=True)] == [uri]
    assert spaces.all("did:web:nobody.example") == []
    with database.read() as connection:
        assert connection.execute(select(tables.members)).all() == []


def test_what_no_database_could_index_is_refused(spaces: Spaces) -> None:
    long = "did:web:" + "a" * MAX_URI
    with pytest.raises(InvalidInput):
        spaces.create(SpaceRef(long, TYPE, "self"), PLAIN)
    uri = spaces.create(REF, PLAIN).uri
    with pytest.raises(InvalidInput):
        spaces.put_member(uri, Member(long, read=True, write=True))
