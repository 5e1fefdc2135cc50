"""A repo as a CAR: vectors of the reference implementation, and this implementation's own."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lettaspace.atproto import car, cbor
from lettaspace.atproto.cid import CID
from lettaspace.atproto.data import to_json
from lettaspace.atproto.keys import SigningKey, VerifyingKey
from lettaspace.errors import Damaged, InvalidInput, NotFound
from lettaspace.space.car import Index, RepoBlock, RepoReader, blob_cids, read_repo, repo_car
from lettaspace.space.repo import EmbeddedRepo
from lettaspace.space.writes import Create, Delete, Update
from tests.space.conftest import AUTHOR, SPACE

VECTORS = json.loads((Path(__file__).parents[1] / "data/vectors/repo_cars.json").read_text())
KEY = SigningKey.generate()
PUBLIC = KEY.verifying_key
NOTE = "com.example.note"

STRICTER = {
    "index key with empty collection": "not a collection and a record key",
    "index key with invalid nsid and rkey": "not a collection and a record key",
    "record block is an integer": "a record is a map",
    "record block is a float": "not DAG-CBOR",
    "record block has unsorted keys": "not DAG-CBOR",
    "record block has undefined": "not DAG-CBOR",
    "index keys out of canonical order, blocks in index byte order": "not DAG-CBOR",
}
"""What the reference accepts and we don't: there would be two encodings of one value."""


def test_every_vector_is_run() -> None:
    assert len(VECTORS["cases"]) == 72
    assert STRICTER.keys() <= {case["name"] for case in VECTORS["cases"]}


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["name"])
def test_reference_vector(case: dict[str, Any]) -> None:
    data = b64decode(case["car_base64"])

    def read() -> tuple[Any, Index, list[RepoBlock]]:
        commit, index, records = read_repo(
            [data[:100], data[100:]],
            space=case["space"],
            author=case["author"],
            key=VerifyingKey.from_did(case["did_key"]),
            values=case["expect_values"],
        )
        return commit, index, list(records)

    if case["name"] in STRICTER:
        assert case["expected"] == "ok"
        with pytest.raises(InvalidInput, match=STRICTER[case["name"]]):
            read()
    elif case["expected"] == "error":
        kind = case["error_kind"]
        # An index that is out of order is refused as such, whatever the order of the blocks.
        decoding = case["error_class"] == "decode-error" or case["name"].startswith("index keys")
        with pytest.raises(InvalidInput if decoding else Damaged, match=REASONS[kind]):
            read()
    else:
        commit, index, records = read()
        assert commit.rev == case["rev"]
        assert commit.hash.hex() == case["hash_hex"]
        entries = [(f"{collection}/{rkey}", str(cid)) for collection, rkey, cid in index]
        assert [path for path, _ in entries] == case["index_order"]
        assert dict(entries) == case["index"]
        found = [
            {
                "collection": each.collection,
                "rkey": each.rkey,
                "cid": str(each.cid),
                "value": to_json(each.value),
            }
            for each in records
        ]
        assert found == case["records"]


REASONS = {
    "missing-record": "is missing",
    "commit-invalid": "not one of this author",
    "commit-not-first": "first block .* is not the commit",
    "commit-schema": "^commit: ",
    "root-count": "has 2 roots",
    "index-not-second": "second block .* is not the index",
    "wrong-block": "another block stands|not DAG-CBOR",
    "extra-block": "in no index",
    "block-cid-mismatch": "not the content of its CID|it ends where",
    "index-hash-mismatch": "not what the commit's hash is of",
    "bad-record-path": "not a collection and a record key",
    "index-schema": "not a map from paths to the CIDs",
    "cbor-decode": "not DAG-CBOR|it ends where|a header of",
    "car-header": "there is nothing|not of version 1",
    "car-framing": "has no CID|it ends where",
}


def write(repo: EmbeddedRepo, **options: Any) -> bytes:
    with repo.snapshot() as view:
        return b"".join(repo_car(view, KEY, **options))


def read(data: bytes, **options: Any) -> tuple[Any, Index, list[RepoBlock]]:
    commit, index, records = read_repo([data], space=SPACE, author=AUTHOR, key=PUBLIC, **options)
    return commit, index, list(records)


def test_a_repo_comes_back(repo: EmbeddedRepo) -> None:
    repo.apply_writes([Create(NOTE, f"n{number:03}", {"n": number}) for number in range(150)])
    repo.apply_writes([Create("com.example.z", "n", {}), Create("com.example.lab.long", "0", {})])
    repo.apply_writes([Update(NOTE, "n007", {"n": -7}), Delete(NOTE, "n008")])
    data = write(repo)
    commit, index, records = read(data)
    assert commit.rev == repo.rev()
    assert commit.hash == repo.set_hash().digest()
    assert len(index) == len(records) == 151
    paths = [f"{each.collection}/{each.rkey}" for each in records]
    assert paths == sorted(paths, key=lambda path: (len(path), path))
    for each in records:
        stored = repo.get(each.collection, each.rkey)
        assert stored is not None
        assert (stored.cid, stored.value) == (each.cid, each.value)
        assert data[each.offset : each.offset + each.size] == cbor.encode(each.value)
    assert {each.value["n"] for each in records if each.collection == NOTE} == {
        *range(150), -7,
    } - {7, 8}  # fmt: skip


