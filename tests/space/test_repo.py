"""The embedded repo: batches, preconditions, the log, blobs, many processes."""

import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from lettaspace.atproto import cbor
from lettaspace.atproto import tid as tids
from lettaspace.atproto.cid import CID
from lettaspace.atproto.tid import TidClock
from lettaspace.errors import Conflict, InvalidInput, InvalidRecord, LettaspaceError, NotFound
from lettaspace.space.database import Database
from lettaspace.space.repo import EmbeddedRepo
from lettaspace.space.sethash import SetHash, element
from lettaspace.space.view import View
from lettaspace.space.writes import MAX_WRITES, Create, Delete, Op, Update
from tests.space.conftest import AUTHOR, SPACE, refuse_bad
from tests.waiting import SECONDS

NOTE = "com.example.note"


def state(repo):
    """Everything a reader of the repo can see."""
    return (
        [(record.collection, record.rkey, record.cid) for record in repo.records(NOTE)],
        list(repo.ops()),
        repo.rev(),
        repo.set_hash().state,
    )


def folded(repo):
    """The set hash of the stored records, from scratch."""
    set_hash = SetHash()
    for record in repo.records(NOTE):
        set_hash.add(element(record.collection, record.rkey, str(record.cid)))
    return set_hash.state


def test_a_record_comes_back_with_its_type_and_cid(repo):
    (written,) = repo.apply_writes([Create(NOTE, "a", {"text": "hi", "n": [1, None, True]})])
    record = repo.get(NOTE, "a")
    assert record.value == {"$type": NOTE, "text": "hi", "n": [1, None, True]}
    assert record.cid == written.cid == CID.for_cbor(cbor.encode(record.value))
    assert repo.get(NOTE, "b") is None


def test_a_create_without_a_key_gets_rising_tids(repo):
    keys = [repo.apply_writes([Create(NOTE, None, {})])[0].rkey for _ in range(50)]
    assert keys == sorted(set(keys))
    assert all(len(key) == 13 for key in keys)


def test_the_log_tells_each_write_in_order(repo):
    first, second = repo.apply_writes([Create(NOTE, "a", {"n": 1}), Create(NOTE, "b", {"n": 1})])
    (third,) = repo.apply_writes([Update(NOTE, "a", {"n": 2})])
    repo.apply_writes([Delete(NOTE, "b")])
    ops = list(repo.ops())
    assert [(op.index, op.rkey, op.cid, op.prev) for op in ops] == [
        (0, "a", first.cid, None),
        (1, "b", second.cid, None),
        (0, "a", third.cid, first.cid),
        (0, "b", None, second.cid),
    ]
    revs = [op.rev for op in ops]
    assert revs[0] == revs[1] < revs[2] < revs[3] == repo.rev()
    assert [op.rkey for op in repo.ops(since=revs[0])] == ["a", "b"]
    assert list(repo.ops(since=revs[3])) == []
    assert [op.rkey for op in repo.ops(limit=2)] == ["a", "b"]


def test_later_writes_of_a_batch_see_earlier_ones(repo):
    repo.apply_writes(
        [
            Create(NOTE, "a", {"n": 1}),
            Update(NOTE, "a", {"n": 2}),
            Create(NOTE, "b", {"n": 1}),
            Delete(NOTE, "b"),
            Create(NOTE, "c", {"n": 1}),
            Delete(NOTE, "c"),
            Create(NOTE, "c", {"n": 3}),
        ]
    )
    assert {record.rkey: record.value["n"] for record in repo.records(NOTE)} == {"a": 2, "c": 3}
    assert len(list(repo.ops())) == 7
    assert repo.set_hash().state == folded(repo)


@pytest.mark.parametrize(
    ("last", "error"),
    [
        (Create(NOTE, "old", {}), Conflict),
        (Update(NOTE, "none", {}), NotFound),
        (Delete(NOTE, "none"), NotFound),
        (Create(NOTE, "x", {"bad": True}), InvalidRecord),
        (Create(NOTE, "x", {"n": 0.5}), InvalidRecord),
        (Create(NOTE, "x", {"n": 2**53}), InvalidRecord),
        (Create(NOTE, "x", {"t": "\ud800"}), InvalidRecord),
        (Create(NOTE, "..", {}), InvalidInput),
        (Create(NOTE, "a/b", {}), InvalidInput),
        (Create("note", "x", {}), InvalidInput),
        (Update(NOTE, "old", {}, expected=CID.for_cbor(b"")), Conflict),
        (Delete(NOTE, "old", expected=CID.for_cbor(b"")), Conflict),
    ],
    ids=lambda value: None if isinstance(value, type) else type(value).__name__,
)
def test_a_batch_lands_whole_or_not_at_all(repo, last, error):
    repo.apply_writes([Create(NOTE, "old", {"n": 1})])
    before = state(repo)
    with pytest.raises(error) as caught:
        repo.apply_writes([Create(NOTE, "new", {"n": 2}), last])
    assert "\n" not in str(caught.value)
    assert state(repo) == before


