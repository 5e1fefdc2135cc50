"""Large leaves: the parts of a payload that leave the record for sealed blobs.

A sealed leaf is an object of one of four types, with `blobs`, `key`, `size` and `mimeType`:

- `#blobText`: the content is the UTF-8 of a string;
- `#blobBase64`: the content is what a base64 string encodes, where encoding it again (standard
  alphabet, padded, no line breaks) gives that very string;
- `#blobJson`: the content is the JSON source text of a value;
- `#blobBytes`: the content is the thing itself (git bundles); payloads have none.

`fit` chooses what to seal: the largest strings first, each at least `MIN_LEAF`; and where they
are not enough, the smallest list or object that is.
"""

import binascii
import re
from base64 import b64decode
from collections.abc import Callable
from typing import Any, NamedTuple

from lettaspace.atproto.cid import CID
from lettaspace.atproto.data import blob_refs
from lettaspace.conversation.jsontext import JSON_ESCAPE, source_text
from lettaspace.conversation.seal import chunk_count, open_sealed, seal
from lettaspace.errors import Damaged, InvalidInput

DEFS = "xyz.quasigod.lab.letta.defs"
BLOB_TEXT = f"{DEFS}#blobText"
BLOB_BASE64 = f"{DEFS}#blobBase64"
BLOB_JSON = f"{DEFS}#blobJson"
BLOB_BYTES = f"{DEFS}#blobBytes"
LEAF_TYPES = frozenset({BLOB_TEXT, BLOB_BASE64, BLOB_JSON, BLOB_BYTES})

DATA_LIMIT = 128 * 1024 - 4 * 1024
"""Bytes of DAG-CBOR a payload's value takes at most. What a record has around it fits in the
4 KiB that are left, whatever DIDs it names, so the record stays under 128 KiB."""

MIN_LEAF = 1024
"""Smaller strings stay: what replaces them takes about 300 bytes."""

OCTETS = "application/octet-stream"
PLAIN_TEXT = "text/plain"
JSON_TEXT = "application/json"

