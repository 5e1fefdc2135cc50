"""Any JSON payload as a value of the AT Protocol data model, and back exactly.

The data model has no floats, no integers beyond 2^53, no lone surrogates; it reserves keys,
and it sorts them. What cannot travel as itself travels as an escape, an object of type
`defs#json` that holds the source text; what is too large travels in sealed blobs (`leaves`).
`docs/records.md` has the rules for implementers in other languages.
"""

from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lettaspace.atproto.cid import CID
from lettaspace.conversation.jsontext import (
    JSON_ESCAPE,
    Number,
    loads,
    plain_value,
    source_text,
    well_formed,
)
from lettaspace.conversation.jsontext import MAX_DEPTH as MAX_TEXT_DEPTH
from lettaspace.conversation.leaves import (
    BLOB_BASE64,
    BLOB_JSON,
    BLOB_TEXT,
    DATA_LIMIT,
    base64_leaf,
    canonical,
    exact_base64,
    fit,
    leaf_bound,
    open_leaf,
)
from lettaspace.conversation.shapes import FREE, Known, ListOf, Shape
from lettaspace.errors import Damaged, InvalidInput

MAX_DEPTH = 64
"""Lists and objects of a value inside one another, the payload's root counted as 1. What
stands deeper is escaped."""

MAX_INT = (1 << 53) - 1

RESERVED = frozenset({"$type", "$link", "$bytes", "__proto__", ""})
"""Keys that have a meaning in the data model or break hosts."""

_BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class Encoded:
    """A payload ready to be stored."""

    value: dict[str, Any]
    """Of the data model, at most `DATA_LIMIT` bytes of DAG-CBOR."""
    blobs: dict[CID, bytes]
    """Exactly the blobs that `value` refers to."""


def encode(payload: Any, shape: Shape = FREE) -> Encoded:
    """Encode a payload: what `jsontext.loads` gives, of the structure that `shape` knows.

    A pure function: equal payloads (number texts and the order of free-form keys included)
    have equal values and blobs.

    Raises:
        InvalidInput: the payload holds what JSON has not: other types, keys that are no str,
            cycles or nesting beyond `jsontext.MAX_DEPTH`.
    """
    encoder = _Encoder()
    # The data of an envelope has to be an object, so any other payload becomes one.
    is_object = isinstance(payload, dict)
    value = encoder.value(payload, shape, 1) if is_object else encoder.escape(payload)
    if encoder.bound > DATA_LIMIT:
        value = fit(payload, value, encoder.blobs)
    return Encoded(value, encoder.blobs)


def decode(value: Any, open_blob: Callable[[CID], bytes], *, images: bool = True) -> Any:
    """The payload of a value.

    Objects come back with their keys in canonical order, but for what an escape preserved.
    Values of other writers are taken as they are: unknown typed objects stay, CIDs and bytes
    become `{"$link": …}` and `{"$bytes": …}`.

    With `images` false, base64 leaves are not opened: they come back as the sealed object in
    its JSON form, which `leaves.open_leaf` opens later.

    Raises:
        Damaged: an escape or a sealed leaf is malformed, or a blob is not what it should be.
            What `open_blob` raises for a missing blob passes through.
    """
    return _Decoder(open_blob, images).value(value, 1)


