"""One repo on its host: what is asked of it, and what is made of hosts that err or go astray."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lettaspace.atproto import cbor, tid
from lettaspace.atproto.cid import CID
from lettaspace.errors import Damaged, HostRefused, InvalidInput, InvalidRecord, Unreachable
from lettaspace.remote.hostrepo import HostRepo, OpsPage, RemoteOp, RemoteRecord, encode
from lettaspace.remote.limits import Limits
from lettaspace.remote.xrpc import Client
from lettaspace.space.car import read_repo
from lettaspace.space.sethash import SetHash, element
from lettaspace.space.writes import Create, Delete, Update, Write, Written
from tests.remote.auths import Bearer
from tests.server.hosts import Clock, serving
from tests.server.parties import NOTE, User

AUTHOR = "did:web:mira.example"
SPACE = f"at://{AUTHOR}/space/org.example.room/self"
CID_TEXT = str(CID.for_cbor(b"\xa0"))
COMMIT = {
    "ver": 1,
    "rev": "3mbo6jo6e222b",
    **{name: {"$bytes": "AAAA"} for name in ("hash", "ikm", "sig", "mac")},
}

Answer = Callable[[str, dict[str, str], bytes], Any]


def told(answer: Answer, **options: Any) -> HostRepo:
    """The repo at a host that answers so, by the end of the method's name."""

    def serve(request: httpx.Request) -> httpx.Response:
        name = request.url.path.rpartition(".")[2]
        found = answer(name, dict(request.url.params), request.content)
        return found if isinstance(found, httpx.Response) else httpx.Response(200, json=found)

    client = Client("https://host.example", transport=httpx.MockTransport(serve))
    return HostRepo(client, SPACE, AUTHOR, **options)


def always(value: Any) -> HostRepo:
    return told(lambda *_: value)


def refused(error: str, status: int = 400) -> httpx.Response:
    return httpx.Response(status, json={"error": error})


def note(text: str, **more: Any) -> dict[str, Any]:
    return {"$type": NOTE, "text": text, **more}


# At a host of ours


class Hosted:
    def __init__(self, user: User, client: Client, space: str) -> None:
        self.user, self.client, self.space = user, client, space
        self.repo = HostRepo(client, space, user.did)
        self.key = user.server.host.identity.key(user.did, "#atproto")


@pytest.fixture
def hosted(tmp_path: Path) -> Iterator[Hosted]:
    clock = Clock()
    with serving(tmp_path / "host.db", clock) as server:
        user = User(server, "mira")
        space = user.create()
        with Client(server.host.config.origin, auth=Bearer(user.token), clock=clock) as client:
            yield Hosted(user, client, space)


def test_a_repo_of_our_host(hosted: Hosted) -> None:
    repo = hosted.repo
    assert repo.latest_commit() is None
    assert list(repo.ops(None)) == [OpsPage([], None)]
    assert (list(repo.list()), list(repo.blobs()), repo.get(NOTE, "a")) == ([], [], None)
    with pytest.raises(HostRefused) as error, repo.car():
        pass
    assert error.value.error == "RepoNotFound"

    content = b"sealed"
    cid = CID.for_raw(content)
    repo.upload_blob(content, cid, "text/plain")
    blob = {"$type": "blob", "ref": cid, "mimeType": "text/plain", "size": len(content)}
    first, second = repo.apply([Create(NOTE, "a", note("one", leaf=blob)), Create(NOTE, None, {})])
    assert first == Written(NOTE, "a", CID.for_cbor(cbor.encode(note("one", leaf=blob))))
    assert tid.decode(second.rkey)
    (record,) = [each for each in repo.list(NOTE, values=True) if each.rkey == "a"]
    assert (
        record == RemoteRecord(NOTE, "a", first.cid, note("one", leaf=blob)) == repo.get(NOTE, "a")
    )
    assert (list(repo.blobs()), repo.get_blob(cid)) == ([cid], content)
    assert repo.get_blob(CID.for_raw(b"other")) is None
    assert list(repo.list("org.example.other")) == []

    written = repo.apply([Update(NOTE, "a", note("uno")), Delete(NOTE, second.rkey)])
    assert written[1] == Written(NOTE, second.rkey, None)
    (page,) = repo.ops(None)
    commit = repo.latest_commit()
    assert commit is not None
    assert page.commit is not None
    assert (page.commit.rev, page.commit.hash) == (commit.rev, commit.hash)
    assert commit.is_valid(hosted.space, hosted.user.did, hosted.key)
    folded = SetHash()
    folded.add(element(NOTE, "a", str(written[0].cid)))
    assert folded.digest() == commit.hash
    (newest,) = repo.ops(page.ops[1].rev, values=False)
    assert [(op.rkey, op.cid, op.prev, op.value) for op in newest.ops] == [
        ("a", written[0].cid, first.cid, None),
        (second.rkey, None, second.cid, None),
    ]
    with repo.car() as pieces:
        whole, _, blocks = read_repo(
            pieces, space=hosted.space, author=hosted.user.did, key=hosted.key
        )
        assert [block.value for block in blocks] == [note("uno")]
    assert whole.hash == commit.hash
    with repo.car(values=False) as pieces:
        assert 0 < len(b"".join(pieces)) < 1000

    for write, name in (
        (Create(NOTE, "a", note("other")), "RecordAlreadyExists"),
        (Update(NOTE, "b", note("other")), "RecordNotFound"),
    ):
        with pytest.raises(HostRefused) as error:
            repo.apply([write])
        assert (error.value.status, error.value.error) == (400, name)


