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
"""What the type of every escape and sealed leaf begins with."""

# Inside a JSON string a quote stands behind a backslash, so `{"json":"` is the beginning of an
# object wherever it stands, and what these match is the whole of one.
_END = rb'","\$type":"' + re.escape(JSON_ESCAPE.encode()) + rb'"\}'
_NUMBERS = re.compile(rb'\{"json":"(-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)' + _END)
_ESCAPES = re.compile(rb'\{"json":"((?:[^"\\]++|\\.)*+)' + _END)

# The encoder goes 254 levels deep. With as many brackets in an escape, the whole is less deep
# than `jsontext.MAX_DEPTH`.
_MAX_BRACKETS = 200


def quick_text(value: dict[str, Any], record: bytes) -> bytes | None:
    """The compact JSON text in UTF-8 of the payload that is stored so; None where only the long
    way can tell, or where the record turns out not to be of the data model.

    `value` is a part of what `cbor.decode` gave for the record, taken as checked or not, or an
    object that has such a part.
    """
    try:
        text = orjson.dumps(value, option=orjson.OPT_STRICT_INTEGER)
    except TypeError:
        return None
    # Looking for one byte first, which few records have for another reason, takes no time.
    marks = record.count(_MARK) if _MARK[-1:] in record else 0
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