class _Encoder:
    """One walk over a payload; `bound` is at least the bytes of DAG-CBOR so far."""

    __slots__ = ("blobs", "bound")

    def __init__(self) -> None:
        self.bound = 0
        self.blobs: dict[CID, bytes] = {}

    def value(self, value: Any, shape: Shape, depth: int) -> Any:
        kind: Any = type(value)
        if kind is dict:
            return self.object(value, shape if type(shape) is Known else None, depth)
        if kind is list:
            if depth > MAX_DEPTH:
                return self.escape(value)
            self.bound += 9
            item = shape.item if type(shape) is ListOf else None
            return [self.value(element, item, depth + 1) for element in value]
        if kind is str:
            if value.isascii():
                self.bound += 9 + len(value)
                return value
            if value[0] == _BOM or not well_formed(value):
                return self.escape(value)
            self.bound += 9 + 4 * len(value)
            return value
        if kind is int:
            if -MAX_INT <= value <= MAX_INT:
                self.bound += 9
                return value
            return self.escape(value)
        if kind is Number:
            return self.wrap(value.text)
        if value is None or kind is bool:
            self.bound += 1
            return value
        if isinstance(value, float):
            return self.escape(value)
        if (plain := plain_value(value)) is not value:
            return self.value(plain, shape, depth)
        raise InvalidInput(f"JSON has no {type(value).__name__}")

    def object(self, value: dict[str, Any], shape: Known | None, depth: int) -> dict[str, Any]:
        try:
            names = "".join(value)
        except TypeError:
            raise InvalidInput("an object key is not a string") from None
        if depth > MAX_DEPTH or not RESERVED.isdisjoint(value):
            return self.escape(value)
        if not names.isascii() and not all(k[0] != _BOM and well_formed(k) for k in value):
            return self.escape(value)
        if shape is None and len(value) > 1 and canonical(value) != list(value):
            return self.escape(value)
        fields = {} if shape is None else shape.fields
        # Heads of the object, its keys, and the strings met below.
        self.bound += 9 + 18 * len(value) + 4 * len(names)
        out: dict[str, Any] = {}
        for key, item in value.items():
            if type(item) is str and item.isascii():
                self.bound += len(item)
                out[key] = item
            else:
                out[key] = self.value(item, fields.get(key), depth + 1)
        if shape is not None and shape.images and out.get("type") == "image":
            data: Any = out.get("data")
            content = exact_base64(data) if type(data) is str else None
            if content is not None:
                out["data"], blobs = base64_leaf(content, out.get("mimeType"))
                self.blobs.update(blobs)
                self.bound += leaf_bound(len(content)) - len(data)
        return out

    def escape(self, value: Any) -> dict[str, Any]:
        return self.wrap(source_text(value))

    def wrap(self, text: str) -> dict[str, Any]:
        self.bound += 96 + len(text)
        return {"json": text, "$type": JSON_ESCAPE}


class _Decoder:
    __slots__ = ("open_blob", "opened")

    def __init__(self, open_blob: Callable[[CID], bytes], images: bool) -> None:
        self.open_blob = open_blob
        self.opened = (BLOB_TEXT, BLOB_JSON, BLOB_BASE64) if images else (BLOB_TEXT, BLOB_JSON)

    def value(self, value: Any, depth: int) -> Any:
        kind: Any = type(value)
        if kind is dict:
            marker = value.get("$type")
            if marker is not None:
                if marker == JSON_ESCAPE:
                    return _parse(value.get("json"))
                if type(marker) is str and marker in self.opened:
                    return self.leaf(value, marker)
            if depth > MAX_TEXT_DEPTH:
                raise Damaged(f"value is nested too deeply (more than {MAX_TEXT_DEPTH} levels)")
            out: dict[str, Any] = {}
            for key in canonical(value):
                item = value[key]
                if type(item) is str:
                    out[key] = item
                else:
                    out[key] = self.value(item, depth + 1)
            return out
        if kind is list:
            if depth > MAX_TEXT_DEPTH:
                raise Damaged(f"value is nested too deeply (more than {MAX_TEXT_DEPTH} levels)")
            items: list[Any] = []
            for item in value:
                items.append(self.value(item, depth + 1))
            return items
        if kind is bytes:
            return {"$bytes": b64encode(value).decode().rstrip("=")}
        if kind is CID:
            return {"$link": str(value)}
        return value

    def leaf(self, leaf: dict[str, Any], marker: str) -> Any:
        content = open_leaf(leaf, self.open_blob)
        if marker == BLOB_BASE64:
            return b64encode(content).decode()
        if marker == BLOB_TEXT:
            try:
                return content.decode()
            except UnicodeDecodeError:
                raise Damaged("a sealed text is not UTF-8") from None
        return _parse(content)


def _parse(text: Any) -> Any:
    if not isinstance(text, str | bytes):
        raise Damaged("an escape has no source text")
    try:
        return loads(text)
    except InvalidInput as error:
        raise Damaged(f"an escape's source text cannot be read: {error}") from None