def test_the_index_is_what_dag_cbor_says(repo: EmbeddedRepo) -> None:
    names = ["a", "aa", "Z", "~", "x" * 5, "y" * 250, "z" * 512, *(f"k{n}" for n in range(300))]
    for start in range(0, len(names), 200):
        repo.apply_writes([Create(NOTE, name, {}) for name in names[start : start + 200]])
    reader = car.Reader([write(repo, values=False)])
    blocks = list(reader)
    assert len(blocks) == 2
    expected = {f"{NOTE}/{name}": repo.get(NOTE, name).cid for name in names}  # type: ignore[union-attr]
    assert blocks[1].data == cbor.encode(expected)
    assert blocks[1].cid == reader.roots[1]


def test_without_values(repo: EmbeddedRepo) -> None:
    repo.apply_writes([Create(NOTE, "a", {})])
    data = write(repo, values=False)
    assert read(data, values=False)[2] == []
    with pytest.raises(Damaged, match="note/a is missing"):
        read(data)


def test_the_same_record_under_two_keys_is_there_twice(repo: EmbeddedRepo) -> None:
    repo.apply_writes([Create(NOTE, "a", {}), Create(NOTE, "b", {})])
    records = read(write(repo))[2]
    assert records[0].cid == records[1].cid
    assert records[0].offset != records[1].offset


def test_a_commit_of_its_own_for_every_reader(repo: EmbeddedRepo) -> None:
    repo.apply_writes([Create(NOTE, "a", {})])
    one, two = read(write(repo))[0], read(write(repo))[0]
    assert (one.hash, one.rev) == (two.hash, two.rev)
    assert one.ikm != two.ikm


def test_a_repo_that_was_emptied_again(repo: EmbeddedRepo) -> None:
    repo.apply_writes([Create(NOTE, "a", {})])
    repo.apply_writes([Delete(NOTE, "a")])
    assert read(write(repo))[2] == []


def test_a_repo_never_written_to(repo: EmbeddedRepo) -> None:
    with pytest.raises(NotFound):
        write(repo)


def test_one_snapshot_while_writers_write(repo: EmbeddedRepo) -> None:
    repo.apply_writes([Create(NOTE, f"n{number}", {"n": 0}) for number in range(150)])
    with repo.snapshot() as view:
        parts = repo_car(view, KEY)
        data = b"".join(next(parts) for _ in range(3))
        repo.apply_writes([Update(NOTE, f"n{number}", {"n": 1}) for number in range(150)])
        repo.apply_writes([Create(NOTE, "new", {}), Delete(NOTE, "n3")])
        data += b"".join(parts)
    assert {each.value["n"] for each in read(data)[2]} == {0}


def test_only_this_repo(repo: EmbeddedRepo) -> None:
    other = EmbeddedRepo(
        repo.database, SPACE, "did:web:eve.example", validate=lambda *_: None, clock=repo.clock
    )
    blob = CID.for_raw(b"sherd")
    ref = {"$type": "blob", "ref": blob, "mimeType": "image/png", "size": 5}
    other.apply_writes([Create(NOTE, "theirs", {"pic": ref})], blobs={blob: b"sherd"})
    repo.apply_writes([Create(NOTE, "mine", {})])
    assert [each.rkey for each in read(write(repo))[2]] == ["mine"]
    with repo.snapshot() as mine, other.snapshot() as theirs:
        assert blob_cids(mine) == []
        assert blob_cids(theirs) == [blob]


def test_what_follows_is_the_callers(repo: EmbeddedRepo) -> None:
    repo.apply_writes([Create(NOTE, "a", {})])
    data = write(repo) + car.section(CID.for_raw(b"x"), b"x")
    with pytest.raises(Damaged, match="in no index"):
        read(data)
    reader = car.Reader([data])
    assert len(list(RepoReader(reader).records())) == 1
    block = reader.next()
    assert block is not None
    assert block.data == b"x"


def test_every_record_is_looked_at_before_it_is_given(repo: EmbeddedRepo) -> None:
    repo.apply_writes([Create(NOTE, "a", {"n": 1}), Create(NOTE, "b", {"n": 2})])
    data = bytearray(write(repo))
    data[-1] ^= 1
    _, _, records = read_repo([bytes(data)], space=SPACE, author=AUTHOR, key=PUBLIC)
    assert next(records).rkey == "a"
    with pytest.raises(InvalidInput, match="not the content of its CID"):
        next(records)


CIDS = st.binary(max_size=4).map(CID.for_cbor)
PATHS = st.from_regex(r"[a-z]{1,9}\.[a-z]{1,9}\.[a-z]{1,9}/[a-zA-Z0-9_~:-]{1,300}", fullmatch=True)


@settings(deadline=None)
@given(st.dictionaries(PATHS, CIDS, max_size=40))
def test_any_index_is_read(entries: dict[str, CID]) -> None:
    found = {f"{one}/{two}": cid for one, two, cid in Index(cbor.encode(entries))}
    assert found == entries


@settings(deadline=None)
@given(st.dictionaries(PATHS, CIDS, min_size=1, max_size=4), st.data())
def test_an_index_is_read_only_as_it_is_encoded(
    entries: dict[str, CID], data: st.DataObject
) -> None:
    block = bytearray(cbor.encode(entries))
    block[data.draw(st.integers(0, len(block) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        index = Index(bytes(block))
    except (InvalidInput, Damaged):
        return
    assert cbor.encode({f"{one}/{two}": cid for one, two, cid in index}) == bytes(block)


@pytest.mark.parametrize(
    "value",
    [[], 1, {"a.b.c/d": 1}, {"a.b.c/d": CID.for_raw(b"")}, {"a.b.c/d": [CID.for_cbor(b"")]}],
)
def test_what_is_no_index(value: Any) -> None:
    with pytest.raises(Damaged, match="not a map from paths to the CIDs"):
        Index(cbor.encode(value))
