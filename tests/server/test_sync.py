"""How others keep a copy of a repo: commits, the log, whole repos."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from lettaspace.atproto import car, data
from lettaspace.atproto.commit import Commit
from lettaspace.errors import LettaspaceError
from lettaspace.server import maintenance, repos, sync
from lettaspace.space import schema
from lettaspace.space.car import RepoReader, read_repo
from lettaspace.space.sethash import SetHash, element
from lettaspace.space.verify import repo_problems
from tests.server.test_records import SPACE, WRITE, Repo
from tests.server.worlds import NOTE, world
from tests.waiting import SECONDS


@pytest.fixture
def repo(target) -> Iterator[Repo]:
    with world(target) as there:
        yield Repo(there)


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Iterator[Repo]:
    with world(str(tmp_path_factory.mktemp("host") / "host.db")) as there:
        yield Repo(there)


def commit_of(repo: Repo, answer: Any) -> Commit:
    """The commit in an answer, verified."""
    commit = Commit.from_value(data.from_json(answer["commit"]))
    key = repo.there.keys["mira"].verifying_key
    assert commit.is_valid(repo.space, repo.did, key)
    return commit


def car_of(repo: Repo, **values: Any) -> bytes:
    answer = repo.call("getRepo", **values)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/vnd.ipld.car"
    return answer.content


def read(repo: Repo, content: bytes) -> tuple[Commit, dict[str, Any]]:
    key = repo.there.keys["mira"].verifying_key
    commit, _, records = read_repo([content], space=repo.space, author=repo.did, key=key)
    return commit, {f"{r.collection}/{r.rkey}": r.value for r in records}


def all_ops(repo: Repo, limit: int, **values: Any) -> tuple[list[Any], Any]:
    """The log page by page, and the answer it ends with; every page is as the protocol has it."""
    ops: list[Any] = []
    cursor: dict[str, str] = {}
    while True:
        page = repo.ok("listRepoOps", limit=limit, **values, **cursor)
        ops += page["ops"]
        full = len(page["ops"]) == limit
        assert ("cursor" in page, "commit" in page) == (full, not full)
        if not full:
            return ops, page
        cursor = {"cursor": page["cursor"]}


def fold(ops: list[Any]) -> tuple[dict[str, str], bytes]:
    """What a log makes of an empty repo, and the hash of that."""
    found: dict[str, str] = {}
    for op in ops:
        path = f"{op['collection']}/{op['rkey']}"
        assert found.get(path) == op["prev"]
        if op["cid"] is None:
            del found[path]
        else:
            found[path] = op["cid"]
    set_hash = SetHash()
    for path, cid in found.items():
        set_hash.add(element(*path.split("/"), cid))
    return found, set_hash.digest()


def test_the_latest_commit_is_made_for_each_reader(repo):
    first, second = (commit_of(repo, repo.ok("getLatestCommit")) for _ in range(2))
    assert (first.rev, first.hash) == (second.rev, second.hash)
    assert first.ikm != second.ikm
    assert first.sig != second.sig
    repo.create("a")
    third = commit_of(repo, repo.ok("getLatestCommit"))
    assert third.rev > first.rev
    assert third.hash != first.hash


def test_a_repo_has_everything_in_it(repo):
    repo.create("a", {"n": 1})
    repo.create("b", {"n": 1})  # the same bytes, twice in the repo
    repo.create("c", {"n": 2}, collection="com.example.z")
    commit, records = read(repo, car_of(repo))
    assert commit.rev == repo.rev
    assert set(records) == {f"{NOTE}/first", f"{NOTE}/a", f"{NOTE}/b", "com.example.z/c"}
    assert records[f"{NOTE}/b"] == {"$type": NOTE, "n": 1}
    assert commit.ikm != read(repo, car_of(repo))[0].ikm


def test_a_repo_without_values_ends_with_the_index(repo):
    repo.create("a", {"n": 1})
    reader = RepoReader(whole := car.Reader([car_of(repo, excludeValues=True)]))
    reader.check_commit(repo.space, repo.did, repo.there.keys["mira"].verifying_key)
    assert len(reader.index) == 2
    assert whole.next() is None


def test_an_empty_repo_that_was_written_is_one(repo):
    repo.clear()
    commit, records = read(repo, car_of(repo))
    assert records == {}
    assert commit.hash == SetHash().digest()
    assert fold(repo.ok("listRepoOps")["ops"])[1] == commit.hash


def test_a_repo_is_of_one_moment_while_it_is_written_to(repo):
    """The reference fails here: eight of a hundred downloads did not match their own hash."""
    writes = [
        {"$type": WRITE + "create", "collection": NOTE, "rkey": f"r{n}", "value": {"n": 0}}
        for n in range(200)
    ]
    repo.ok("applyWrites", writes=writes)
    over = threading.Event()
    counts = [0, 0]

    def write(number: int) -> None:
        while not over.is_set():
            changed = [
                {"$type": WRITE + "update", "collection": NOTE, "rkey": f"r{n}",
                 "value": {"n": counts[number], "by": number}}
                for n in range(number, 200, 7)
            ]  # fmt: skip
            assert repo.call("applyWrites", writes=changed).status_code == 200
            counts[number] += 1

    threads = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    try:
        revs = set()
        for number in range(1000):
            if number >= 25 and len(revs) > 1 and min(counts) > 1:
                break  # later where this machine lets the writers wait
            commit, records = read(repo, car_of(repo))
            assert len(records) == 201
            revs.add(commit.rev)
            answer = repo.ok("listRepoOps", since=commit.rev, limit=1000)
            if "commit" in answer:
                commit_of(repo, answer)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert len(revs) > 1
    assert min(counts) > 1


def test_the_log_tells_everything_once_in_order(repo):
    repo.create("a", {"n": 1})
    repo.ok("putRecord", collection=NOTE, rkey="a", record={"n": 2})
    repo.create("b")
    repo.ok("deleteRecord", collection=NOTE, rkey="b")
    ops, last = all_ops(repo, 100)
    assert [op["rkey"] for op in ops] == ["first", "a", "a", "b", "b"]
    assert [(op["prev"] is None, op["cid"] is None) for op in ops] == [
        (True, False), (True, False), (False, False), (True, False), (False, True),
    ]  # fmt: skip
    # Only what is stored now has a value.
    assert [op.get("value", {}).get("n") for op in ops] == [None, None, 2, None, None]
    assert [("value" in op) for op in ops] == [True, False, True, False, False]
    commit = commit_of(repo, last)
    assert fold(ops)[1] == commit.hash
    assert ops[-1]["rev"] == commit.rev
    assert all("value" not in op for op in all_ops(repo, 100, excludeValues=True)[0])


def test_an_old_version_that_is_the_same_again(shared):
    for n in (1, 2, 1):
        shared.ok("putRecord", collection=NOTE, rkey="again", record={"n": n})
    ops = [op for op in all_ops(shared, 100)[0] if op["rkey"] == "again"]
    assert ops[0]["cid"] == ops[2]["cid"]
    assert ["value" in op for op in ops] == [False, False, True]


RKEYS = st.sampled_from("abc")
BATCHES = st.lists(
    st.lists(st.tuples(st.sampled_from(["put", "delete"]), RKEYS), min_size=1, max_size=4),
    max_size=5,
)


@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(BATCHES, st.integers(1, 6))
def test_pages_of_the_log_fold_to_the_commit(shared, batches, limit):
    before = shared.rev
    base, _ = fold(all_ops(shared, 1000)[0])
    there = {path.partition("/")[2] for path in base if path.startswith(NOTE + "/")}
    written = 0
    for batch in batches:
        writes = []
        for kind, rkey in batch:
            if kind == "delete" and rkey not in there:
                continue
            action = "delete" if kind == "delete" else "update" if rkey in there else "create"
            write = {"$type": WRITE + action, "collection": NOTE, "rkey": rkey}
            if action == "delete":
                there.discard(rkey)
            else:
                there.add(rkey)
                write["value"] = {"n": written}
            writes.append(write)
            written += 1
        shared.ok("applyWrites", writes=writes)
    ops, last = all_ops(shared, limit, since=before)
    assert len(ops) == written
    everything, _ = all_ops(shared, limit)
    assert everything[len(everything) - written :] == ops
    assert [op["rev"] for op in everything] == sorted(op["rev"] for op in everything)
    commit = commit_of(shared, last)
    found, digest = fold(everything)
    assert digest == commit.hash
    assert {path for path in found if path.startswith(NOTE)} >= {f"{NOTE}/{k}" for k in there}


def test_cursors_of_the_log_keep_to_since(shared):
    for rkey in ("s1", "s2", "s3"):
        shared.ok("putRecord", collection=NOTE, rkey=rkey, record={})
    ops, _ = all_ops(shared, 1000)
    since = ops[-3]["rev"]
    # A cursor from before `since` leads to nothing that `since` excludes.
    page = shared.ok("listRepoOps", since=since, cursor=f"{ops[0]['rev']}/0")
    assert page["ops"] == ops[-2:]
    # A page that ends at the head exactly is full all the same: one more request follows.
    page = shared.ok("listRepoOps", since=since, limit=2)
    assert page["cursor"] == f"{ops[-1]['rev']}/0"
    assert "commit" not in page
    page = shared.ok("listRepoOps", since=since, limit=2, cursor=page["cursor"])
    assert page["ops"] == []
    commit_of(shared, page)


@pytest.mark.parametrize("since", ["2222222222222", "jzzzzzzzzzzzz", "3jzfcijpj2z2a"])
def test_a_since_that_never_was_is_no_error(shared, since):
    answer = shared.ok("listRepoOps", since=since, limit=1000)
    ops, _ = all_ops(shared, 1000)
    assert answer["ops"] == [op for op in ops if op["rev"] > since]
    assert "commit" in answer


@pytest.mark.parametrize(
    "cursor",
    [
        "x",
        "/",
        "3jzfcijpj2z2a",
        *(f"3jzfcijpj2z2a/{index}" for index in ("", "-1", "a", "1 ", "9999999999", "9" * 30)),
        "0000000000000/1",
    ],
)
def test_a_malformed_cursor_of_the_log(shared, cursor):
    assert shared.refused("listRepoOps", cursor=cursor) == (400, "MalformedCursor")


def test_a_page_of_large_values_ends_early(shared):
    before = shared.rev
    for n in range(12):
        shared.create(f"large{n}", {"text": "x" * 900_000}, collection="com.example.large")
    page = shared.ok("listRepoOps", since=before, limit=1000)
    assert 1 < len(page["ops"]) < 12
    assert "commit" not in page
    rest = shared.ok("listRepoOps", since=before, limit=1000, cursor=page["cursor"])
    assert len(page["ops"]) + len(rest["ops"]) == 12
    assert "commit" in rest
    shared.clear()


def test_never_written(target):
    with world(target) as there:
        values = {"space": there.spaces["open"], "repo": there.dids["noa"]}
        session = there.session("noa")
        assert there.call(SPACE + "listRepoOps", session, **values).json() == {"ops": []}
        for name in ("getLatestCommit", "getRepo"):
            answer = there.call(SPACE + name, session, **values)
            assert (answer.status_code, answer.json()["error"]) == (400, "RepoNotFound")


# Compaction


def logged(repo: Repo) -> int:
    query = select(func.count()).select_from(schema.ops).where(schema.ops.c.repo == row(repo))
    with repo.there.host.database.read() as connection:
        return int(connection.execute(query).scalar_one())


def row(repo: Repo) -> int:
    with repo.there.host.database.read() as connection:
        head = repos.head(connection, repo.space, repo.did)
    assert head is not None
    return head.id


def test_old_entries_go_and_the_newest_stay(repo):
    for n in range(30):
        repo.ok("putRecord", collection=NOTE, rkey=f"k{n % 3}", record={"n": n})
    repo.create("early")
    for n in range(10):
        repo.ok("putRecord", collection=NOTE, rkey="k0", record={"n": n})
    database = repo.there.host.database
    ops, _ = all_ops(repo, 1000)
    assert sync.compact_ops(database, row(repo), keep=1000) == 0
    assert sync.compact_ops(database, row(repo), keep=len(ops)) == 0
    gone = sync.compact_ops(database, row(repo), keep=5)
    assert logged(repo) == len(ops) - gone
    left, last = all_ops(repo, 2)
    assert left[-5:] == ops[-5:]
    # Of each record that is still there, its last entry is.
    assert {op["rkey"] for op in left} == {"first", "k0", "k1", "k2", "early"}
    assert logged(repo) <= 5 + 5
    # Who knows the newest still only gets what is new; a reader from before sees the hash differ.
    assert repo.ok("listRepoOps", since=ops[-4]["rev"])["ops"] == ops[-3:]
    commit_of(repo, last)
    with database.read() as connection:
        problems = repo_problems(connection, row(repo), lambda *_: None, lambda *_: None)
        assert list(problems) == []
    assert sync.compact_ops(database, row(repo), keep=5) == 0


def test_entries_of_one_batch_stay_together(repo):
    for _ in range(3):
        repo.ok(
            "applyWrites",
            writes=[
                {"$type": WRITE + kind, "collection": NOTE, "rkey": "x"}
                | ({} if kind == "delete" else {"value": {}})
                for kind in ("create", "update", "delete")
            ],
        )
    sync.compact_ops(repo.there.host.database, row(repo), keep=2)
    ops, _ = all_ops(repo, 100)
    assert [op["rkey"] for op in ops] == ["first", "x", "x", "x"]


def test_compaction_of_a_long_log_while_it_is_written(repo, monkeypatch):
    monkeypatch.setattr(sync, "_SLICE", 7)
    for n in range(60):
        repo.ok("putRecord", collection=NOTE, rkey=f"k{n % 5}", record={"n": n})
    over = threading.Event()

    def write() -> None:
        for n in count():
            repo.ok("putRecord", collection=NOTE, rkey="busy", record={"n": n})
            if over.is_set():
                return

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(5):
            sync.compact_all(repo.there.host.database, keep=10)
    finally:
        over.set()
        thread.join()
    sync.compact_all(repo.there.host.database, keep=10)
    assert logged(repo) <= 10 + 7
    commit, records = read(repo, car_of(repo))
    assert len(records) == 7
    with repo.there.host.database.read() as connection:
        problems = repo_problems(connection, row(repo), lambda *_: None, lambda *_: None)
        assert list(problems) == []
    assert commit.rev == repo.rev


# Whole repos come and go


def test_a_repo_that_was_emptied_begins_anew(repo):
    repo.create("a")
    before = repo.rev
    with repo.there.host.database.write() as connection:
        repos.empty(connection, repo.space, repo.did)
    for name in ("getLatestCommit", "getRepo"):
        assert repo.refused(name) == (400, "RepoNotFound")
    assert repo.ok("listRepoOps") == {"ops": []}
    assert repo.ok("listRecords") == {"records": []}
    assert repo.ok("listBlobs") == {"cids": []}
    repo.create("a")
    assert repo.rev > before
    _, records = read(repo, car_of(repo))
    assert set(records) == {f"{NOTE}/a"}
    assert fold(all_ops(repo, 10)[0])[1] == commit_of(repo, repo.ok("getLatestCommit")).hash


def test_only_so_many_downloads_at_once(repo):
    host = repo.there.host
    none_left = threading.BoundedSemaphore(1)
    none_left.acquire()

    params = {"space": repo.space, "repo": repo.did, "excludeValues": False}
    caller = host.sessions.read(repo.there.sessions["mira"]["accessJwt"])
    call = SimpleNamespace(params=params, caller=caller)
    answer = sync.get_repo(host, call, none_left)
    with pytest.raises(Exception, match="NotEnoughResources"):
        next(answer.body)
    none_left.release()
    answer = sync.get_repo(host, call, none_left)
    next(answer.body)
    assert not none_left.acquire(blocking=False)
    answer.body.close()
    assert none_left.acquire(blocking=False)


def test_maintenance_goes_on_after_a_failure(repo, monkeypatch):
    rounds = threading.Semaphore(0)

    def failing(_host) -> None:
        rounds.release()
        raise LettaspaceError

    monkeypatch.setattr(maintenance, "maintain", failing)
    worker = maintenance.Maintenance(repo.there.host, every=0.01)
    worker.start()
    assert all(rounds.acquire(timeout=SECONDS) for _ in range(3))
    worker.stop()
    maintenance.Maintenance(repo.there.host).stop()  # never started