_MIME = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,63}/[A-Za-z0-9!#$&^_.+-]{1,63}", re.ASCII)


def make_leaf(kind: str, content: bytes, mime_type: str) -> tuple[dict[str, Any], dict[CID, bytes]]:
    """The sealed leaf for a content, and the blobs it refers to."""
    sealed = seal(content)
    blobs = [
        {"ref": cid, "size": len(blob), "$type": "blob", "mimeType": OCTETS}
        for cid, blob in sealed.blobs
    ]
    leaf = {
        "key": sealed.key,
        "size": sealed.size,
        "$type": kind,
        "blobs": blobs,
        "mimeType": mime_type,
    }
    return leaf, dict(sealed.blobs)


def base64_leaf(content: bytes, sibling_mime: Any) -> tuple[dict[str, Any], dict[CID, bytes]]:
    """The leaf for what a base64 string encodes; `sibling_mime` is the `mimeType` beside it."""
    known = isinstance(sibling_mime, str) and _MIME.fullmatch(sibling_mime)
    return make_leaf(BLOB_BASE64, content, sibling_mime if known else OCTETS)


def exact_base64(text: str) -> bytes | None:
    """What a base64 text encodes, if encoding that gives the same text; None otherwise."""
    if not text or len(text) % 4 or not text.isascii():
        return None
    try:
        content = binascii.a2b_base64(text, strict_mode=True)
    except binascii.Error:
        return None
    # Unused bits of the last character may be set.
    again = binascii.b2a_base64(content[-(len(content) % 3 or 3) :], newline=False)
    return content if again == text[-4:].encode() else None


def open_leaf(leaf: dict[str, Any], open_blob: Callable[[CID], bytes]) -> bytes:
    """The plain content of a sealed leaf, in the data model or in its JSON form.

    Raises:
        Damaged: the object is malformed or its blobs don't give the content. What
            `open_blob` raises for a missing blob passes through.
    """
    blobs, key, size = leaf.get("blobs"), leaf.get("key"), leaf.get("size")
    if isinstance(key, dict):
        key = _from_json(key, "$bytes")
    if not isinstance(blobs, list) or type(key) is not bytes or type(size) is not int:
        raise Damaged("a sealed leaf is malformed")
    return open_sealed(key, (open_blob(_ref(blob)) for blob in blobs), size)


def canonical(keys: Any) -> list[str]:
    """Keys in the data model's order: shorter UTF-8 first, then by bytes."""
    ordered = sorted(keys)
    if "".join(ordered).isascii():
        ordered.sort(key=len)
    else:
        ordered.sort(key=lambda key: (len(raw := key.encode("utf-8", "surrogatepass")), raw))
    return ordered


def fit(payload: Any, value: dict[str, Any], blobs: dict[CID, bytes]) -> dict[str, Any]:
    """Seal parts of an encoded payload until it takes at most `DATA_LIMIT` bytes.

    `value` is what `payload` was encoded as; it is changed in place, as `blobs` is, and
    returned, unless the whole of it had to be sealed.
    """
    root: list[Any] = [value]
    plan = _Plan()
    total = plan.measure(payload, value, root, 0, None)
    size = total.size
    sealed = range(0)
    if total.least > DATA_LIMIT:
        tree = plan.smallest_tree(total.least)
        size += _replace(tree, make_leaf(BLOB_JSON, *_json(tree.payload)), blobs)
        sealed = range(tree.first, tree.last)
    for found in sorted(plan.strings, key=lambda found: (-found.bytes, found.first)):
        if size <= DATA_LIMIT:
            break
        if found.first not in sealed:
            size += _replace(found, _string_leaf(found), blobs)
    if size > DATA_LIMIT:
        # Only where a tree held so much in images that its list of blobs is itself large.
        root[0], more = make_leaf(BLOB_JSON, *_json(payload))
        blobs.update(more)
    if sealed or size > DATA_LIMIT:
        # Images that were sealed by themselves now stand inside the sealed text.
        used = set(blob_refs(root))
        for cid in [cid for cid in blobs if cid not in used]:
            del blobs[cid]
    fitted: dict[str, Any] = root[0]
    return fitted


def _replace(
    found: "_String | _Tree", made: tuple[dict[str, Any], dict[CID, bytes]], blobs: dict[CID, bytes]
) -> int:
    """Put a leaf in the place of what was found; by how many bytes the value grew."""
    leaf, more = made
    found.parent[found.key] = leaf
    blobs.update(more)
    return _leaf_size(leaf) - found.size


def _string_leaf(found: "_String") -> tuple[dict[str, Any], dict[CID, bytes]]:
    here = found.parent[found.key]
    if found.is_json:
        return make_leaf(BLOB_JSON, here["json"].encode(), JSON_TEXT)
    content = exact_base64(here)
    if content is not None:
        return base64_leaf(content, found.sibling_mime)
    return make_leaf(BLOB_TEXT, here.encode(), PLAIN_TEXT)


def _json(payload: Any) -> tuple[bytes, str]:
    return source_text(payload).encode(), JSON_TEXT


class _Size(NamedTuple):
    size: int
    """Bytes of DAG-CBOR."""
    least: int
    """The same once every large string in it is sealed, or slightly more."""


class _String(NamedTuple):
    """A string, or the source text of an escape, of at least `MIN_LEAF` bytes."""

    first: int
    """Its place in the traversal."""
    bytes: int
    size: int
    """Bytes of DAG-CBOR of what a leaf would replace."""
    parent: Any
    key: Any
    is_json: bool
    sibling_mime: Any


class _Tree(NamedTuple):
    """A list or object that is no escape and no leaf."""

    first: int
    last: int
    """Its places in the traversal, its own first, the last one excluded."""
    least: int
    size: int
    parent: Any
    key: Any
    payload: Any


class _Plan:
    """What of a value could be sealed: one pass in canonical order, exact sizes."""

    def __init__(self) -> None:
        self.strings: list[_String] = []
        self.trees: list[_Tree] = []
        self.count = 0

    def measure(self, payload: Any, value: Any, parent: Any, key: Any, mime: Any) -> _Size:
        self.count += 1
        first = self.count
        kind: Any = type(value)
        if kind is str:
            length = len(value) if value.isascii() else len(value.encode())
            size = length + _head(length)
            if length < MIN_LEAF:
                return _Size(size, size)
            self.strings.append(_String(first, length, size, parent, key, False, mime))
            return _Size(size, leaf_bound(length))
        if kind is dict:
            marker = value.get("$type")
            if marker == JSON_ESCAPE:
                length = len(value["json"])
                size = _ESCAPE_SIZE + length + _head(length)
                if length < MIN_LEAF:
                    return _Size(size, size)
                self.strings.append(_String(first, length, size, parent, key, True, None))
                return _Size(size, leaf_bound(length))
            if marker is not None:
                size = _leaf_size(value)
                return _Size(size, size)
            size = least = _head(len(value))
            sibling = value.get("mimeType")
            for name in canonical(value):
                length = len(name) if name.isascii() else len(name.encode())
                part = self.measure(payload[name], value[name], value, name, sibling)
                size += length + _head(length) + part.size
                least += length + _head(length) + part.least
        elif kind is list:
            size = least = _head(len(value))
            for index, item in enumerate(value):
                part = self.measure(payload[index], item, value, index, None)
                size += part.size
                least += part.least
        else:
            # A negative number's head counts from -1 down.
            size = _head(max(value, ~value)) if kind is int else 1
            return _Size(size, size)
        self.trees.append(_Tree(first, self.count + 1, least, size, parent, key, payload))
        return _Size(size, least)

    def smallest_tree(self, least: int) -> _Tree:
        """The smallest subtree whose sealing is enough; the root if none other is."""
        enough = (
            tree
            for tree in self.trees
            if least - tree.least + leaf_bound(8 * tree.size) <= DATA_LIMIT
        )
        return min(enough, key=lambda tree: (tree.least, tree.first), default=self.trees[-1])


def _head(number: int) -> int:
    """Bytes of a DAG-CBOR head: the number itself, or a length in front of what it counts."""
    if number < 24:
        return 1
    if number < 1 << 8:
        return 2
    if number < 1 << 16:
        return 3
    return 5 if number < 1 << 32 else 9


# {"json": …, "$type": JSON_ESCAPE} without the text and its head.
_ESCAPE_SIZE = 1 + 5 + 6 + 2 + len(JSON_ESCAPE)


def leaf_bound(length: int) -> int:
    """At most this many bytes does a sealed leaf of a content of that length take."""
    return 320 + 120 * chunk_count(length)


def _leaf_size(leaf: dict[str, Any]) -> int:
    """Exact bytes of a sealed leaf made by `make_leaf`."""
    head = 1 + 4 + 34 + 5 + _head(leaf["size"]) + 6 + 2 + len(leaf["$type"]) + 6
    mime = 9 + _head(len(leaf["mimeType"])) + len(leaf["mimeType"])
    blob = 1 + 4 + 41 + 5 + 6 + 5 + 9 + 2 + len(OCTETS)
    blobs = leaf["blobs"]
    return head + mime + _head(len(blobs)) + sum(blob + _head(item["size"]) for item in blobs)


def _ref(blob: Any) -> CID:
    ref: Any = blob.get("ref") if isinstance(blob, dict) else None
    if isinstance(ref, dict):
        ref = _from_json(ref, "$link")
    if type(ref) is not CID:
        raise Damaged("a sealed leaf has a malformed blob")
    return ref


def _from_json(value: dict[str, Any], name: str) -> CID | bytes | None:
    text = value.get(name)
    if len(value) != 1 or not isinstance(text, str):
        return None
    try:
        if name == "$link":
            return CID.parse(text)
        return b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (InvalidInput, ValueError):
        return None
