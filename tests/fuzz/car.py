"""CARs: read whole or in pieces they hold the same, and repos in them are as they claim.

The first byte chooses: the rest is a CAR as it stands; or its blocks, cut by lengths of two
bytes, of which a CAR with the right CIDs is made; or an index, for which a commit is signed; or the
records of a repo, cut in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lettaspace.atproto import car, cbor
from lettaspace.atproto.cid import CID, DAG_CBOR
from lettaspace.atproto.commit import sign
from lettaspace.atproto.keys import SigningKey
from lettaspace.atproto.syntax import is_nsid, is_record_key
from lettaspace.errors import Damaged, InvalidInput
from lettaspace.space.car import Index, RepoBlock, read_repo
from tests.fuzz.texts import outcome

WORDS = (
    *(b"\xa2\x65roots\x82\xd8\x2a\x58\x25\x00\x01\x71\x12\x20", b"\x67version\x01", b"\xff\xff"),
    *(b"com.example.note/a\xd8\x2a\x58\x25\x00\x01\x71\x12\x20", b"\x78\x20", b"\x80\x00"),
)
KEY = SigningKey.from_bytes("p256", b"\x01" * 32)
SPACE = "at://did:web:ada.example/space/com.example.forum/self"
AUTHOR = "did:web:bob.example"
REV = "3kbcq3p7ad42f"


def fuzz_car(given: bytes) -> None:
    kind, rest = given[:1], given[1:]
    if kind == b"i":
        _check_index(rest)
        return
    if kind == b"s":
        _check_records(_cut(rest))
        return
    stream = b"".join(_built(rest)) if kind == b"b" else rest
    whole = outcome(lambda: _blocks([stream], stream), InvalidInput)
    pieces = [stream[at : at + 7] for at in range(0, len(stream), 7)]
    assert outcome(lambda: _blocks(pieces, stream), InvalidInput) == whole
    for values in (True, False):
        outcome(lambda v=values: _repo([stream], values=v), InvalidInput, Damaged)


def _blocks(pieces: Iterable[bytes], stream: bytes) -> list[car.Block]:
    reader = car.Reader(pieces)
    start = reader.offset
    blocks = []
    while (block := reader.next()) is not None:
        assert car.section(block.cid, block.data) == stream[start : reader.offset]
        start = reader.offset
        blocks.append(block)
    assert reader.offset == len(stream)
    return blocks


def _built(given: bytes) -> Iterator[bytes]:
    blocks = _cut(given)
    cids = [CID.for_cbor(block) for block in blocks]
    return car.write(cids[:2], zip(cids, blocks, strict=True))


def _cut(given: bytes) -> list[bytes]:
    blocks = []
    while given:
        end = 2 + int.from_bytes(given[:2], "big") % 4096
        blocks.append(given[2:end])
        given = given[end:]
    return blocks


def _repo(pieces: Iterable[bytes], *, values: bool) -> list[RepoBlock]:
    key = KEY.verifying_key
    _, index, records = read_repo(pieces, space=SPACE, author=AUTHOR, key=key, values=values)
    found = list(records)
    assert [(one.collection, one.rkey, one.cid) for one in found] == list(index)[: len(found)]
    return found


def _check_index(data: bytes) -> None:
    index, refusal = outcome(lambda: Index(data), InvalidInput, Damaged)
    assert _plain_index(data) == (None if index is None else list(index))
    if index is None:
        return
    assert refusal is None
    assert _repo(_signed(data, index, []), values=False) == []
    assert len(index) == len(list(index))


def _check_records(records: list[bytes]) -> None:
    cids = [CID.for_cbor(record) for record in records]
    data = cbor.encode({f"com.example.note/{i:04}": cid for i, cid in enumerate(cids)})
    pieces = list(_signed(data, Index(data), records))
    found, refusal = outcome(lambda: _repo(pieces, values=True), InvalidInput)
    values = [outcome(lambda r=record: cbor.decode(r), InvalidInput)[0] for record in records]
    assert (refusal is None) is all(type(value) is dict for value in values)
    if found is not None:
        assert [one.value for one in found] == values


def _signed(data: bytes, index: Index, records: list[bytes]) -> Iterator[bytes]:
    commit = sign(KEY, SPACE, AUTHOR, REV, index.digest, b"\x02" * 32)
    blocks = [cbor.encode(commit.to_value()), data, *records]
    cids = [CID.for_cbor(block) for block in blocks]
    return car.write(cids[:2], zip(cids, blocks, strict=True))


def _plain_index(data: bytes) -> list[tuple[str, str, CID]] | None:
    value, refusal = outcome(lambda: cbor.decode(data), InvalidInput)
    if refusal is not None or type(value) is not dict:
        return None
    found = []
    for path, cid in value.items():
        collection, _, rkey = path.partition("/")
        if type(cid) is not CID or cid.codec != DAG_CBOR:
            return None
        if not is_nsid(collection) or not is_record_key(rkey):
            return None
        found.append((collection, rkey, cid))
    return found
