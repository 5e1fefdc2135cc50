"""Every cell of the matrix, and what no cell says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from lettaspace.atproto.methods import method
from lettaspace.space import schema
from tests.server.matrix import (
    DELEGATING,
    GOVERNING,
    HOSTING,
    OK,
    READING,
    READS,
    WRITES,
    WRITING,
    Cell,
    cells,
)
from tests.server.worlds import CALLERS, NOTE, World, world


@pytest.fixture
def populated(tmp_path) -> Iterator[World]:
    with world(str(tmp_path / "host.db")) as there:
        yield there


@pytest.mark.parametrize(
    "group",
    [READING, WRITING, HOSTING, GOVERNING, DELEGATING],
    ids=["reading", "writing", "hosting", "governing", "delegating"],
)
def test_every_cell(populated, group):
    wrong: list[str] = []
    count = 0
    before = revs(populated)
    for cell in cells(group):
        count += 1
        answer = ask(populated, cell)
        got = outcome(answer)
        if got != cell.expected:
            wrong.append(f"{cell}: {got}, not {cell.expected}")
        elif got == OK:
            wrong += [f"{cell}: {what}" for what in faults(populated, cell, answer)]
        after = revs(populated)
        if after != before and (got != OK or group is READING):
            wrong.append(f"{cell}: changed something")
        before = after
    assert not wrong, "\n".join([f"{len(wrong)} of {count} cells:", *wrong[:40]])
    assert count > 200 * len(group.methods)


def ask(there: World, cell: Cell) -> httpx.Response:
    did, space = there.dids[cell.target], there.spaces[cell.space]
    headers = CALLERS[cell.caller](there, cell.method, did, cell.space)
    return there.call(cell.method, headers, **arguments(there, cell, space, did))


def arguments(there: World, cell: Cell, space: str, did: str) -> dict[str, Any]:
    name = cell.method.rpartition(".")[2]
    values: dict[str, Any] = {"space": space, "repo": did}
    if name in ("getRecord", "createRecord", "putRecord", "deleteRecord"):
        values["collection"] = NOTE
    if name == "getRecord":
        values["rkey"] = "first"
    if name == "getBlob":
        values["cid"] = there.blobs.get(cell.target, there.blobs["mira"])
    if name in ("putRecord", "deleteRecord"):
        values["rkey"] = "again"
    if name in ("createRecord", "putRecord"):
        values["record"] = {"text": "cell"}
    if name in ("putMember", "removeMember"):
        values["did"] = there.dids["eve"]
    if name == "putMember":
        values |= {"read": False, "write": False}
    if name in ("registerNotify", "unregisterNotify"):
        values["service"] = there.dids["noa"]
    if name == "applyWrites":
        kind = "com.atproto.space.applyWrites#create"
        values["writes"] = [{"$type": kind, "collection": NOTE, "value": {"text": "cell"}}]
    return values


def outcome(answer: httpx.Response) -> tuple[int, str | None]:
    return answer.status_code, None if answer.status_code == 200 else answer.json()["error"]


def faults(there: World, cell: Cell, answer: httpx.Response) -> Iterator[str]:
    """What is wrong with a good answer: it is about another repo than the one that was named."""
    name = cell.method.rpartition(".")[2]
    if cell.target not in World.WRITERS or name in WRITES:
        return
    if name == "getRecord" and answer.json()["value"]["text"] != cell.target:
        yield "is another's record"
    if name == "getBlob" and answer.content != f"{cell.target}'s picture".encode():
        yield "is another's blob"
    if name == "listBlobs" and answer.json()["cids"] != [there.blobs[cell.target]]:
        yield "are another's blobs"
    if name == "listRecords":
        texts = [record["value"]["text"] for record in answer.json()["records"]]
        if texts != [cell.target]:
            yield "are another's records"


def revs(there: World) -> list[tuple[str, str, str | None]]:
    """The state of all repos that were ever written to."""
    repos = schema.repos.c
    query = select(repos.space, repos.author, repos.rev).order_by(repos.id)
    with there.host.database.read() as connection:
        return [tuple(row) for row in connection.execute(query)]


# Whatever is asked


METHODS = [*(f"com.atproto.space.{name}" for name in (*READS, *WRITES))]

ODD = st.sampled_from(
    [
        "", "x", "0", "-1", "99999999999999999999", "1e3", "true", "null", "\0", "é", "\U0001f3fa",
        "at://", "at://did:web:a.example/space/a.b.c/x", "did:web:a.example", "com.example.note",
        "3jzfcijpj2z2a", "3jzfcijpj2z2a/0", "..", "a" * 3000, "%00", "../../x",
    ]
)  # fmt: skip
ODD_VALUE = st.recursive(
    ODD | st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ODD, inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def asked(tmp_path_factory) -> Iterator[World]:
    with world(str(tmp_path_factory.mktemp("host") / "host.db")) as there:
        yield there


@settings(
    max_examples=250,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.data(), st.sampled_from(METHODS), st.sampled_from(["mira", "credential"]))
def test_whatever_is_asked_is_answered(asked, data, nsid, caller):
    did = asked.dids["mira"]
    values = arguments(asked, Cell(nsid, caller, "mira", "open", OK), asked.spaces["open"], did)
    more = ("since", "cursor", "limit", "rkey", "reverse", "excludeValues", "validate", "writes")
    names = data.draw(st.lists(st.sampled_from([*values, *more]), max_size=3))
    headers = CALLERS[caller](asked, nsid, did, "open")
    if method(nsid).kind == "query":
        values |= {name: data.draw(ODD) for name in names}
        answer = asked.client.get(f"/xrpc/{nsid}", params=values, headers=headers)
    else:
        values |= {name: data.draw(ODD_VALUE) for name in names}
        body = json.dumps(values).encode()
        headers = [*headers, ("content-type", "application/json")]
        answer = asked.client.post(f"/xrpc/{nsid}", content=body, headers=headers)
    assert answer.status_code in (200, 400, 401, 403, 413), answer.text
    if answer.status_code != 200:
        assert answer.json().keys() == {"error", "message"}
