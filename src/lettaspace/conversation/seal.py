"""Large leaves as sealed blobs: some hosts serve every blob to everybody.

    key    = BLAKE3 in key-derivation mode (context `CONTEXT`) of the whole content, 32 bytes
    chunk  = `CHUNK_BYTES` of the content, the last one shorter; empty content is one empty chunk
    blob i = ChaCha20-Poly1305(key, nonce = i as 12 bytes big-endian, no associated data),
             the 16-byte tag at the end, so at most 4 MiB; its CID is that of raw bytes

The key follows from the content, so equal content gives equal blobs, stored once, and no
nonce is ever used for two plaintexts. The key stands in the record: who may read the record
can open the blobs, and nobody else. It is also the check on the whole: an opened content
must give its own key again, so a chunk that is missing, cut or in another's place shows.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from blake3 import blake3

from lettaspace.atproto.cid import CID
from lettaspace.errors import Damaged

CONTEXT = "xyz.quasigod.lab.letta 2026-09 sealed leaf v1"
"""BLAKE3 context string. Part of the format: another string, other keys."""

TAG_BYTES = 16

CHUNK_BYTES = 4 * 1024 * 1024 - TAG_BYTES
"""Plain bytes a chunk, so that the blob is at most 4 MiB (hosts take 5 MiB)."""

KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class Sealed:
    """A sealed content: what the record says of it, and the blobs to store."""

    key: bytes
    """32 bytes."""
    blobs: list[tuple[CID, bytes]]
    """In order, at least one; each at most 4 MiB."""
    size: int
    """Bytes of the plain content."""


def seal(content: bytes) -> Sealed:
    """Encrypt a content; the same content gives the same result everywhere."""
    # Here and not above: listing and reading small records never needs it.
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    key = derive_key(content)
    cipher = ChaCha20Poly1305(key)
    view = memoryview(content)
    blobs: list[tuple[CID, bytes]] = []
    for index in range(chunk_count(len(content))):
        chunk = view[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES]
        blob = cipher.encrypt(_nonce(index), chunk, None)
        blobs.append((CID.for_raw(blob), blob))
    return Sealed(key, blobs, len(content))


def open_sealed(key: bytes, chunks: Iterable[bytes], size: int) -> bytes:
    """The plain content of sealed chunks, given in order.

    Raises:
        Damaged: a chunk is missing, surplus, cut, altered or in another's place, or the
            content is not the one that the key was derived from.
    """
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    if len(key) != KEY_BYTES or size < 0:
        raise Damaged("sealed content has a malformed key or size")
    cipher = ChaCha20Poly1305(key)
    plain: list[bytes] = []
    got = 0
    for index, chunk in enumerate(chunks):
        want = min(CHUNK_BYTES, size - got)
        # Checked first, so that a wrong list of blobs costs no memory.
        if index >= chunk_count(size) or len(chunk) != want + TAG_BYTES:
            raise Damaged(f"sealed chunk {index} has the wrong length")
        try:
            plain.append(cipher.decrypt(_nonce(index), chunk, None))
        except InvalidTag:
            raise Damaged(f"sealed chunk {index} cannot be opened with its key") from None
        got += want
    if len(plain) != chunk_count(size):
        raise Damaged(f"sealed content has {len(plain)} of {chunk_count(size)} chunks")
    content = plain[0] if len(plain) == 1 else b"".join(plain)
    if derive_key(content) != key:
        raise Damaged("sealed content is not the one its key was derived from")
    return content


def derive_key(content: bytes) -> bytes:
    """The 32-byte key of a content."""
    return blake3(content, derive_key_context=CONTEXT).digest()


def chunk_count(size: int) -> int:
    """How many blobs a content of that many bytes takes."""
    return max(1, -(-size // CHUNK_BYTES))


def _nonce(index: int) -> bytes:
    return index.to_bytes(12, "big")
