"""Writing and reading records over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lettaspace.atproto import cbor, data
from lettaspace.atproto.cid import CID
from lettaspace.atproto.syntax import is_tid
from lettaspace.server.records import MAX_DEPTH
from tests.server.worlds import NOTE, World, new_prover, world

SPACE = "com.atproto.space."
WRITE = SPACE + "applyWrites#"
MESSAGE = "xyz.quasigod.lab.letta.message"


class Repo:
    """mira's repo in a space, over HTTP with her session."""

    def __init__(self, there: World, space: str = "open") -> None:
        self.there = there
        self.headers = there.session("mira")
        self.space = there.spaces[space]
        self.did = there.dids["mira"]

    def call(self, name: str, **values: Any) -> Any:
        return self.there.call(
            SPACE + name, self.headers, space=self.space, repo=self.did, **values
        )

    def ok(self, name: str, **values: Any) -> Any:
        answer = self.call(name, **values)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def refused(self, name: str, **values: Any) -> tuple[int, str]:
        answer = self.call(name, **values)
        assert answer.status_code >= 400
        return answer.status_code, answer.json()["error"]

    def create(self, rkey: str, record: Any = None, collection: str = NOTE) -> Any:
        return self.ok("createRecord", collection=collection, rkey=rkey, record=record or {})

    def get(self, rkey: str, collection: str = NOTE) -> Any:
        return self.ok("getRecord", collection=collection, rkey=rkey)["value"]

    def clear(self) -> None:
        while records := self.ok("listRecords", limit=200, excludeValues=True)["records"]:
            writes = [
                {"$type": WRITE + "delete", "collection": r["collection"], "rkey": r["rkey"]}
                for r in records
            ]
            self.ok("applyWrites", writes=writes)

    @property
    def rev(self) -> str:
        return str(self.ok("getLatestCommit")["commit"]["rev"])


@pytest.fixture
def repo(target) -> Iterator[Repo]:
    with world(target) as there:
        yield Repo(there)


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Iterator[Repo]:
    """A repo for tests that do not mind what is in it."""
    with world(str(tmp_path_factory.mktemp("host") / "host.db")) as there:
        yield Repo(there)


def test_a_record_is_created_and_read(repo):
    made = repo.ok("createRecord", collection=NOTE, rkey="a", record={"text": "hi", "n": 1})
    uri = f"{repo.space}/{repo.did}/{NOTE}/a"
    value = {"$type": NOTE, "text": "hi", "n": 1}
    cid = str(CID.for_cbor(cbor.encode(value)))
    assert made == {"uri": uri, "cid": cid, "validationStatus": "unknown"}
    found = repo.ok("getRecord", collection=NOTE, rkey="a")
    assert found == {"uri": uri, "cid": cid, "value": value}


def test_without_a_key_it_gets_a_tid_that_rises(shared):
    keys = []
    for _ in range(3):
        made = shared.ok("createRecord", collection=NOTE, record={})
        keys.append(made["uri"].rpartition("/")[2])
    assert all(map(is_tid, keys))
    assert keys == sorted(set(keys))


def test_creating_twice(repo):
    repo.create("a", {"n": 1})
    rev = repo.rev
    again = repo.refused("createRecord", collection=NOTE, rkey="a", record={"n": 2})
    assert again == (400, "RecordAlreadyExists")
    assert repo.get("a")["n"] == 1
    assert repo.rev == rev


def test_putting_creates_then_replaces(repo):
    for n in (1, 2, 2):
        before = repo.rev
        repo.ok("putRecord", collection=NOTE, rkey="a", record={"n": n})
        assert repo.get("a")["n"] == n
        assert repo.rev > before  # also where nothing changes, as on the reference


def test_deleting_is_idempotent_and_writes_nothing_the_second_time(repo):
    repo.create("a")
    before = repo.rev
    assert repo.ok("deleteRecord", collection=NOTE, rkey="a") == {}
    after = repo.rev
    assert after > before
    assert repo.refused("getRecord", collection=NOTE, rkey="a") == (400, "RecordNotFound")
    assert repo.ok("deleteRecord", collection=NOTE, rkey="a") == {}
    assert repo.rev == after


