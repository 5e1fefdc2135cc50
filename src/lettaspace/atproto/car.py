"""CARv1: content-addressed blocks, one after another in a stream of bytes.

    car     = section(header) section(block)*
    section = length of what follows (unsigned varint), then that many bytes
    header  = DAG-CBOR map with `version` 1 and `roots`, a list of CIDs; other keys are ignored
    block   = CID, then its data

Source: the CARv1 specification. Stricter: varints are as short as they can be, CIDs are those
of the AT Protocol, and every block is checked against its CID.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

from lettaspace.atproto import cbor
from lettaspace.atproto.cid import CID
from lettaspace.errors import InvalidInput

MAX_HEADER = 64 * 1024
"""Bytes of a header: some 1,500 roots."""

MAX_BLOCK = 16 * 1024 * 1024
"""Bytes of a block's data, unless the reader is told otherwise. Blobs have at most 5 MiB."""

_CID_BYTES = 36
_MAX_VARINT = 9
_CHUNK = 256 * 1024


class Block(NamedTuple):
    """A block whose data matches its CID. `offset` is where its data begins in the stream."""

    cid: CID
    data: bytes
    offset: int


class Readable(Protocol):
    """A file open for reading bytes, or what behaves like one."""

    def read(self, size: int, /) -> bytes: ...


def header(roots: Sequence[CID]) -> bytes:
    """The beginning of a CAR, up to its first block."""
    data = cbor.encode({"version": 1, "roots": list(roots)})
    return varint(len(data)) + data


def section(cid: CID, data: bytes) -> bytes:
    """A block as it stands in a CAR. That the CID is that of the data is up to the caller."""
    return b"".join((varint(_CID_BYTES + len(data)), bytes(cid), data))


def write(roots: Sequence[CID], blocks: Iterable[tuple[CID, bytes]]) -> Iterator[bytes]:
    """A whole CAR, a block at a time."""
    yield header(roots)
    for cid, data in blocks:
        yield section(cid, data)


def chunks(file: Readable) -> Iterator[bytes]:
    """The rest of a file, in pieces for a `Reader`."""
    while chunk := file.read(_CHUNK):
        yield chunk


class Reader:
    """Reads a CAR from a stream that may be cut into pieces anywhere; holds one block at a time.

    The header is read at once, blocks as they are asked for. All methods raise InvalidInput,
    naming the byte, for what is malformed, too large, cut short, or not what its CID says.
    """

    def __init__(self, stream: Iterable[bytes], *, max_block: int = MAX_BLOCK) -> None:
        self._stream = iter(stream)
        self._max_block = max_block
        self._buffer = b""
        self._at = 0  # how much of the buffer has been read
        self.offset = 0
        """Bytes read so far: where the next section begins."""
        self.roots: tuple[CID, ...] = self._header()

    def next(self, limit: int | None = None) -> Block | None:
        """The next block, or None at the end. `limit`: bytes of data, for this block alone."""
        start = self.offset
        length = self._length()
        if length is None:
            return None
        size = length - _CID_BYTES
        if size < 0:
            raise self._error(start, "a block of that length has no CID")
        if size > (self._max_block if limit is None else limit):
            raise self._error(start, f"a block of {size} bytes is too large")
        self._fill(length)  # both parts at once; what may be missing is found below
        at = self.offset
        try:
            cid = CID.from_bytes(self._take(_CID_BYTES))
        except InvalidInput as error:
            raise self._error(at, str(error)) from None
        offset = self.offset
        data = self._take(size)
        if sha256(data).digest() != cid.digest:
            raise self._error(offset, f"the block is not the content of its CID {cid}")
        return Block(cid, data, offset)

    def __iter__(self) -> Iterator[Block]:
        while (block := self.next()) is not None:
            yield block

    def _header(self) -> tuple[CID, ...]:
        length = self._length()
        if length is None:
            raise self._error(0, "there is nothing")
        if not 0 < length <= MAX_HEADER:
            raise self._error(0, f"a header of {length} bytes cannot be")
        self._fill(length)
        at = self.offset
        try:
            fields: Any = cbor.decode(self._take(length))
        except InvalidInput as error:
            raise self._error(at, f"header: {error}") from None
        if type(fields) is not dict or fields.get("version") != 1:
            raise self._error(at, "the header is not of version 1")
        roots: Any = fields.get("roots")
        if type(roots) is not list or any(type(root) is not CID for root in roots):
            raise self._error(at, "the header has no list of roots")
        return tuple(roots)

    def _length(self) -> int | None:
        """The varint before a section; None at the end of the stream."""
        if not self._fill(_MAX_VARINT) and self._at == len(self._buffer):
            return None
        buffer, start = self._buffer, self._at
        value, shift = 0, 0
        for at in range(start, min(start + _MAX_VARINT, len(buffer))):
            byte = buffer[at]
            value |= (byte & 127) << shift
            if byte < 128:
                if not byte and shift:
                    raise self._error(self.offset, "a length is written longer than it has to be")
                self._at = at + 1
                self.offset += at + 1 - start
                return value
            shift += 7
        size = len(buffer) - start
        if size < _MAX_VARINT:
            raise self._error(self.offset + size, "it ends where 1 more bytes should follow")
        raise self._error(self.offset, "a length has more than 63 bits")

    def _take(self, size: int) -> bytes:
        """The next bytes, which `_fill` was asked for."""
        start = self._at
        if start + size > len(self._buffer):
            raise self._error(self.offset, f"it ends where {size} more bytes should follow")
        self._at = end = start + size
        self.offset += size
        return self._buffer[start:end]

    def _fill(self, size: int) -> bool:
        """Makes `size` unread bytes stand in the buffer; false if the stream has not as many."""
        missing = size - (len(self._buffer) - self._at)
        if missing <= 0:
            return True
        pieces = [self._buffer[self._at :]]
        while missing > 0 and (chunk := next(self._stream, None)) is not None:
            pieces.append(chunk)
            missing -= len(chunk)
        self._buffer = b"".join(pieces)
        self._at = 0
        return missing <= 0

    def _error(self, offset: int, reason: str) -> InvalidInput:
        return InvalidInput(f"CAR, byte {offset}: {reason}")


def varint(value: int) -> bytes:
    """A number as it stands before a section: seven bits a byte, the lowest first."""
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)