def test_o25_a_precondition_is_on_the_record_not_on_the_repo(repo):
    (loaded,) = repo.apply_writes([Create(NOTE, "four", {"n": 1})])
    repo.apply_writes([Create(NOTE, "other", {"n": 1})])
    (saved,) = repo.apply_writes([Update(NOTE, "four", {"n": 2}, expected=loaded.cid)])
    with pytest.raises(Conflict) as caught:
        repo.apply_writes([Update(NOTE, "four", {"n": 3}, expected=loaded.cid)])
    assert str(loaded.cid) in str(caught.value)
    assert str(saved.cid) in str(caught.value)
    assert repo.get(NOTE, "four").value["n"] == 2


def test_a_batch_has_a_limit(repo):
    writes = [Create(NOTE, f"n{number}", {}) for number in range(MAX_WRITES + 1)]
    with pytest.raises(InvalidInput, match="201"):
        repo.apply_writes(writes)
    assert len(repo.apply_writes(writes[:MAX_WRITES])) == 200


def test_nothing_to_write_is_no_revision(repo):
    assert repo.apply_writes([]) == []
    assert repo.rev() is None


def test_a_plan_decides_from_the_state_it_applies_to(repo):
    def increment(view):
        found = view.get(NOTE, "count")
        if found is None:
            return [Create(NOTE, "count", {"n": 1})]
        return [Update(NOTE, "count", {"n": found.value["n"] + 1})]

    for _ in range(3):
        repo.transact(increment)
    assert repo.get(NOTE, "count").value["n"] == 3


def test_a_plan_that_raises_changes_nothing(repo):
    before = state(repo)

    def plan(_view):
        raise RuntimeError("the caller's own")

    with pytest.raises(RuntimeError, match="own"):
        repo.transact(plan)
    assert state(repo) == before


def test_the_listing_is_in_order_across_pages(repo):
    keys = [f"k{number:04}" for number in range(1203)]
    for start in range(0, len(keys), MAX_WRITES):
        repo.apply_writes([Create(NOTE, key, {}) for key in keys[start : start + MAX_WRITES]])
    assert [record.rkey for record in repo.records(NOTE)] == keys
    assert [record.rkey for record in repo.records(NOTE, after="k0999", limit=3)] == [
        "k1000",
        "k1001",
        "k1002",
    ]
    assert len(list(repo.ops())) == 1203
    assert set(repo.cids(NOTE, [*keys, "none"])) == set(keys)


def blob(data):
    return CID.for_raw(data), {
        "$type": "blob",
        "ref": CID.for_raw(data),
        "mimeType": "application/octet-stream",
        "size": len(data),
    }


def test_blobs_are_stored_with_the_records_that_need_them(repo):
    cid, reference = blob(b"x" * 1000)
    with pytest.raises(InvalidRecord, match=str(cid)):
        repo.apply_writes([Create(NOTE, "a", {"b": reference})])
    repo.apply_writes([Create(NOTE, "a", {"b": reference})], blobs={cid: b"x" * 1000})
    assert repo.get_blob(cid) == b"x" * 1000
    # A second record may refer to what is there, and the same bytes are stored once.
    repo.apply_writes([Create(NOTE, "b", {"deep": [{"b": reference}]})], blobs={cid: b"x" * 1000})
    with repo.database.read() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM blobs").scalar() == 1
        assert connection.exec_driver_sql("SELECT count(*) FROM blob_refs").scalar() == 2
    with pytest.raises(NotFound):
        repo.get_blob(CID.for_raw(b"other"))


def test_a_blob_that_is_not_its_content_is_refused(repo):
    cid, reference = blob(b"x")
    with pytest.raises(InvalidInput, match=str(cid)):
        repo.apply_writes([Create(NOTE, "a", {"b": reference})], blobs={cid: b"y"})
    assert repo.get(NOTE, "a") is None


def test_repos_of_one_database_do_not_see_each_other(repo):
    other = EmbeddedRepo(repo.database, SPACE, "did:web:bob.example", validate=refuse_bad)
    repo.apply_writes([Create(NOTE, "a", {"n": 1})])
    other.apply_writes([Create(NOTE, "a", {"n": 2})])
    assert repo.get(NOTE, "a").value["n"] == 1
    assert other.get(NOTE, "a").value["n"] == 2
    assert repo.set_hash().state == folded(repo) != folded(other)
    assert [op.rkey for op in other.ops()] == ["a"]


def test_a_repo_that_must_be_there_already(repo, database):
    again = EmbeddedRepo(database, SPACE, AUTHOR, validate=refuse_bad, create=False)
    assert again.id == repo.id
    with pytest.raises(NotFound, match="did:web:eve"):
        EmbeddedRepo(database, SPACE, "did:web:eve.example", validate=refuse_bad, create=False)
    assert database.authors() == [AUTHOR]


def test_a_repo_that_was_taken_away(repo, database):
    with database.write() as connection:
        connection.execute(text("DELETE FROM repos"))
    with pytest.raises(NotFound, match="any more"):
        repo.apply_writes([Create(NOTE, "a", {})])


