"""The JSON text of what is stored, without making the payload first.

A stored value differs from its payload only where it holds an escape, a sealed leaf, bytes or a
CID. Keys already stand in the payload's order, which is DAG-CBOR's. So its text is that of the
payload, once each escape is replaced by the source text in it. Whatever else there is, or might
be, is left to the long way, `jsontext.dumps(codec.decode(value, …))`: both give the same bytes.
"""

import re
from typing import Any

import orjson

from lettaspace.conversation.jsontext import JSON_ESCAPE, dumps, loads
from lettaspace.conversation.leaves import DEFS
from lettaspace.errors import InvalidInput

_MARK = f"{DEFS}#".encode()

# Inside a JSON string a quote stands behind a backslash, so `{"json":"` is the beginning of an
# object wherever it stands, and what these match is the whole of one.
_END = rb'","\$type":"' + re.escape(JSON_ESCAPE.encode()) + rb'"\}'
_NUMBERS = re.compile(rb'\{"json":"(-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)' + _END)
_ESCAPES = re.compile(rb'\{"json":"((?:[^"\\]++|\\.)*+)' + _END)

# The encoder goes 254 levels deep. With as many brackets in an escape, the whole is less deep
# than `jsontext.MAX_DEPTH`.
_MAX_BRACKETS = 200


def count_marks(record: bytes) -> int:
    """How often the name that escapes and sealed leaves go by occurs in a record's DAG-CBOR."""
    return record.count(_MARK)


def quick_text(value: dict[str, Any], marks: int) -> bytes | None:
    """The compact JSON text in UTF-8 of the payload that is stored so; None where only
    `codec` can tell.

    `value` is a part of what `cbor.decode` gave, or an object that has one; `marks` are those
    of the whole record.
    """
    try:
        text = orjson.dumps(value)
    except TypeError:
        return None
    if not marks:
        return text
    pieces = _NUMBERS.split(text)
    found = len(pieces) // 2
    if found == marks:
        return b"".join(pieces)
    pieces = _ESCAPES.split(b"".join(pieces))
    if found + len(pieces) // 2 != marks:
        # Sealed leaves, or somebody wrote about them.
        return None
    for at in range(1, len(pieces), 2):
        source = _source_text(orjson.loads(b'"%b"' % pieces[at]))
        if source is None:
            return None
        pieces[at] = source
    return b"".join(pieces)


def _source_text(source: str) -> bytes | None:
    """What `dumps` makes of an escape's source text; None if that is too deep or no JSON."""
    if source.count("[") + source.count("{") > _MAX_BRACKETS:
        return None
    text = source.encode()
    try:
        # As it nearly always is: compact, in ASCII, without odd numbers.
        if orjson.dumps(orjson.loads(text)) == text:
            return text
    except orjson.JSONDecodeError:
        pass
    try:
        return dumps(loads(text)).encode()
    except InvalidInput:
        return None
