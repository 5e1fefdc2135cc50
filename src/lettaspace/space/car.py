"""A repo as a CAR: what a host's getRepo gives, and what a reader makes of it.

    roots  = the commit, the index
    blocks = the commit; the index, a map from COLLECTION/RKEY to the record's CID; then the
             record of each entry, in the order of the index, also one that another entry has

The order of the index is that of DAG-CBOR: shorter paths first, then by bytes. Blobs are not
part of it. Source: protocol, section 3 (CAR). Stricter than the reference: every block is
canonical DAG-CBOR of the data model, a record is a map, and a path is a collection and a key.
"""

from array import array
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from itertools import islice
from typing import Any, NamedTuple

from sqlalchemy import bindparam, func, select

from lettaspace.atproto import car, cbor
from lettaspace.atproto.cid import CID, DAG_CBOR
from lettaspace.atproto.cid import texts as cid_texts
from lettaspace.atproto.commit import Commit, sign
from lettaspace.atproto.keys import SigningKey, VerifyingKey
from lettaspace.atproto.syntax import is_nsid, is_record_key
from lettaspace.errors import Damaged, InvalidInput, NotFound
from lettaspace.space import schema
from lettaspace.space.sethash import SetHash
from lettaspace.space.statement import Statement
from lettaspace.space.view import View
from lettaspace.space.writes import Value

MAX_INDEX = 512 * 1024 * 1024
"""Bytes of an index: about 6 million records. It is held in memory whole."""

_PAGE = 100
"""Records that are read at once."""

_PIECE = 128 * 1024
"""Bytes of records that are gathered before they are given out."""

_is_nsid = lru_cache(maxsize=1024)(is_nsid)
_varint = lru_cache(maxsize=1 << 14)(car.varint)

_NAMES = [f"row{number}" for number in range(_PAGE)]

_records = schema.records.c

_path = _records.collection + "/" + _records.rkey
_paths = Statement(
    lambda: (
        select(_records.id, _path, _records.cid)
        .where(_records.repo == bindparam("repo"))
        .order_by(func.length(_records.collection) + func.length(_records.rkey), _path)
    )
)
_stored = Statement(
    lambda: select(_records.id, _records.cid, _records.value).where(
        _records.id.in_([bindparam(name) for name in _NAMES])
    )
)

_LINK = b"\xd8\x2a\x58\x25\x00"
"""What stands before the 36 bytes of a CID in DAG-CBOR."""
_TO_RECORD = _LINK + b"\x01\x71\x12\x20"
"""The same, and how the CID of a record begins."""
_CID_BYTES = 36


class RepoBlock(NamedTuple):
    """A record from a CAR, checked against its entry in the index."""

    collection: str
    rkey: str
    cid: CID
    value: Value
    offset: int
    """Where its data begins in the CAR."""
    size: int
    """Bytes of its data."""


def repo_car(view: View, key: SigningKey, *, values: bool = True) -> Iterator[bytes]:
    """The CAR of a repo as a view shows it, in pieces; the index is held whole.

    Each call signs a commit of its own. Without `values` it ends with the index. Raises NotFound
    for a repo that was never written to.
    """
    repos = schema.repos.c
    head = view.connection.execute(select(schema.repos).where(repos.id == view.repo)).one()
    if head.rev is None:
        raise NotFound("nothing was ever written to this repo")
    digest = SetHash(head.set_hash).digest()
    commit = cbor.encode(sign(key, head.space, head.author, head.rev, digest).to_value())
    index, ids = _index(view)
    roots = CID.for_cbor(commit), CID.for_cbor(index)
    yield car.header(roots)
    yield car.section(roots[0], commit)
    yield car.section(roots[1], index)
    del index
    if values:
        yield from _values(view, ids)