def test_opening_again_goes_on_where_it_was(repo, target):
    repo.apply_writes([Create(NOTE, "a", {"n": 1})])
    before = state(repo)
    with Database.open(target) as database:
        again = EmbeddedRepo(database, SPACE, AUTHOR, validate=refuse_bad)
        assert state(again) == before
        assert again.id == repo.id
        again.apply_writes([Create(NOTE, "b", {"n": 1})])
        assert again.rev() > before[2]


def test_o29_a_revision_from_a_wrong_clock_does_not_stop_the_rest(database):
    ahead = EmbeddedRepo(
        database,
        SPACE,
        AUTHOR,
        validate=refuse_bad,
        clock=TidClock(now=lambda: 4_000_000_000 * 10**9),
    )
    ahead.apply_writes([Create(NOTE, "a", {})])
    wrong = ahead.rev()
    now = EmbeddedRepo(database, SPACE, AUTHOR, validate=refuse_bad)
    now.apply_writes([Create(NOTE, "b", {})])
    assert now.rev() > wrong
    # Fresh record keys follow the true clock all the same.
    (written,) = now.apply_writes([Create(NOTE, None, {})])
    assert tids.decode(written.rkey)[0] < tids.decode(wrong)[0] - 10**12


WRITER = """
import sys
from lettaspace.space.database import Database
from lettaspace.space.repo import EmbeddedRepo
from lettaspace.space.writes import Create, Update
target, name = sys.argv[1:3]
def count(view):
    found = view.get("com.example.note", "count")
    if found is None:
        return [Create("com.example.note", "count", {"n": 1})]
    return [Update("com.example.note", "count", {"n": found.value["n"] + 1})]
with Database.open(target) as database:
    repo = EmbeddedRepo(database, sys.argv[3], sys.argv[4], validate=lambda *_: None)
    for number in range(25):
        repo.apply_writes([Create("com.example.note", f"{name}-{number}", {"n": number})])
        repo.transact(count)
"""


def test_o24_several_processes_write_one_repo(repo, target):
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, target, f"w{number}", SPACE, AUTHOR],
            stderr=subprocess.PIPE,
        )
        for number in range(4)
    ]
    assert [
        (process.communicate(timeout=SECONDS)[1], process.returncode) for process in processes
    ] == [(b"", 0)] * 4
    assert repo.get(NOTE, "count").value["n"] == 100
    assert len(list(repo.records(NOTE))) == 101
    assert len(list(repo.ops())) == 200
    assert len({op.rev for op in repo.ops()}) == 200
    assert repo.set_hash().state == folded(repo)


keys = st.sampled_from(["a", "b", "c", "d"])
values = st.fixed_dictionaries({"n": st.integers(0, 3)})
writes = st.one_of(
    st.builds(Create, st.just(NOTE), keys, values),
    st.builds(Update, st.just(NOTE), keys, values),
    st.builds(Delete, st.just(NOTE), keys),
)


def applied(model, batch):
    """What a batch makes of a dict of rkey to value; None if it must be refused."""
    model = dict(model)
    for write in batch:
        if isinstance(write, Create) == (write.rkey in model):
            return None
        if isinstance(write, Delete):
            del model[write.rkey]
        else:
            model[write.rkey] = write.value
    return model


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(batches=st.lists(st.lists(writes, min_size=1, max_size=6), max_size=8))
def test_any_sequence_of_batches_is_what_a_dict_would_be(database, batches):
    # A repo of its own for each of them.
    author = f"did:web:a{len(database.authors())}.example"
    repo = EmbeddedRepo(database, SPACE, author, validate=refuse_bad)
    model = {}
    for batch in batches:
        outcome = applied(model, batch)
        if outcome is None:
            with pytest.raises(LettaspaceError):
                repo.apply_writes(batch)
        else:
            repo.apply_writes(batch)
            model = outcome
        stored = {record.rkey: record for record in repo.records(NOTE)}
        assert {key: {"n": each.value["n"]} for key, each in stored.items()} == model
        assert repo.set_hash().state == folded(repo)
        log: dict[str, Op] = {op.rkey: op for op in repo.ops()}
        assert {key for key, op in log.items() if op.cid is not None} == set(model)
        assert all(stored[key].cid == log[key].cid for key in model)


def test_who_is_told_of_a_batch_is_told_in_its_transaction(repo):
    told = []

    def committing(connection, rev, digest):
        told.append((rev, digest))
        assert View(connection, repo.id).get(NOTE, "a") is not None

    repo.transact(lambda _view: [], committing=committing)
    assert told == []
    repo.transact(lambda _view: [Create(NOTE, "a", {})], committing=committing)
    assert told == [(repo.rev(), repo.set_hash().digest())]

    def failing(connection, rev, digest):
        raise RuntimeError

    before = state(repo)
    with pytest.raises(RuntimeError):
        repo.transact(lambda _view: [Create(NOTE, "b", {})], committing=failing)
    assert state(repo) == before
