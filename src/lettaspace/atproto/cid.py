"""CIDs: content identifiers, as the AT Protocol data model allows them.

Only CIDv1 with the codec DAG-CBOR or raw and a SHA-256 digest of 32 bytes, and as text only
lower-case base32 (`bafyrei…`, `bafkrei…`). The reference also lets other versions, hashes and
bases pass; one text per content is worth more to us than to read those.
"""

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, Final

from cbrrr import decode_dag_cbor, encode_dag_cbor

from lettaspace.atproto.syntax import is_cid_string
from lettaspace.errors import InvalidInput

DAG_CBOR: Final = 0x71
RAW: Final = 0x55

_CBOR_PREFIX = b"\x01\x71\x12\x20"
_RAW_PREFIX = b"\x01\x55\x12\x20"

# A CID link in DAG-CBOR is five fixed bytes and the CID itself.
_LINK_HEAD = b"\xd8\x2a\x58\x25\x00"


class CID:
    """One content identifier. Immutable, hashable, equal by value, ordered by its bytes."""

    __slots__ = ("_bytes",)
    _bytes: bytes

    def __init__(self) -> None:
        raise TypeError("use CID.parse, CID.from_bytes, CID.for_cbor or CID.for_raw")

    @classmethod
    def parse(cls, text: str) -> "CID":
        """The CID a text names. Raises InvalidInput unless it is in the one accepted form."""
        if not is_cid_string(text):
            raise InvalidInput("not a CIDv1 of DAG-CBOR or raw with SHA-256 in base32")
        # cbrrr reads and writes base32 in C, several times faster than the standard library,
        # but only as part of a link.
        return _new(encode_dag_cbor({"$link": text}, atjson_mode=True)[5:])

    @classmethod
    def from_bytes(cls, data: bytes) -> "CID":
        """The CID of 36 bytes in binary form, without multibase prefix.

        Raises InvalidInput for any other version, codec or hash.
        """
        if len(data) != 36 or data[:4] not in (_CBOR_PREFIX, _RAW_PREFIX):
            raise InvalidInput("not a binary CIDv1 of DAG-CBOR or raw with SHA-256")
        return _new(bytes(data))

    @classmethod
    def for_cbor(cls, data: bytes) -> "CID":
        """The CID of a DAG-CBOR block."""
        return _new(_CBOR_PREFIX + sha256(data).digest())

    @classmethod
    def for_raw(cls, data: bytes) -> "CID":
        """The CID of raw bytes, such as a blob's."""
        return _new(_RAW_PREFIX + sha256(data).digest())

    @property
    def codec(self) -> int:
        """0x71 for DAG-CBOR, 0x55 for raw."""
        return self._bytes[1]

    @property
    def digest(self) -> bytes:
        """The SHA-256 digest, 32 bytes."""
        return self._bytes[4:]

    def __bytes__(self) -> bytes:
        return self._bytes

    def __str__(self) -> str:
        link: Any = decode_dag_cbor(_LINK_HEAD + self._bytes, atjson_mode=True)
        return str(link["$link"])

    def __repr__(self) -> str:
        return f"CID({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return type(other) is CID and self._bytes == other._bytes

    def __lt__(self, other: "CID") -> bool:
        return self._bytes < other._bytes

    def __hash__(self) -> int:
        return hash(self._bytes)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a CID cannot be changed")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("a CID cannot be changed")

    def __copy__(self) -> "CID":
        return self

    def __deepcopy__(self, memo: object) -> "CID":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return CID.from_bytes, (self._bytes,)


_allocate = object.__new__
_set_bytes: Callable[[CID, bytes], None] = CID.__dict__["_bytes"].__set__


def _new(data: bytes) -> CID:
    # Past the constructor and __setattr__: a CID is made for every record read or written.
    cid = _allocate(CID)
    _set_bytes(cid, data)
    return cid


def texts(cids: Sequence[bytes]) -> list[str]:
    """The texts of many CIDs in their binary form, each of which must be one."""
    # As one array of links; see `CID.parse`. Its head is that of an array of single bytes.
    head = encode_dag_cbor([0] * len(cids))[: -len(cids) or None]
    links: Any = decode_dag_cbor(
        b"".join([head, *(_LINK_HEAD + each for each in cids)]), atjson_mode=True
    )
    return [link["$link"] for link in links]