def test_a_type_is_added_and_must_be_the_collection(shared):
    shared.create("typed", {"$type": NOTE})
    assert shared.get("typed") == {"$type": NOTE}
    other = {"$type": "com.example.other"}
    refused = shared.refused("createRecord", collection=NOTE, rkey="untyped", record=other)
    assert refused == (400, "InvalidRecord")
    refused = shared.refused("putRecord", collection=NOTE, rkey="typed", record=other)
    assert refused == (400, "InvalidRecord")


@pytest.mark.parametrize(
    ("collection", "record", "validate", "expected"),
    [
        (NOTE, {}, None, "unknown"),
        (NOTE, {}, True, (400, "InvalidRecord")),
        (NOTE, {}, False, None),
        (MESSAGE, {}, None, (400, "InvalidRecord")),
        (MESSAGE, {}, True, (400, "InvalidRecord")),
        (MESSAGE, {}, False, None),
        (MESSAGE, "good", None, "valid"),
        (MESSAGE, "good", True, "valid"),
        (MESSAGE, "good", False, None),
        # A lexicon, but not of records.
        ("xyz.quasigod.lab.letta.defs", {}, None, "unknown"),
        ("xyz.quasigod.lab.letta.defs", {}, True, (400, "InvalidRecord")),
    ],
)
def test_validation(shared, collection, record, validate, expected):
    if record == "good":
        record = message(shared)
    values = {} if validate is None else {"validate": validate}
    write = {"$type": WRITE + "create", "collection": collection, "value": record}
    if isinstance(expected, tuple):
        refused = shared.refused("createRecord", collection=collection, record=record, **values)
        assert refused == expected
        assert shared.refused("applyWrites", writes=[write], **values) == expected
        return
    made = shared.ok("createRecord", collection=collection, record=record, **values)
    assert made.get("validationStatus") == expected
    (made,) = shared.ok("applyWrites", writes=[write], **values)["results"]
    assert made.get("validationStatus") == expected


def test_keys_are_validated_too(shared):
    refused = shared.refused(
        "createRecord", collection=MESSAGE, rkey="not-a-tid", record=message(shared)
    )
    assert refused == (400, "InvalidRecord")
    shared.ok(
        "createRecord", collection=MESSAGE, rkey="no-tid", record=message(shared), validate=False
    )


def message(repo: Repo) -> dict[str, Any]:
    prefix = f"{repo.space}/{repo.did}/xyz.quasigod.lab.letta."
    return {
        "agent": f"{prefix}agent/a",
        "conversation": f"{prefix}conversation/3menoz54kffiz",
        "seq": 1,
        "role": "user",
        "createdAt": "2026-01-01T00:00:00.000Z",
        "message": {"format": "com.example.plain", "version": 1, "data": {"content": "hi"}},
    }


def test_a_batch_is_one_revision_and_sees_its_own_writes(repo):
    repo.create("old", {"n": 0})
    before = repo.rev
    results = repo.ok(
        "applyWrites",
        writes=[
            {"$type": WRITE + "create", "collection": NOTE, "rkey": "a", "value": {"n": 1}},
            {"$type": WRITE + "update", "collection": NOTE, "rkey": "a", "value": {"n": 2}},
            {"$type": WRITE + "delete", "collection": NOTE, "rkey": "old"},
            {"$type": WRITE + "create", "collection": NOTE, "rkey": "old", "value": {"n": 3}},
            {"$type": WRITE + "delete", "collection": NOTE, "rkey": "a"},
        ],
    )["results"]
    kinds = [result["$type"].rpartition("#")[2] for result in results]
    assert kinds == [
        "createResult", "updateResult", "deleteResult", "createResult", "deleteResult",
    ]  # fmt: skip
    assert results[0]["uri"] == f"{repo.space}/{repo.did}/{NOTE}/a"
    assert set(results[2]) == {"$type"}
    assert repo.refused("getRecord", collection=NOTE, rkey="a") == (400, "RecordNotFound")
    assert repo.get("old")["n"] == 3
    ops = repo.ok("listRepoOps", since=before)["ops"]
    assert len(ops) == 5
    assert len({op["rev"] for op in ops}) == 1


