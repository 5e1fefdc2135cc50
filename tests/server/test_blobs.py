"""Blobs: uploaded, referred to, read by those who may, and gone when nobody needs them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from lettaspace.atproto.cid import CID
from lettaspace.server import tables, uploads
from lettaspace.space import schema
from tests.server.hosts import serving
from tests.server.test_records import SPACE, WRITE, Repo
from tests.server.worlds import NOTE, World, world

UPLOAD = "/xrpc/com.atproto.repo.uploadBlob"
DAY = 24 * 3600


@pytest.fixture
def repo(target) -> Iterator[Repo]:
    with world(target) as there:
        yield Repo(there)


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Iterator[Repo]:
    with world(str(tmp_path_factory.mktemp("host") / "host.db")) as there:
        yield Repo(there)


def upload(repo: Repo, content: bytes, mime: str = "image/png") -> Any:
    answer = post(repo, content, mime)
    assert answer.status_code == 200, answer.text
    return answer.json()["blob"]


def post(repo: Repo, content: Any, mime: str) -> httpx.Response:
    headers = [*repo.headers, ("content-type", mime)]
    return repo.there.client.post(UPLOAD, content=content, headers=headers)


def of(there: World, name: str, space: str = "open") -> Repo:
    """The repo of another account."""
    repo = Repo(there, space)
    repo.headers, repo.did = there.session(name), there.dids[name]
    return repo


def stored(repo: Repo) -> set[str]:
    with repo.there.host.database.read() as connection:
        rows = connection.execute(select(schema.blobs.c.cid)).scalars()
        return {str(CID.from_bytes(raw)) for raw in rows}


def clean(repo: Repo) -> int:
    return uploads.clean(repo.there.host.database, repo.there.clock())


def link(blob: Any) -> str:
    return str(blob["ref"]["$link"])


def test_an_upload_tells_what_to_refer_to(shared):
    blob = upload(shared, b"hello", "Image/PNG; charset=x")
    cid = str(CID.for_raw(b"hello"))
    assert blob == {"$type": "blob", "ref": {"$link": cid}, "mimeType": "image/png", "size": 5}
    assert upload(shared, b"hello") == blob
    assert upload(shared, b"")["size"] == 0


def test_a_blob_is_read_where_a_record_refers_to_it_and_nowhere_else(repo):
    there = repo.there
    blob = upload(repo, b"picture")
    values = {"cid": link(blob)}
    assert repo.refused("getBlob", **values) == (400, "BlobNotFound")
    repo.create("a", {"deep": [{"in": {"it": blob}}]})
    answer = repo.call("getBlob", **values)
    assert answer.content == b"picture"
    assert answer.headers["content-type"] == "image/png"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-disposition"] == "attachment"
    assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
    # Not in another space, nor from another repo of the space.
    assert Repo(there, "other").refused("getBlob", **values) == (400, "BlobNotFound")
    assert of(there, "yuki").refused("getBlob", **values) == (400, "BlobNotFound")
    # Not to the public, whatever way it asks.
    for name in ("getBlob", "listBlobs", "getRepo"):
        answer = there.client.get(
            f"/xrpc/com.atproto.sync.{name}", params={"did": repo.did} | values
        )
        assert answer.status_code == 501
    # A credential of the space reads it.
    headers = there.with_credential(SPACE + "getBlob", repo.did)
    answer = there.call(SPACE + "getBlob", headers, space=repo.space, repo=repo.did, **values)
    assert answer.content == b"picture"
    headers = there.with_credential(SPACE + "getBlob", there.dids["yuki"])
    answer = there.call(
        SPACE + "getBlob", headers, space=repo.space, repo=there.dids["yuki"], **values
    )
    assert answer.json()["error"] == "BlobNotFound"


def test_the_record_must_be_a_current_one(repo):
    blob = upload(repo, b"picture")
    repo.create("a", {"blob": blob})
    repo.ok("putRecord", collection=NOTE, rkey="a", record={"blob": None})
    assert repo.refused("getBlob", cid=link(blob)) == (400, "BlobNotFound")
    repo.ok("putRecord", collection=NOTE, rkey="a", record={"blob": blob})
    assert repo.call("getBlob", cid=link(blob)).content == b"picture"
    repo.ok("deleteRecord", collection=NOTE, rkey="a")
    assert repo.refused("getBlob", cid=link(blob)) == (400, "BlobNotFound")


@pytest.mark.parametrize(
    "changes",
    [
        {"size": 6},
        {"mimeType": "image/jpeg"},
        {"ref": {"$link": str(CID.for_raw(b"never uploaded"))}},
    ],
    ids=str,
)
@pytest.mark.parametrize("validate", [None, False])
def test_what_a_record_says_of_a_blob_is_so(shared, changes, validate):
    blob = upload(shared, b"12345") | changes
    values = {} if validate is None else {"validate": validate}
    refused = shared.refused("createRecord", collection=NOTE, record={"b": blob}, **values)
    assert refused == (400, "InvalidRecord")
    write = {"$type": WRITE + "create", "collection": NOTE, "value": {"b": blob}}
    assert shared.refused("applyWrites", writes=[write], **values) == (400, "InvalidRecord")
    refused = shared.refused("putRecord", collection=NOTE, rkey="first", record={"b": blob})
    assert refused == (400, "InvalidRecord")


def test_the_old_form_of_a_blob_is_refused(shared):
    old = {"cid": str(CID.for_raw(b"x")), "mimeType": "image/png"}
    refused = shared.refused("createRecord", collection=NOTE, record={"b": [old]})
    assert refused == (400, "InvalidRecord")
    # Which has exactly two fields.
    shared.ok("createRecord", collection=NOTE, record={"b": old | {"more": 1}})


def test_whoever_knows_the_cid_of_anothers_blob_does_not_get_at_it(repo):
    theirs = upload(of(repo.there, "yuki"), b"secret")
    refused = repo.refused("createRecord", collection=NOTE, record={"b": theirs})
    assert refused == (400, "InvalidRecord")
    # Whoever has the bytes may.
    assert upload(repo, b"secret") == theirs
    repo.create("a", {"b": theirs})
    assert repo.call("getBlob", cid=link(theirs)).content == b"secret"


def test_the_type_is_the_one_of_the_last_upload(shared):
    old = upload(shared, b"typed", "text/plain")
    new = upload(shared, b"typed", "text/markdown")
    assert shared.refused("createRecord", collection=NOTE, record={"b": old})[0] == 400
    shared.ok("createRecord", collection=NOTE, record={"b": new})
    answer = shared.call("getBlob", cid=link(new))
    assert answer.headers["content-type"] == "text/markdown"


def test_a_blob_has_its_limit(tmp_path):
    with serving(str(tmp_path / "host.db"), blob_limit=1000) as server:
        account = server.add_account()
        token = server.sign_in()["accessJwt"]
        headers = {"authorization": f"Bearer {token}", "content-type": "image/png"}

        def send(content: Any) -> httpx.Response:
            return server.client.post(UPLOAD, content=content, headers=headers)

        assert send(b"x" * 1000).status_code == 200
        answer = send(b"x" * 1001)
        assert (answer.status_code, answer.json()["error"]) == (413, "PayloadTooLarge")
        # Without a length, too: taken in up to the limit and no further.
        answer = send(iter([b"x" * 600, b"x" * 600]))
        assert answer.status_code == 413
        assert send(iter([b"x" * 600])).json()["blob"]["size"] == 600
        assert account.is_active


def test_an_upload_needs_a_type_and_a_session(shared):
    answer = shared.there.client.post(UPLOAD, content=b"x", headers=shared.headers)
    assert (answer.status_code, answer.json()["error"]) == (400, "InvalidRequest")
    answer = shared.there.client.post(UPLOAD, content=b"x", headers={"content-type": "image/png"})
    assert (answer.status_code, answer.json()["error"]) == (401, "AuthMissing")
    for name, error in (("gone", "AccountTakedown"), ("still", "RepoDeactivated")):
        answer = post(of(shared.there, name), b"x", "image/png")
        assert answer.json()["error"] == error


@pytest.mark.parametrize("cid", ["x", str(CID.for_cbor(b"\xa0"))])
def test_other_cids_are_no_blobs(shared, cid):
    assert shared.refused("getBlob", cid=cid)[0] == 400


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(st.lists(st.integers(0, 15), max_size=4), max_size=6), st.integers(1, 5))
def test_paging_gives_each_blob_once_in_order(shared, records, limit):
    shared.clear()
    blobs = [upload(shared, b"listed %d" % n) for n in range(16)]
    before = shared.rev
    revs = []
    for n, chosen in enumerate(records):
        record = {"blobs": [blobs[each] for each in chosen]}
        shared.ok("putRecord", collection=NOTE, rkey=f"r{n}", record=record)
        revs.append(shared.rev)
    expected = {link(blobs[each]) for chosen in records for each in chosen}
    assert paged(shared, limit) == sorted(expected)
    assert paged(shared, limit, since=before) == sorted(expected)
    for n, rev in enumerate(revs):
        later = {link(blobs[each]) for chosen in records[n + 1 :] for each in chosen}
        assert paged(shared, limit, since=rev) == sorted(later)


def paged(repo: Repo, limit: int, **values: Any) -> list[str]:
    found: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = repo.ok("listBlobs", limit=limit, **values, **cursor)
        found += page["cids"]
        assert ("cursor" in page) == (len(page["cids"]) == limit)
        if "cursor" not in page:
            return found
        cursor = {"cursor": page["cursor"]}


@pytest.mark.parametrize("cursor", ["x", "bafkrei", "at://x"])
def test_a_malformed_cursor(shared, cursor):
    assert shared.refused("listBlobs", cursor=cursor) == (400, "MalformedCursor")


# What nobody needs


def test_an_upload_waits_a_day_for_a_record(repo):
    blob = upload(repo, b"waiting")
    repo.there.clock.pass_(DAY - 1)
    assert clean(repo) == 0
    repo.there.clock.pass_(2)
    assert clean(repo) == 1
    assert link(blob) not in stored(repo)
    repo.there.sessions["mira"] = repo.there.sign_in("mira.localhost")
    repo.headers = repo.there.session("mira")
    refused = repo.refused("createRecord", collection=NOTE, record={"b": blob})
    assert refused == (400, "InvalidRecord")


def test_a_blob_lives_while_any_record_refers_to_it(repo):
    there = repo.there
    others = of(there, "yuki", "other")
    blob = upload(repo, b"kept")
    upload(others, b"kept")
    repo.create("a", {"b": blob})
    repo.create("b", {"b": blob})
    others.create("c", {"b": blob})
    repo.ok("deleteRecord", collection=NOTE, rkey="a")
    there.clock.pass_(2 * DAY)
    for name in ("mira", "yuki"):
        there.sessions[name] = there.sign_in(f"{name}.localhost")
    repo.headers, others.headers = there.session("mira"), there.session("yuki")
    assert clean(repo) == 0
    repo.ok("deleteRecord", collection=NOTE, rkey="b")
    assert clean(repo) == 0  # another account's record refers to it
    assert others.call("getBlob", cid=link(blob)).content == b"kept"
    # This account has none any more, and its upload is over.
    assert repo.refused("createRecord", collection=NOTE, record={"b": blob})[0] == 400
    others.ok("deleteRecord", collection=NOTE, rkey="c")
    assert clean(repo) == 1
    assert link(blob) not in stored(repo)


def test_a_blob_may_be_referred_to_again_at_any_time_while_it_is(repo):
    blob = upload(repo, b"again")
    repo.create("a", {"b": blob})
    repo.there.clock.pass_(2 * DAY)
    repo.there.sessions["mira"] = repo.there.sign_in("mira.localhost")
    repo.headers = repo.there.session("mira")
    clean(repo)
    # In one batch its last record goes and another one comes.
    repo.ok(
        "applyWrites",
        writes=[
            {"$type": WRITE + "delete", "collection": NOTE, "rkey": "a"},
            {"$type": WRITE + "create", "collection": NOTE, "rkey": "b", "value": {"b": blob}},
        ],
    )
    assert clean(repo) == 0
    assert repo.call("getBlob", cid=link(blob)).content == b"again"


def test_cleaning_takes_nothing_from_those_who_write_meanwhile(repo):
    """Uploads are as good as over at once here, so that each is in danger at every moment."""
    there = repo.there
    host = there.host
    over = threading.Event()
    faults: list[str] = []

    def sweep() -> None:
        while not over.is_set():
            uploads.clean(host.database, there.clock() + 2 * DAY)

    def write(number: int) -> None:
        for n in range(25):
            blob = upload(repo, b"%d of %d" % (n, number))
            answer = repo.call(
                "createRecord", collection=NOTE, rkey=f"{number}-{n}", record={"b": blob}
            )
            if answer.status_code == 200:
                content = repo.call("getBlob", cid=link(blob)).content
                if content != b"%d of %d" % (n, number):
                    faults.append(f"{number}-{n} has lost its blob")
            elif answer.json()["error"] != "InvalidRecord":  # it came too late
                faults.append(answer.text)

    sweeper = threading.Thread(target=sweep)
    writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in (sweeper, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    over.set()
    sweeper.join()
    assert faults == []
    with host.database.read() as connection:
        refs, blobs = schema.blob_refs.c, schema.blobs.c
        lost = select(refs.cid).where(refs.cid.not_in(select(blobs.cid)))
        assert connection.execute(lost).all() == []
        kept = tables.uploads.c
        lost = select(kept.cid).where(kept.cid.not_in(select(blobs.cid)))
        assert connection.execute(lost).all() == []