def test_pages_of_our_host(hosted: Hosted) -> None:
    repo = hosted.repo
    keys = [f"k{n:03}" for n in range(250)]
    for batch in repo.batches(Create(NOTE, key, note(key)) for key in keys):
        repo.apply(batch)
    pages = list(repo.ops(None, page=100))
    assert [len(page.ops) for page in pages] == [100, 100, 50]
    assert [page.commit is None for page in pages] == [True, True, False]
    assert [op.rkey for page in pages for op in page.ops] == keys
    assert [record.rkey for record in repo.list()] == keys[::-1]


@pytest.mark.parametrize("reverse", [False, True])
def test_o58_every_record_once(hosted: Hosted, reverse: bool) -> None:
    """250 records, 60 of them of the same time; one more and one rewritten between pages."""
    repo = hosted.repo
    at = [f"2026-03-09T14:{max(0, n - 60) % 60:02}:00.000Z" for n in range(250)]
    keys = [tid.encode(1_700_000_000_000_000 + n, 7) for n in range(250)]
    writes = [Create(NOTE, k, note(k, createdAt=t)) for k, t in zip(keys, at, strict=True)]
    for batch in repo.batches(writes):
        repo.apply(batch)
    params = {"space": hosted.space, "repo": hosted.user.did, "limit": 100, "reverse": reverse}
    found: list[str] = []
    for number, answer in enumerate(
        hosted.client.pages("com.atproto.space.listRecords", params, "records")
    ):
        found += [record["rkey"] for record in answer["records"]]
        if number == 0:
            added = tid.encode(1_700_000_000_000_000 + (500 if reverse else -500), 7)
            repo.apply([Create(NOTE, added, note("new")), Update(NOTE, keys[5], note("marked"))])
    assert sorted(set(found) - {added}) == keys
    assert len(found) == len(set(found))


# At hosts that err


def records(*keys: str, cursor: str | None = None) -> dict[str, Any]:
    found = [{"collection": NOTE, "rkey": key, "cid": CID_TEXT} for key in keys]
    return {"records": found} | ({} if cursor is None else {"cursor": cursor})


def test_o58_a_host_that_repeats_itself() -> None:
    """Pages that overlap hold nothing twice; those that never hold anything new end it."""
    pages = {"": records("a", "b", cursor="1"), "1": records("b", "c", cursor="2")}
    pages |= {"2": records("c", "d")}
    repo = told(lambda _, params, __: pages[params.get("cursor", "")])
    assert [record.rkey for record in repo.list()] == ["a", "b", "c", "d"]

    repo = told(lambda _, params, __: records("a", cursor=params.get("cursor", "") + "x"))
    with pytest.raises(Damaged, match="the same records again and again"):
        list(repo.list())


def test_a_never_written_repo_is_none_whatever_it_is_called() -> None:
    repo = always(refused("RepoNotFound"))
    assert (repo.latest_commit(), repo.get(NOTE, "a")) == (None, None)
    assert (list(repo.blobs()), repo.get_blob(CID.for_raw(b""))) == ([], None)