@pytest.mark.parametrize(
    ("last", "error"),
    [
        ({"$type": WRITE + "create", "collection": NOTE, "rkey": "first", "value": {}},
         "RecordAlreadyExists"),
        ({"$type": WRITE + "create", "collection": NOTE, "rkey": "new", "value": {}},
         "RecordAlreadyExists"),
        ({"$type": WRITE + "update", "collection": NOTE, "rkey": "none", "value": {}},
         "RecordNotFound"),
        ({"$type": WRITE + "delete", "collection": NOTE, "rkey": "none"}, "RecordNotFound"),
        ({"$type": WRITE + "create", "collection": NOTE, "value": {"$type": "a.b.c"}},
         "InvalidRecord"),
        ({"$type": WRITE + "create", "collection": "none", "value": {}}, "InvalidRequest"),
        ({"$type": "com.example.other", "collection": NOTE, "value": {}}, "InvalidRequest"),
    ],
)  # fmt: skip
def test_a_batch_leaves_nothing_if_one_write_fails(repo, last, error):
    before = repo.rev
    first = {"$type": WRITE + "create", "collection": NOTE, "rkey": "new", "value": {}}
    assert repo.refused("applyWrites", writes=[first, last]) == (400, error)
    assert repo.rev == before
    assert repo.refused("getRecord", collection=NOTE, rkey="new") == (400, "RecordNotFound")


def test_an_empty_batch_makes_no_repo(target):
    with world(target) as there:
        values = {"space": there.spaces["open"], "repo": there.dids["noa"]}
        session = there.session("noa")
        answer = there.call(SPACE + "applyWrites", session, writes=[], **values)
        assert answer.json() == {"results": []}
        answer = there.call(SPACE + "getLatestCommit", session, **values)
        assert answer.json()["error"] == "RepoNotFound"
        # Nor does one that fails, or that deletes what is not there.
        there.call(SPACE + "deleteRecord", session, collection=NOTE, rkey="a", **values)
        write = {"$type": WRITE + "delete", "collection": NOTE, "rkey": "a"}
        answer = there.call(SPACE + "applyWrites", session, writes=[write], **values)
        assert answer.json()["error"] == "RecordNotFound"
        answer = there.call(SPACE + "getRepo", session, **values)
        assert answer.json()["error"] == "RepoNotFound"


def test_a_batch_has_at_most_200_writes(shared):
    writes = [
        {"$type": WRITE + "create", "collection": "com.example.many", "value": {"n": n}}
        for n in range(201)
    ]
    answer = shared.call("applyWrites", writes=writes)
    assert answer.status_code == 400
    assert answer.json()["error"] == "InvalidRequest"
    assert "Too many writes" in answer.json()["message"]
    assert len(shared.ok("applyWrites", writes=writes[:200])["results"]) == 200


def test_parallel_creates_of_one_key_have_one_winner(repo):
    def create(n: int) -> str | None:
        answer = repo.call("createRecord", collection=NOTE, rkey="a", record={"n": n})
        return None if answer.status_code == 200 else answer.json()["error"]

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(create, range(16)))
    assert sorted(outcomes, key=str) == [None] + ["RecordAlreadyExists"] * 15


def test_parallel_writes_all_count(repo):
    def put(n: int) -> int:
        return repo.call("putRecord", collection=NOTE, rkey="a", record={"n": n}).status_code

    before = repo.rev
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(put, range(32))) == {200}
    ops = repo.ok("listRepoOps", since=before)["ops"]
    assert len({op["rev"] for op in ops}) == len(ops) == 32
    assert [op["prev"] for op in ops[1:]] == [op["cid"] for op in ops[:-1]]


def test_whoever_is_told_of_a_write_is_told_in_its_transaction(repo):
    told: list[Any] = []

    def written(connection, space, did, rev, digest):
        told.append((space, did, rev, len(digest)))
        return lambda: told.append("committed")

    repo.there.host.written = written
    repo.create("a")
    assert told == [(repo.space, repo.did, repo.rev, 32), "committed"]
    repo.ok("applyWrites", writes=[])
    repo.ok("deleteRecord", collection=NOTE, rkey="none")
    repo.refused("createRecord", collection=NOTE, rkey="a", record={})
    assert told.pop() == "committed"
    assert len(told) == 1


