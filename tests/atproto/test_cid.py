"""CIDs: one form in, one form out."""

from __future__ import annotations

import copy
import pickle
from base64 import b32encode
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lettaspace.atproto.cid import CID, DAG_CBOR, RAW, texts
from lettaspace.errors import InvalidInput

EMPTY_MAP = "bafyreigbtj4x7ip5legnfznufuopl4sg4knzc2cof6duas4b3q2fy6swua"


def test_known_values():
    cid = CID.for_cbor(b"\xa0")
    assert str(cid) == EMPTY_MAP
    assert cid.codec == DAG_CBOR == 0x71
    assert cid.digest == sha256(b"\xa0").digest()
    assert bytes(cid) == b"\x01\x71\x12\x20" + cid.digest
    raw = CID.for_raw(b"Hello from a permissioned blob")
    assert raw.codec == RAW == 0x55
    assert str(raw).startswith("bafkrei")
    assert bytes(raw) == b"\x01\x55\x12\x20" + sha256(b"Hello from a permissioned blob").digest()


@given(st.binary(max_size=64), st.booleans())
def test_round_trips(data, is_raw):
    cid = CID.for_raw(data) if is_raw else CID.for_cbor(data)
    # Against the standard library's base32, which is not what the module uses.
    assert str(cid) == "b" + b32encode(bytes(cid)).decode().rstrip("=").lower()
    assert CID.parse(str(cid)) == cid
    assert CID.from_bytes(bytes(cid)) == cid
    assert hash(CID.parse(str(cid))) == hash(cid)
    assert (CID.for_cbor(data) == CID.for_raw(data)) is False


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nope",
        EMPTY_MAP.upper(),
        EMPTY_MAP[:-1] + "b",  # stray bits at the end
        EMPTY_MAP[:-1],
        EMPTY_MAP + "a",
        EMPTY_MAP + "=",
        EMPTY_MAP + "\n",
        " " + EMPTY_MAP,
        "B" + EMPTY_MAP[1:],
        "QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPbdG",  # version 0
        "zdpuAyvkgEDQm9TenwGkd5eNaosSxjgEYd8QatfPetgB1CdEZ",  # base58
        "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi",  # dag-pb
    ],
)
def test_other_texts_are_refused(text):
    with pytest.raises(InvalidInput):
        CID.parse(text)


DIGEST = bytes(range(32))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00\x01\x71\x12\x20" + DIGEST,  # with a multibase prefix
        b"\x12\x20" + DIGEST,  # version 0
        b"\x02\x71\x12\x20" + DIGEST,
        b"\x01\x70\x12\x20" + DIGEST,  # dag-pb
        b"\x01\x71\x13\x20" + DIGEST,  # SHA-512, cut short
        b"\x01\x71\x12\x1f" + DIGEST,
        b"\x01\x71\x12\x20" + DIGEST[1:],
        b"\x01\x71\x12\x20" + DIGEST + b"\x00",
    ],
)
def test_other_bytes_are_refused(data):
    with pytest.raises(InvalidInput):
        CID.from_bytes(data)


def test_nothing_else_makes_or_changes_one():
    with pytest.raises(TypeError):
        CID()
    cid = CID.for_cbor(b"")
    for name in ("_bytes", "codec", "other"):
        with pytest.raises(AttributeError):
            setattr(cid, name, b"")
        with pytest.raises(AttributeError):
            delattr(cid, name)
    assert not hasattr(cid, "__dict__")
    buffer = bytearray(bytes(cid))
    held = CID.from_bytes(buffer)
    buffer[-1] ^= 1
    assert held == cid


def test_it_is_a_value():
    cid = CID.for_cbor(b"x")
    assert cid != bytes(cid)
    assert cid != str(cid)
    assert copy.copy(cid) is cid
    assert copy.deepcopy([cid]) == [cid]
    assert pickle.loads(pickle.dumps(cid)) == cid  # noqa: S301
    assert repr(cid) == f"CID({str(cid)!r})"
    cids = [CID.for_raw(bytes([n])) for n in range(8)] + [CID.for_cbor(b"")]
    assert [bytes(c) for c in sorted(cids)] == sorted(bytes(c) for c in cids)


@pytest.mark.parametrize("count", [0, 1, 23, 24, 255, 256, 65_536])
def test_many_texts_at_once(count):
    cids = [CID.for_cbor(b"%d" % number) for number in range(min(count, 300))]
    cids += cids[:1] * (count - len(cids))
    assert texts([bytes(cid) for cid in cids]) == [str(cid) for cid in cids]