@pytest.mark.parametrize("error", ["SpaceNotFound", "RepoTakendown", "Forbidden"])
def test_other_refusals_are_told(error: str) -> None:
    repo = always(refused(error))
    for ask in (
        repo.latest_commit,
        lambda: repo.get(NOTE, "a"),
        lambda: list(repo.ops(None)),
        lambda: list(repo.list()),
        lambda: list(repo.blobs()),
        lambda: repo.get_blob(CID.for_raw(b"")),
    ):
        with pytest.raises(HostRefused) as refusal:
            ask()
        assert refusal.value.error == error


def test_a_commit_that_is_none() -> None:
    for wrong in ({"ver": 2}, {"hash": {"$bytes": "AAAA"}, "ver": 3}):
        with pytest.raises((Damaged, Unreachable)):
            always({"commit": COMMIT | wrong}).latest_commit()


def test_a_last_page_without_a_commit() -> None:
    assert list(always({"ops": []}).ops(None)) == [OpsPage([], None)]


def test_a_commit_beside_a_cursor_is_none() -> None:
    pages = [{"ops": [], "commit": COMMIT, "cursor": "1"}, {"ops": [], "commit": COMMIT}]
    first, last = told(lambda *_: pages.pop(0)).ops(None)
    assert first.commit is None
    assert last.commit is not None


class Log:
    """A host's log, in batches of these sizes, which forgets its cursors now and then."""

    def __init__(self, batches: list[int], forgets: set[int]) -> None:
        self.ops: list[dict[str, Any]] = [
            {"rev": tid.encode(1000 + n, 0), "collection": NOTE, "rkey": f"{n}-{i}"}
            | {"cid": CID_TEXT, "prev": None}
            for n, size in enumerate(batches)
            for i in range(size)
        ]
        self.forgets = forgets
        self.asked = 0

    def __call__(self, name: str, params: dict[str, str], _: bytes) -> Any:
        assert name == "listRepoOps"
        self.asked += 1
        start = 0
        if "cursor" in params:
            if self.asked in self.forgets:
                return refused("MalformedCursor")
            start = int(params["cursor"]) + 1
        found = [
            (n, op)
            for n, op in enumerate(self.ops)
            if op["rev"] > params.get("since", "") and n >= start
        ][: int(params["limit"])]
        answer: dict[str, Any] = {"ops": [op for _, op in found]}
        if len(found) == int(params["limit"]):
            return answer | {"cursor": str(found[-1][0])}
        return answer | {"commit": COMMIT}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 7), max_size=8),
    st.integers(2, 12),
    st.integers(1, 5),
    st.integers(0, 4),
)
def test_a_host_that_forgets_its_cursor(
    batches: list[int], forgotten: int, page: int, since: int
) -> None:
    """It is asked once more from the last revision that came whole: each op comes once."""
    log = Log(batches, {forgotten})
    after = tid.encode(1000 + since, 0) if since else None
    pages = list(told(log).ops(after, page=page))
    assert [op.rkey for each in pages for op in each.ops] == [
        op["rkey"] for op in log.ops if op["rev"] > (after or "")
    ]
    assert [each.commit is None for each in pages] == [True] * (len(pages) - 1) + [False]


def test_a_host_that_always_forgets_its_cursor() -> None:
    log = Log([5, 5], set(range(100)))
    with pytest.raises(HostRefused, match="MalformedCursor"):
        list(told(log).ops(None, page=3))
    assert log.asked == 4


def test_content_in_a_form_that_nobody_else_has() -> None:
    odd = "QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWKp7PH"
    for repo, ask in (
        (always({"uri": SPACE, "cid": odd, "value": {}}), lambda repo: repo.get(NOTE, "a")),
        (always({"cids": [odd]}), lambda repo: list(repo.blobs())),
    ):
        with pytest.raises((Damaged, Unreachable)):
            ask(repo)


def test_an_op() -> None:
    op = {"rev": COMMIT["rev"], "collection": NOTE, "rkey": "a", "cid": None, "prev": CID_TEXT}
    (page,) = always({"ops": [op]}).ops(None)
    assert page.ops == [
        RemoteOp("3mbo6jo6e222b", NOTE, "a", None, CID.parse(CID_TEXT), None),
    ]


# Writing