def blob_cids(view: View) -> list[CID]:
    """The blobs that a repo's records refer to, each once, ascending."""
    refs = schema.blob_refs.c
    rows = view.connection.execute(
        select(refs.cid)
        .distinct()
        .join(schema.records, _records.id == refs.record)
        .where(_records.repo == view.repo)
        .order_by(refs.cid)
    )
    return [CID.from_bytes(raw) for raw in rows.scalars()]


class RepoReader:
    """The repo part of a CAR, checked as it is read: at once up to the index, then record by
    record. What may follow in the CAR is left to the caller.

    Raises InvalidInput for what is malformed, Damaged for what does not belong together.
    """

    def __init__(self, reader: car.Reader, *, max_index: int = MAX_INDEX) -> None:
        self._reader = reader
        if len(reader.roots) != 2:
            raise Damaged(f"a repo's CAR has 2 roots, not {len(reader.roots)}")
        block = reader.next()
        if block is None or block.cid != reader.roots[0]:
            raise Damaged("the first block of a repo's CAR is not the commit")
        try:
            self.commit = Commit.from_value(_decode(block, "the commit"))
        except InvalidInput as error:
            raise Damaged(str(error)) from None
        block = reader.next(max_index)
        if block is None or block.cid != reader.roots[1]:
            raise Damaged("the second block of a repo's CAR is not the index")
        self.index = Index(block.data)
        if self.index.digest != self.commit.hash:
            raise Damaged("the index is not what the commit's hash is of")

    def check_commit(self, space: str, author: str, key: VerifyingKey) -> None:
        """Raises Damaged unless the author gave the commit for this space."""
        if not self.commit.is_valid(space, author, key):
            raise Damaged("the commit is not one of this author for this space")

    def records(self, *, optional: bool = False) -> Iterator[RepoBlock]:
        """The records, in the order of the index. With `optional` the CAR may lack all of them,
        as getRepo's does when asked for no values."""
        first = True
        for path, expected in self.index.entries():
            block = self._reader.next()
            where = path.decode()
            if block is None:
                if optional and first:
                    return
                raise Damaged(f"the record {where} is missing")
            cid, data, offset = block
            if bytes(cid) != expected:
                raise Damaged(f"another block stands where the record {where} should")
            value = _decode(block, where)
            if type(value) is not dict:
                raise InvalidInput(f"{where}: a record is a map")
            first = False
            collection, _, rkey = where.partition("/")
            yield RepoBlock(collection, rkey, cid, value, offset, len(data))


def read_repo(
    stream: Iterable[bytes],
    *,
    space: str,
    author: str,
    key: VerifyingKey,
    values: bool = True,
) -> tuple[Commit, "Index", Iterator[RepoBlock]]:
    """A repo from the CAR that a host gave of it: commit, index, and the records, which are
    checked as they are taken. Nothing may follow them. With `values` false a CAR that ends with
    the index will do.

    Raises InvalidInput for what is malformed, Damaged for what does not belong together.
    """
    reader = car.Reader(stream)
    repo = RepoReader(reader)
    repo.check_commit(space, author, key)

    def records() -> Iterator[RepoBlock]:
        yield from repo.records(optional=not values)
        if reader.next() is not None:
            raise Damaged("a block that is in no index follows")

    return repo.commit, repo.index, records()


