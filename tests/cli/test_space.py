"""`lettaspace space`."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Cli

DID = "did:web:mira.example.com"
TYPE = "org.example.room"
URI = f"at://{DID}/space/{TYPE}/self"
OTTO = "did:web:otto.example.com"
DEFS = "com.atproto.simplespace.defs#"


@pytest.fixture(autouse=True)
def _no_host_of_mine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE", "ORIGIN", "DEVELOPMENT"):
        monkeypatch.delenv(f"LETTASPACE_{name}", raising=False)


@pytest.fixture
def host(cli: Cli) -> Cli:
    """A host with an account."""
    assert cli("account", "add", "mira.example.com").code == 0
    return cli


def test_from_its_creation_to_its_end(host: Cli) -> None:
    made = host("space", "create", "mira.example.com", "--type", TYPE)
    assert made.out.splitlines() == [URI, "Read: members, write: members, apps: any"]
    assert host("space", "create", DID, "--type", TYPE, "--json").json["error"] == "Conflict"
    assert host("space", "admit", URI, OTTO, "--no-write").out == f"{OTTO}: read yes, write no.\n"
    assert host("space", "admit", URI, "otto.example.com", "--json").json["error"] == "NotFound"
    table = host("space", "members", URI).out.splitlines()
    assert [line.split() for line in table] == [["READ", "WRITE", "DID"], ["yes", "no", OTTO]]
    assert host("space", "members", URI, "--json").json == [
        {"did": OTTO, "read": True, "write": False}
    ]
    assert host("space", "show", URI).out.splitlines()[-1] == "1 member"
    assert host("space", "dismiss", URI, OTTO).code == 0
    assert host("space", "dismiss", URI, OTTO, "--json").json["error"] == "NotFound"
    assert host("space", "members", URI, "--json").json == []

    assert host("space", "delete", URI).code == 1
    assert host("space", "show", URI).code == 0
    assert host("space", "delete", URI, "--yes").out == f"Deleted {URI}.\n"
    assert host("space", "show", URI, "--json").json["error"] == "NotFound"
    assert host("space", "list", "--json").json == []
    (gone,) = host("space", "list", "--deleted", "--json").json
    assert gone["uri"] == URI
    assert gone["deletedAt"]


def test_policies(host: Cli) -> None:
    app = "https://app.example.com/client.json"
    form = host(
        "space", "create", DID, "--type", TYPE, "--key", "b", "--read", "public", "--app", app,
        "--json",
    ).json  # fmt: skip
    assert list(form) == ["uri", "readPolicy", "writePolicy", "appAccess", "createdAt"]
    assert form["readPolicy"] == {"$type": DEFS + "publicPolicy"}
    assert form["writePolicy"] == {"$type": DEFS + "memberListPolicy"}
    assert form["appAccess"] == {"$type": DEFS + "allowList", "allowed": [app]}
    service = "did:web:app.example.com#spaces"
    changed = host("space", "policy", form["uri"], "--write", service, "--any-app").out
    assert changed.splitlines()[1] == f"Read: public, write: {service}, apps: any"
    shown = host("space", "show", form["uri"], "--json").json
    assert shown["writePolicy"] == {"$type": DEFS + "managingAppPolicy", "managingApp": service}
    table = host("space", "list", "--account", "mira.example.com").out.splitlines()
    assert table[0].split() == ["READ", "WRITE", "APPS", "SINCE", "URI"]
    assert table[1].split()[:3] == ["public", service, "any"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("policy", URI, "--read", "everybody"),
        ("policy", URI, "--app", "x", "--any-app"),
        ("create", DID, "--type", "room"),
        ("create", DID, "--type", TYPE, "--key", "a/b"),
        ("create", DID, "--type", TYPE, "--app", "x" * 3000),
    ],
)
def test_what_is_malformed(host: Cli, arguments: tuple[str, ...]) -> None:
    host("space", "create", DID, "--type", TYPE)
    done = host("space", *arguments, "--json")
    assert done.json["error"] == "InvalidInput"


def test_names_that_nobody_has(host: Cli) -> None:
    for arguments in (
        ("show", URI),
        ("members", URI),
        ("admit", URI, OTTO),
        ("policy", URI, "--read", "public"),
        ("list", "--account", "otto.example.com"),
        ("create", "otto.example.com", "--type", TYPE),
    ):
        assert host("space", *arguments, "--json").json["error"] == "NotFound"
