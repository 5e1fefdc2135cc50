"""What `verify` finds in a repo that was tampered with, and that a sound one has no problem."""

import pytest

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


def tamper(repo, statement):
    with repo.database.write() as connection:
        assert connection.exec_driver_sql(statement).rowcount == 1


def test_a_sound_repo_has_no_problem(filled):
    assert problems(filled) == []


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        (
            "UPDATE records SET value = x'a0' WHERE rkey = 'n1'",
            {("cid", "n1"), ("lexicon", "n1")},
        ),
        (
            "UPDATE records SET value = x'a2616201616101' WHERE rkey = 'n1'",
            {("cid", "n1"), ("encoding", "n1")},
        ),
        ("UPDATE repos SET set_hash = zeroblob(2048)", {("set-hash", "self")}),
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
    tamper(filled, "UPDATE blobs SET data = x'00'")
    assert [problem.kind for problem in problems(filled)] == ["blob"]


def test_a_blob_that_is_gone(filled):
    tamper(filled, "DELETE FROM blobs")
    with filled.database.read() as connection:
        found = list(repo_problems(connection, filled.id, refuse_bad, lambda *_: None))
    assert [problem.kind for problem in found] == ["missing-blob"]


def test_a_problem_is_one_line_and_json(filled):
    tamper(filled, "UPDATE repos SET set_hash = zeroblob(2048)")
    (problem,) = problems(filled)
    assert "\n" not in str(problem)
    assert problem.as_json() == {
        "kind": "set-hash",
        "where": problem.where,
        "detail": problem.detail,
    }