def test_a_write_stands_or_falls_with_who_is_told(tmp_path):
    with world(str(tmp_path / "host.db")) as there:
        repo = Repo(there)
        before = repo.rev

        def failing(*_):
            raise RuntimeError

        there.host.written = failing
        answer = repo.call("createRecord", collection=NOTE, rkey="a", record={})
        assert answer.status_code == 500
        assert repo.rev == before


@pytest.mark.parametrize(
    "changes",
    [
        {"space": "at://did:web:ada.example"},
        {"space": "at://did:web:ada.example/space/com.example.kind/x#y"},
        {"space": "at://did:web:ada.example/space/com.example.kind/x/"},
        {"repo": "mira.localhost"},
        {"repo": 1},
        {"collection": "note"},
        {"rkey": ".."},
        {"rkey": "x" * 513},
        {"rkey": "a/b"},
        {"record": None},
        {"record": []},
        {"record": "text"},
        {"record": {"$type": 1}},
        {"record": {"n": 0.5}},
        {"record": {"n": 2**53}},
        {"record": {"l": {"$link": "no"}}},
        {"record": {"b": {"$type": "blob"}}},
        {"record": {"b": "\ud800"}},
        {"record": {"__proto__": {}}},
        {"validate": "yes"},
    ],
    ids=str,
)
def test_what_is_malformed_is_refused(shared, changes):
    values = {"space": shared.space, "repo": shared.did, "collection": NOTE, "rkey": "a1"}
    values |= {"record": {}} | changes
    answer = shared.there.client.post(
        "/xrpc/com.atproto.space.createRecord",
        content=json.dumps(values),
        headers=[*shared.headers, ("content-type", "application/json")],
    )
    assert (answer.status_code, answer.json()["error"]) == (400, "InvalidRequest")


def test_a_space_may_have_a_long_name_but_not_any(shared):
    did = "did:web:" + "a." * 600 + "example"
    answer = shared.there.call(
        SPACE + "createRecord",
        shared.headers,
        space=f"at://{did}/space/com.example.kind/" + "k" * 512,
        repo=shared.did,
        collection=NOTE,
        record={},
    )
    assert (answer.status_code, answer.json()["error"]) == (400, "InvalidSpaceUri")


def test_the_longest_names_there_can_be(target):
    with world(target) as there:
        repo = Repo(there)
        authority = "did:web:" + "a" * 300 + ".example"
        repo.space = f"at://{authority}/space/com.example.kind/" + "k" * 512
        collection = ".".join(["c" * 60] * 4) + ".example"
        repo.create("r" * 512, {"n": 1}, collection=collection)
        assert repo.get("r" * 512, collection=collection)["n"] == 1


@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: {"a": inner}])
def test_the_deepest_record_is_in_every_answer(shared, wrap):
    inner: Any = "x" * 600
    for _ in range(MAX_DEPTH - 1):
        inner = wrap(inner)
    shared.create("deep", {"d": inner}, collection="com.example.deep")
    assert shared.get("deep", collection="com.example.deep")["d"] == inner
    listed = shared.ok("listRecords", collection="com.example.deep")["records"]
    assert listed[0]["value"]["d"] == inner
    ops = shared.ok("listRepoOps", limit=1000)["ops"]
    assert ops[-1]["value"]["d"] == inner
    refused = shared.refused(
        "createRecord", collection=NOTE, rkey="deeper", record={"d": wrap(inner)}
    )
    assert refused == (400, "InvalidRecord")
    shared.ok("deleteRecord", collection="com.example.deep", rkey="deep")


def test_any_value_comes_back_as_it_was(shared):
    record = {
        "$type": NOTE,
        "": {"": None},
        "bom": "\ufeffstart",
        "emoji": "🏺 釉薬",
        "numbers": [0, -1, 2**53 - 1, -(2**53) + 1],
        "bytes": {"$bytes": "AAECAw"},
        "link": {"$link": str(CID.for_raw(b"x"))},
        "$schema": "https://example.com",
        "nul": "\0",
    }
    shared.create("odd", record)
    found = shared.ok("getRecord", collection=NOTE, rkey="odd")
    assert found["value"] == record
    assert found["cid"] == str(CID.for_cbor(cbor.encode(data.from_json(record))))
    shared.ok("deleteRecord", collection=NOTE, rkey="odd")


