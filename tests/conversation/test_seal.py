import pytest
from blake3 import blake3
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from hypothesis import given
from hypothesis import strategies as st

from lettaspace.atproto.cid import CID
from lettaspace.conversation import seal as module
from lettaspace.conversation.seal import CHUNK_BYTES, open_sealed, seal
from lettaspace.errors import Damaged

MIB = 1024 * 1024


def unseal(sealed):
    return open_sealed(sealed.key, [blob for _, blob in sealed.blobs], sealed.size)


@pytest.fixture
def small_chunks(monkeypatch):
    """Four chunks of 16 bytes and one of 3, to take apart."""
    monkeypatch.setattr(module, "CHUNK_BYTES", 16)
    sealed = seal(bytes(range(67)))
    assert [len(blob) for _, blob in sealed.blobs] == [32, 32, 32, 32, 19]
    return sealed


@given(st.binary(max_size=200))
def test_content_comes_back(content):
    sealed = seal(content)
    assert unseal(sealed) == content
    assert sealed.size == len(content)
    assert [cid for cid, _ in sealed.blobs] == [CID.for_raw(blob) for _, blob in sealed.blobs]
    assert seal(content) == sealed


@pytest.mark.parametrize(
    ("size", "lengths"),
    [
        (0, [16]),
        (1, [17]),
        (CHUNK_BYTES - 1, [4 * MIB - 1]),
        (CHUNK_BYTES, [4 * MIB]),
        (CHUNK_BYTES + 1, [4 * MIB, 17]),
        (2 * CHUNK_BYTES + 5, [4 * MIB, 4 * MIB, 21]),
    ],
)
def test_blobs_are_at_most_four_mebibytes(size, lengths):
    content = bytes(size)
    sealed = seal(content)
    assert [len(blob) for _, blob in sealed.blobs] == lengths
    assert unseal(sealed) == content


GOLDEN = {
    b"": (
        "dda134f9cbd3291caeb5cbaee02638988e00ffc2b5c1530347de57c42afef522",
        ["bafkreigoammpdjxztybbn7wit3fz46hmbgrpez5fazthyrxmy27jbdqtgu"],
    ),
    b"plum and fig": (
        "e67078168003d2579e46e6ae82cb9c18fceac1e004e8ae97c62f6089f7285a9d",
        ["bafkreic46wcfulebwe37vlqyf35c5leb4hijjahn7yil4govzxhpu56piq"],
    ),
    b"plum" * (CHUNK_BYTES // 4 + 1): (
        "24b6e7faa208e9ec1feb1241952d6dafa87c9a6e4a70a1950a6a8261ea33f2bd",
        [
            "bafkreicvx4iixsxjr7v64n52eaxx7nbdrpm5jxvgevwmzl4jg4naqou2nm",
            "bafkreiddccx5yguayns7ogj2u4rrrjki6bxdij5mjwi4un2xnrbsqu3vrq",
        ],
    ),
}


@pytest.mark.parametrize("content", GOLDEN, ids=["empty", "short", "two chunks"])
def test_the_format_never_changes(content):
    key, cids = GOLDEN[content]
    sealed = seal(content)
    assert (sealed.key.hex(), [str(cid) for cid, _ in sealed.blobs]) == (key, cids)


def test_the_algorithm_is_the_documented_one():
    content = bytes(range(256)) * 16_385
    key = blake3(
        content, derive_key_context="xyz.quasigod.lab.letta 2026-09 sealed leaf v1"
    ).digest()
    step = 4 * MIB - 16
    blobs = [
        ChaCha20Poly1305(key).encrypt(
            bytes([0] * 11 + [i]), content[i * step : (i + 1) * step], b""
        )
        for i in range(2)
    ]
    sealed = seal(content)
    assert (sealed.key, [blob for _, blob in sealed.blobs]) == (key, blobs)


def test_nothing_of_the_content_shows():
    for _, blob in seal(b"plum and fig " * 1000).blobs:
        assert b"plum" not in blob


@pytest.mark.parametrize("index", range(5))
def test_an_altered_chunk_is_damaged(small_chunks, index):
    blobs = [blob for _, blob in small_chunks.blobs]
    for position in range(len(blobs[index])):
        altered = bytearray(blobs[index])
        altered[position] ^= 1
        given_blobs = [*blobs[:index], bytes(altered), *blobs[index + 1 :]]
        with pytest.raises(Damaged, match=f"chunk {index}"):
            open_sealed(small_chunks.key, given_blobs, 67)


@pytest.mark.parametrize("index", range(5))
def test_a_cut_missing_or_surplus_chunk_is_damaged(small_chunks, index):
    blobs = [blob for _, blob in small_chunks.blobs]
    for lot in (
        [*blobs[:index], blobs[index][:-1], *blobs[index + 1 :]],
        [*blobs[:index], b"", *blobs[index + 1 :]],
        [*blobs[:index], blobs[index] + b"\0", *blobs[index + 1 :]],
        [*blobs[:index], *blobs[index + 1 :]],
        [*blobs[:index], blobs[index], *blobs[index:]],
        blobs[:index],
    ):
        with pytest.raises(Damaged):
            open_sealed(small_chunks.key, lot, 67)


@pytest.mark.parametrize("first", range(5))
@pytest.mark.parametrize("second", range(5))
def test_swapped_chunks_are_damaged(small_chunks, first, second):
    blobs = [blob for _, blob in small_chunks.blobs]
    blobs[first], blobs[second] = blobs[second], blobs[first]
    if first == second:
        assert open_sealed(small_chunks.key, blobs, 67) == bytes(range(67))
        return
    with pytest.raises(Damaged):
        open_sealed(small_chunks.key, blobs, 67)


@pytest.mark.parametrize("size", [-1, 0, 1, 48, 64, 66, 68, 80, 10**18])
def test_a_wrong_size_is_damaged(small_chunks, size):
    with pytest.raises(Damaged):
        open_sealed(small_chunks.key, [blob for _, blob in small_chunks.blobs], size)


def test_a_shorter_content_under_the_same_key_is_damaged(small_chunks):
    """Whole leading chunks with a matching size open chunk by chunk; the key tells."""
    blobs = [blob for _, blob in small_chunks.blobs[:2]]
    with pytest.raises(Damaged, match="derived from"):
        open_sealed(small_chunks.key, blobs, 32)


def test_chunks_of_another_content_are_damaged(small_chunks):
    other = seal(bytes(67))
    blobs = [blob for _, blob in small_chunks.blobs]
    with pytest.raises(Damaged, match="chunk 0 cannot be opened"):
        open_sealed(other.key, blobs, 67)
    blobs[3] = other.blobs[3][1]
    with pytest.raises(Damaged, match="chunk 3 cannot be opened"):
        open_sealed(small_chunks.key, blobs, 67)


@pytest.mark.parametrize("key", [b"", b"k" * 31, b"k" * 33])
def test_a_malformed_key_is_damaged(key):
    with pytest.raises(Damaged, match="malformed"):
        open_sealed(key, [b"x" * 16], 0)
