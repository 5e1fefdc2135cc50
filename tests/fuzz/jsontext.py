"""JSON that loses nothing: what is read is written as it was, give or take white space."""

from __future__ import annotations

import json

from lettaspace.conversation import jsontext
from lettaspace.errors import InvalidInput
from tests.fuzz.texts import outcome, text

WORDS = (
    *(b"NaN", b"-Infinity", b"-0", b"1.0", b"1e400", b"1E+05", b'"\\ud83c\\udfff"', b'"\\ud800"'),
    *(b"\xef\xbb\xbf", b'{"$type":"xyz.quasigod.lab.letta.defs#json","json":"', b"\xe2\x80\xa8"),
    *(b'{"a":1,"a":2}', b'{"__proto__":', b'{"":', b"[[", b"null", b"9" * 30, b"\\/", b"\\u0000"),
)


def fuzz_jsontext(given: bytes) -> None:
    strict, refusal = outcome(lambda: jsontext.loads(given), InvalidInput)
    assert (refusal is None) is _is_json(given)
    lenient, other = outcome(lambda: jsontext.loads(text(given)), InvalidInput)
    assert refusal is not None or other is None
    for value in (strict, lenient):
        source = jsontext.source_text(value)
        assert source.isascii()
        assert jsontext.source_text(jsontext.loads(source)) == source
        for indent in (None, 2):
            written = jsontext.dumps(value, indent=indent)
            json.loads(written.encode(), parse_int=float, parse_constant=_refuse)
            again, deeper = outcome(lambda w=written: jsontext.loads(w), InvalidInput)
            if deeper:  # by the object that stands for a constant
                assert jsontext.count_constants(value)
            else:
                assert jsontext.dumps(again) == jsontext.dumps(value)
    if refusal is None and jsontext.count_constants(strict) == 0:
        assert json.loads(given.decode(), parse_int=_number) == strict


def _is_json(given: bytes) -> bool:
    try:
        json.loads(given.decode(), parse_int=float)
    except (ValueError, RecursionError):
        return False
    return _depth(given) <= jsontext.MAX_DEPTH


def _depth(given: bytes) -> int:
    """Of a text that is JSON."""
    depth = deepest = 0
    quoted = escaped = False
    for byte in given:
        if quoted:
            quoted = escaped or byte != 0x22
            escaped = not escaped and byte == 0x5C
        elif byte == 0x22:
            quoted = True
        elif byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest


def _number(digits: str) -> int | float:
    return int(digits) if len(digits) <= jsontext.MAX_INT_DIGITS else float(digits)


def _refuse(constant: str) -> None:
    raise AssertionError(constant)