# Lists

NAMES = ["com.example.a", "com.example.a.b", "com.example.aa", "com.example.b"]
PATHS = st.sets(
    st.tuples(
        st.sampled_from(NAMES), st.sampled_from(["a", "B", "~", "-", "_", "a.b", "1", "z:z"])
    ),
    max_size=12,
)


def listed(repo: Repo, limit: int, **values: Any) -> list[str]:
    """All paths, page by page; every page is as the protocol has it."""
    paths: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = repo.ok("listRecords", limit=limit, **values, **cursor)
        records = page["records"]
        paths += [f"{record['collection']}/{record['rkey']}" for record in records]
        assert ("cursor" in page) == (len(records) == limit)
        if "cursor" not in page:
            return paths
        assert page["cursor"] == f"{repo.space}/{repo.did}/{paths[-1]}"
        cursor = {"cursor": page["cursor"]}


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(PATHS, st.integers(1, 5), st.booleans(), st.none() | st.sampled_from(NAMES))
def test_paging_gives_each_once_in_the_order_of_paths(shared, paths, limit, reverse, collection):
    shared.clear()
    writes = [
        {"$type": WRITE + "create", "collection": name, "rkey": rkey, "value": {}}
        for name, rkey in paths
    ]
    shared.ok("applyWrites", writes=writes)
    expected = sorted(
        (f"{name}/{rkey}" for name, rkey in paths if collection in (None, name)),
        reverse=not reverse,
    )
    values: dict[str, Any] = {"reverse": reverse} | (
        {} if collection is None else {"collection": collection}
    )
    assert listed(shared, limit, **values) == expected


def test_a_cursor_goes_on_where_it_was_whatever_was_deleted(shared):
    shared.clear()
    for rkey in "abcd":
        shared.create(rkey)
    page = shared.ok("listRecords", limit=2)
    shared.ok("deleteRecord", collection=NOTE, rkey="c")
    rest = shared.ok("listRecords", limit=5, cursor=page["cursor"])["records"]
    assert [record["rkey"] for record in rest] == ["b", "a"]


def test_values_are_left_out_when_asked(shared):
    shared.clear()
    shared.create("a", {"n": 1})
    (record,) = shared.ok("listRecords", excludeValues=True)["records"]
    assert set(record) == {"collection", "rkey", "cid"}
    (record,) = shared.ok("listRecords")["records"]
    assert record["value"] == {"$type": NOTE, "n": 1}


@pytest.mark.parametrize(
    "cursor", ["x", "at://", "at://a/b/c", "{repo}", "{repo}note/a", "{repo}com.example.note/a b"]
)
def test_a_malformed_cursor(shared, cursor):
    cursor = cursor.replace("{repo}", f"{shared.space}/{shared.did}/")
    assert shared.refused("listRecords", cursor=cursor) == (400, "MalformedCursor")


@pytest.mark.parametrize("limit", ["0", "1001", "-1", "ten", "1.5"])
def test_limits_out_of_range(shared, limit):
    assert shared.refused("listRecords", limit=limit) == (400, "InvalidRequest")


def test_a_page_of_large_records_ends_early(shared):
    shared.clear()
    for rkey in "abcdefghijkl":
        shared.create(rkey, {"text": "x" * 900_000})
    page = shared.ok("listRecords", limit=1000)
    assert 1 < len(page["records"]) < 12
    rest = shared.ok("listRecords", limit=1000, cursor=page["cursor"])
    assert len(page["records"]) + len(rest["records"]) == 12
    assert len(shared.ok("listRecords", limit=1000, excludeValues=True)["records"]) == 12
    shared.clear()


def test_a_credential_reads_what_its_space_has(repo):
    repo.create("a", {"n": 1})
    there = repo.there
    prover = new_prover()
    credential = there.mint(prover)
    for _ in range(2):  # the same fields are good for any method, and again
        for name, values in (
            ("getRecord", {"collection": NOTE, "rkey": "a"}),
            ("listRecords", {"limit": 3}),
        ):
            headers = there.present(prover, credential, SPACE + name, repo.did)
            answer = there.call(SPACE + name, headers, space=repo.space, repo=repo.did, **values)
            assert answer.status_code == 200