def test_what_a_batch_is_sent_as() -> None:
    bodies: list[Any] = []

    def answer(_: str, __: dict[str, str], body: bytes) -> Any:
        bodies.append(json.loads(body))
        result = "com.atproto.space.applyWrites#createResult"
        uri = f"{SPACE}/{AUTHOR}/{NOTE}/minted"
        return {
            "results": [
                {"$type": result, "uri": uri, "cid": CID_TEXT},
                {"$type": result.replace("create", "update"), "uri": uri, "cid": CID_TEXT},
                {"$type": result.replace("create", "delete")},
            ]
        }

    writes: list[Write] = [
        Create(NOTE, None, note("é", at=b"\x01", to=CID.parse(CID_TEXT))),
        Update(NOTE, "a", note("b"), expected=CID.parse(CID_TEXT)),
        Delete(NOTE, "c"),
    ]
    assert told(answer).apply(writes) == [
        Written(NOTE, "minted", CID.parse(CID_TEXT)),
        Written(NOTE, "a", CID.parse(CID_TEXT)),
        Written(NOTE, "c", None),
    ]
    kind = "com.atproto.space.applyWrites#"
    value = note("é", at={"$bytes": "AQ"}, to={"$link": CID_TEXT})
    assert bodies == [
        {
            "space": SPACE,
            "repo": AUTHOR,
            "writes": [
                {"$type": kind + "create", "collection": NOTE, "value": value},
                {"$type": kind + "update", "collection": NOTE, "rkey": "a", "value": note("b")},
                {"$type": kind + "delete", "collection": NOTE, "rkey": "c"},
            ],
        }
    ]


@pytest.mark.parametrize("answer", [{}, {"results": []}])
def test_a_host_that_does_not_say_what_it_wrote(answer: Any) -> None:
    with pytest.raises(Unreachable) as error:
        always(answer).apply([Delete(NOTE, "a")])
    assert error.value.sent


def test_a_host_that_does_not_say_where_it_wrote() -> None:
    result = {"$type": "com.atproto.space.applyWrites#createResult", "cid": CID_TEXT, "uri": SPACE}
    with pytest.raises(Unreachable) as error:
        always({"results": [result]}).apply([Create(NOTE, None, note("a"))])
    assert error.value.sent


def test_a_value_that_has_no_json() -> None:
    def answer(*_: Any) -> Any:
        raise AssertionError("something was sent")

    with pytest.raises(InvalidRecord):
        told(answer).apply([Create(NOTE, "a", {"text": "\ud800"})])


_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=400)
_writes = st.lists(
    st.one_of(
        st.builds(
            lambda key, text: Create(NOTE, f"k{key}", note(text)), st.integers(0, 99), _texts
        ),
        st.builds(lambda key: Delete(NOTE, f"k{key}"), st.integers(0, 99)),
    ),
    max_size=30,
)


@settings(deadline=None)
@given(_writes, st.integers(1, 8), st.integers(400, 3000))
def test_batches(writes: list[Write], most: int, body: int) -> None:
    """Nothing is left out, each batch is within the limits, and none could take the next write."""
    sent: list[bytes] = []

    def answer(_: str, __: dict[str, str], content: bytes) -> Any:
        sent.append(content)
        return {"results": []}

    repo = told(answer, limits=Limits(most, body))
    batches = list(repo.batches(iter(writes)))
    assert [write for batch in batches for write in batch] == writes
    for number, batch in enumerate(batches):
        sent.clear()
        try:
            repo.apply(batch)
        except Unreachable:
            assert 0 < len(sent[0]) <= body
            assert len(batch) <= most
        except InvalidInput:
            assert len(batch) == 1
            assert len(encode(batch[0]).encode()) > body - 200
        if sent and number + 1 < len(batches):
            more = len(encode(batches[number + 1][0]).encode()) + 1
            assert len(batch) == most or len(sent[0]) + more > body


# Blobs


def test_a_blob_that_the_host_got_otherwise() -> None:
    other = {"$type": "blob", "ref": {"$link": str(CID.for_raw(b"other"))}, "mimeType": "a/b"}
    with pytest.raises(Damaged, match="another blob"):
        always({"blob": other | {"size": 5}}).upload_blob(b"mine", CID.for_raw(b"mine"))


def test_a_blob_with_other_bytes() -> None:
    cid = CID.for_raw(b"mine")
    assert always(httpx.Response(200, content=b"mine")).get_blob(cid) == b"mine"
    with pytest.raises(Damaged, match="other bytes"):
        always(httpx.Response(200, content=b"yours")).get_blob(cid)


def test_blobs_come_once() -> None:
    one, two = (str(CID.for_raw(each)) for each in (b"1", b"2"))
    pages = {"": {"cids": [one, two], "cursor": "1"}, "1": {"cids": [two]}}
    repo = told(lambda _, params, __: pages[params.get("cursor", "")])
    assert list(map(str, repo.blobs())) == [one, two]
