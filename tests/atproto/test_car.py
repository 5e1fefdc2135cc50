"""CAR framing: what is written is read back however the stream is cut, and nothing else is."""

from __future__ import annotations

import io
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lettaspace.atproto import car, cbor
from lettaspace.atproto.cid import CID
from lettaspace.errors import InvalidInput

ROOT = CID.for_cbor(b"\xa0")
RAW = (CID.for_raw(b"shards"), b"shards")


def read(data: bytes, **options: int) -> tuple[tuple[CID, ...], list[tuple[CID, bytes]]]:
    reader = car.Reader(car.chunks(io.BytesIO(data)), **options)
    return reader.roots, [(block.cid, block.data) for block in reader]


def written(*blocks: tuple[CID, bytes], roots: tuple[CID, ...] = (ROOT,)) -> bytes:
    return b"".join(car.write(roots, blocks))


def with_header(data: bytes) -> bytes:
    return bytes([len(data)]) + data


@given(
    st.lists(st.binary(max_size=300)),
    st.lists(st.binary(max_size=40), max_size=3),
    st.lists(st.integers(0, 2000), max_size=12),
)
def test_round_trip_however_the_stream_is_cut(
    contents: list[bytes], roots: list[bytes], cuts: list[int]
) -> None:
    blocks = [(CID.for_raw(content), content) for content in contents]
    wanted = tuple(CID.for_cbor(root) for root in roots)
    data = written(*blocks, roots=wanted)
    at = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    reader = car.Reader([data[start:end] for start, end in pairwise(at)])
    assert reader.roots == wanted
    found = list(reader)
    assert [(block.cid, block.data) for block in found] == blocks
    assert all(data[b.offset : b.offset + len(b.data)] == b.data for b in found)
    assert reader.offset == len(data)


def test_byte_by_byte() -> None:
    data = written(RAW, (ROOT, b"\xa0"))
    reader = car.Reader(data[at : at + 1] for at in range(len(data)))
    assert [block.data for block in reader] == [b"shards", b"\xa0"]


@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        roots, blocks = read(data)
    except InvalidInput:
        return
    assert written(*blocks, roots=roots) == data or len(data) > len(written(*blocks))


def test_cut_anywhere_but_between_blocks_it_is_refused() -> None:
    data = written(RAW, (ROOT, b"\xa0"))
    whole = {len(written()), len(written(RAW)), len(data)}
    for end in range(len(data)):
        if end not in whole:
            with pytest.raises(InvalidInput, match="CAR, byte "):
                read(data[:end])
        else:
            read(data[:end])


def test_any_bit_flipped_in_a_block_is_noticed() -> None:
    data = written(RAW)
    for at in range(len(written()), len(data)):
        for bit in range(8):
            bad = bytearray(data)
            bad[at] ^= 1 << bit
            with pytest.raises(InvalidInput, match="CAR, byte "):
                read(bytes(bad))


def test_a_header_may_hold_more() -> None:
    data = with_header(cbor.encode({"version": 1, "roots": [ROOT], "extra": 1}))
    assert read(data) == ((ROOT,), [])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "byte 0: there is nothing"),
        (b"\x00", "byte 0: a header of 0 bytes"),
        (b"\x80\x80\x80\x01", "byte 0: a header of 2097152 bytes"),
        (with_header(cbor.encode({"version": 2, "roots": []})), "byte 1: .*version 1"),
        (with_header(cbor.encode({"version": 1})), "byte 1: .*no list of roots"),
        (with_header(cbor.encode({"version": 1, "roots": ["x"]})), "byte 1: .*no list of roots"),
        (with_header(cbor.encode([1])), "byte 1: .*version 1"),
        (b"\x02hi", "byte 1: header: not DAG-CBOR"),
        (written() + b"\x00", "has no CID"),
        (written() + b"\x25" + bytes(37), "not a binary CIDv1"),
        (written() + b"\xff" * 9 + b"\x01", "more than 63 bits"),
        (written() + b"\xa4\x00", "longer than it has to be"),
        (written() + b"\x80", "it ends where 1 more bytes"),
        (written() + b"\xff\xff\xff\xff\x0f", "is too large"),
        (written() + car.section(RAW[0], b"Shards"), "not the content of its CID"),
    ],
)
def test_what_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        read(data)


def test_limits() -> None:
    data = written(RAW, RAW)
    assert len(read(data, max_block=6)[1]) == 2
    with pytest.raises(InvalidInput, match="6 bytes is too large"):
        read(data, max_block=5)
    reader = car.Reader([data], max_block=5)
    block = reader.next(6)
    assert block is not None
    assert block.data == b"shards"
    with pytest.raises(InvalidInput, match="too large"):
        reader.next()


def test_a_length_that_lies_costs_no_memory() -> None:
    head = car.section(RAW[0], bytes(car.MAX_BLOCK))[:40]
    with pytest.raises(InvalidInput, match="it ends where 16777216 more bytes"):
        read(written() + head)
