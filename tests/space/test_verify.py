"""What `verify` finds in a repo that was tampered with, and that a sound one has no problem."""

import pytest
from sqlalchemy import text

from lettaspace.atproto.cid import CID
from lettaspace.space.verify import blob_problems, repo_problems
from lettaspace.space.writes import Create, Delete, Update
from tests.space.conftest import refuse_bad

NOTE = "com.example.note"


@pytest.fixture
def filled(repo):
    data = b"leaf" * 100
    cid = CID.for_raw(data)
    reference = {"$type": "blob", "ref": cid, "mimeType": "text/plain", "size": len(data)}
    repo.apply_writes([Create(NOTE, f"n{number}", {"n": number}) for number in range(20)])
    repo.apply_writes([Create(NOTE, "leaf", {"b": reference})], blobs={cid: data})
    repo.apply_writes([Update(NOTE, "n3", {"n": 30}), Delete(NOTE, "n4")])
    return repo


def problems(repo):
    told = []
    with repo.database.read() as connection:
        found = list(
            repo_problems(connection, repo.id, refuse_bad, lambda *step: told.append(step))
        )
        found += blob_problems(connection, lambda *step: told.append(step))
    assert told[-1] == ("blobs", 1, 1)
    return found


def kinds(repo):
    return {(problem.kind, problem.where.rpartition("/")[2]) for problem in problems(repo)}


def tamper(repo, statement, data=b""):
    """Runs a statement that changes one row; `:data` in it are these bytes."""
    with repo.database.write() as connection:
        values = {"data": data} if ":data" in statement else {}
        assert connection.execute(text(statement), values).rowcount == 1


def test_a_sound_repo_has_no_problem(filled):
    assert problems(filled) == []


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("a0", {("cid", "n1"), ("lexicon", "n1")}),
        ("a2616201616101", {("cid", "n1"), ("encoding", "n1")}),
    ],
)
def test_a_record_whose_bytes_changed(filled, data, expected):
    tamper(filled, "UPDATE records SET value = :data WHERE rkey = 'n1'", bytes.fromhex(data))
    assert kinds(filled) == expected


def test_another_set_hash(filled):
    tamper(filled, "UPDATE repos SET set_hash = :data", bytes(2048))
    assert kinds(filled) == {("set-hash", "self")}


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("UPDATE repos SET rev = '3mbo6jo6e222b'", {("rev", "oplog")}),
        ("DELETE FROM records WHERE rkey = 'n2'", {("set-hash", "self"), ("oplog", "n2")}),
        ("DELETE FROM ops WHERE rkey = 'n2'", {("oplog", "n2")}),
        ("DELETE FROM ops WHERE rkey = 'n19'", {("oplog", "n19")}),
        ("DELETE FROM ops WHERE rkey = 'n3' AND prev IS NOT NULL", {("oplog", "n3")}),
        ("DELETE FROM ops WHERE rkey = 'n4' AND cid IS NULL", {("oplog", "n4")}),
        ("DELETE FROM blob_refs", {("blob-refs", "leaf")}),
    ],
)
def test_what_is_tampered_with_is_named(filled, statement, expected):
    tamper(filled, statement)
    assert kinds(filled) == expected


def test_a_blob_whose_bytes_changed(filled):
    tamper(filled, "UPDATE blobs SET data = :data", b"\0")
    assert [problem.kind for problem in problems(filled)] == ["blob"]


def test_a_blob_that_is_gone(filled):
    tamper(filled, "DELETE FROM blobs")
    with filled.database.read() as connection:
        found = list(repo_problems(connection, filled.id, refuse_bad, lambda *_: None))
    assert [problem.kind for problem in found] == ["missing-blob"]


def test_a_problem_is_one_line_and_json(filled):
    tamper(filled, "UPDATE repos SET set_hash = :data", bytes(2048))
    (problem,) = problems(filled)
    assert "\n" not in str(problem)
    assert problem.as_json() == {
        "kind": "set-hash",
        "where": problem.where,
        "detail": problem.detail,
    }