class Index:
    """An index as it is encoded, which is the smallest form it has in memory."""

    def __init__(self, data: bytes) -> None:
        """Raises InvalidInput unless it is a canonical map of paths, Damaged unless to CIDs."""
        self._data = data
        set_hash = SetHash()
        try:
            self._length, self._start = _read_head(data, 0, 0xA0)
            entries = self.entries()
            while some := list(islice(entries, _PAGE)):
                for path, _ in some:
                    _split(path.decode("ascii", "replace"))
                names = cid_texts([cid for _, cid in some])
                set_hash.add_all(
                    [
                        b"%b/%b" % (path, name.encode())
                        for (path, _), name in zip(some, names, strict=True)
                    ]
                )
        except (_Malformed, IndexError):
            # Say what is wrong with it, in the words of who reads CBOR anyway.
            value = cbor.decode(data)
            for path in value if type(value) is dict else ():
                _split(path)
            raise Damaged("the index is not a map from paths to the CIDs of records") from None
        self.digest = set_hash.digest()
        """What a commit's hash is if this is the index of its repo."""

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[tuple[str, str, CID]]:
        """Collection, rkey and CID of each entry, in order."""
        for path, cid in self.entries():
            collection, _, rkey = path.decode().partition("/")
            yield collection, rkey, CID.from_bytes(cid)

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """The same as they stand there: paths, and CIDs in their binary form."""
        data, at = self._data, self._start
        last: tuple[int, bytes] = (0, b"")
        for _ in range(self._length):
            size, at = _read_head(data, at, 0x60)
            end = at + size
            entry = size, data[at:end]
            cid = end + len(_LINK)
            at = cid + _CID_BYTES
            if not data.startswith(_TO_RECORD, end) or at > len(data) or entry <= last:
                raise _Malformed
            last = entry
            yield entry[1], data[cid:at]
        if at != len(data):
            raise _Malformed


class _Malformed(Exception):
    pass


def _index(view: View) -> tuple[bytes, "array[int]"]:
    """The index, and the rows of its records in order."""
    ids = array("q")
    entries = bytearray()
    for number, name, cid in _paths.each(view.connection, repo=view.repo):
        ids.append(number)
        text = name.encode()
        entries += _text_head(len(text)) + text + _LINK + cid
    return _head(0xA0, len(ids)) + entries, ids


def _values(view: View, ids: "array[int]") -> Iterator[bytes]:
    """The sections of the records with these rows, some together."""
    # By their rows: SQLite would copy all the values into a file of its own to sort them.
    pieces: list[bytes] = []
    size = 0
    for start in range(0, len(ids), _PAGE):
        some = ids[start : start + _PAGE].tolist()
        named = dict(zip(_NAMES, some + [0] * (_PAGE - len(some)), strict=True))
        found = {number: rest for number, *rest in _stored.all(view.connection, **named)}
        for number in some:
            cid, data = found.pop(number)
            pieces += _varint(len(cid) + len(data)), cid, data
            size += len(data)
        if size >= _PIECE:
            yield b"".join(pieces)
            pieces, size = [], 0
    yield b"".join(pieces)


def _decode(block: car.Block, what: str) -> Any:
    if block.cid.codec != DAG_CBOR:
        raise InvalidInput(f"{what}: not a block of DAG-CBOR")
    try:
        return cbor.decode(block.data)
    except InvalidInput as error:
        raise InvalidInput(f"{what}: {error}") from None


def _split(path: str) -> tuple[str, str]:
    collection, _, rkey = path.partition("/")
    if not (_is_nsid(collection) and is_record_key(rkey)):
        raise InvalidInput("the index has a path that is not a collection and a record key")
    return collection, rkey


@cache
def _text_head(size: int) -> bytes:
    return _head(0x60, size)


def _head(major: int, value: int) -> bytes:
    """The first bytes of a CBOR item: its type and a number, as short as can be."""
    if value < 24:
        return bytes((major | value,))
    width = (value.bit_length() + 7) // 8
    step = 0 if width == 1 else 1 if width == 2 else 2
    return bytes((major | 24 + step,)) + value.to_bytes(1 << step, "big")


_LEAST = (24, 1 << 8, 1 << 16)
"""The least number that needs a head of two, three, or five bytes."""


def _read_head(data: bytes, at: int, major: int) -> tuple[int, int]:
    """The number in the first bytes of an item of that type, and where they end."""
    info = data[at] - major
    if 0 <= info < 24:
        return info, at + 1
    if not 24 <= info <= 26:
        raise _Malformed
    end = at + 1 + (1 << info - 24)
    value = int.from_bytes(data[at + 1 : end], "big")
    if value < _LEAST[info - 24] or end > len(data):
        raise _Malformed
    return value, end
