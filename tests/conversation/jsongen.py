"""Odd JSON for the tests, and a way to compare it that knows nothing of the code under test."""

import json
from typing import Any

from hypothesis import strategies as st

NUMBERS = [
    "0", "-0", "-0.0", "1", "-1", "1.0", "1e3", "1E5", "1e+3", "0.1", "1e-7", "1e400", "-1e400",
    "1e-400", "0.0000499999999999", "9007199254740991", "9007199254740992", "-9007199254740991",
    "-9007199254740993", "123456789012345678901234567890", "9" * 700,
    "3.141592653589793238462643383279",
]  # fmt: skip
LONG_NUMBER = "12" * 2_500
CONSTANTS = ["NaN", "Infinity", "-Infinity"]
RESERVED = ["$type", "$link", "$bytes", "__proto__", ""]
TYPES = [
    "xyz.quasigod.lab.letta.defs#json",
    "xyz.quasigod.lab.letta.defs#blobText",
    "xyz.quasigod.lab.letta.defs#blobBase64",
    "blob",
    "other.type",
]
ODD = '\ufeff\u2028\u2029\u0085\x00\x1f\x7f"\\/\ud83c\udfff\ud83e\uddea\ue000\uffff🧪é語ab1'

strings = st.one_of(
    st.text(st.sampled_from(ODD), max_size=6),
    st.text(st.characters(codec="utf-8"), max_size=8),
    st.sampled_from([*TYPES, "aGVsbG8=", "AAAA", "AAB=", "image", "image/png", "NaN", ""]),
)
keys = st.one_of(
    st.sampled_from("abcdefgh"),
    st.sampled_from([*RESERVED, "json", "blobs", "key", "size", "type", "data", "mimeType"]),
    strings,
)


def quote(value: str, style: int) -> str:
    """A JSON string: as little escaped as is allowed, everything, or every third character."""
    out = ['"']
    for index, char in enumerate(value):
        must = char < " " or char in '"\\' or "\ud800" <= char <= "\udfff"
        if must or style == 1 or (style == 2 and index % 3 == 0):
            raw = char.encode("utf-16-be", "surrogatepass").hex()
            out += [f"\\u{raw[i : i + 4]}" for i in range(0, len(raw), 4)]
        else:
            out.append(char)
    out.append('"')
    return "".join(out)


def string_texts(values: Any = strings) -> Any:
    return st.builds(quote, values, st.integers(0, 2))


scalars = st.one_of(
    st.sampled_from(["null", "true", "false"]),
    st.sampled_from(NUMBERS),
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    string_texts(),
)


@st.composite
def _lists(draw: Any, inner: Any) -> str:
    space = draw(st.sampled_from(["", " ", "\n\t"]))
    return "[" + f",{space}".join(draw(st.lists(inner, max_size=4))) + "]"


@st.composite
def _objects(draw: Any, inner: Any) -> str:
    pairs = draw(st.lists(st.tuples(string_texts(keys), inner), max_size=5))
    space = draw(st.sampled_from(["", " "]))
    return "{" + f",{space}".join(f"{key}{space}:{value}" for key, value in pairs) + "}"


@st.composite
def _deep(draw: Any, inner: Any) -> str:
    depth = draw(st.integers(1, 90))
    opening, closing = draw(st.sampled_from([("[", "]"), ('{"a":', "}"), ('[1,{"b":', "}]")]))
    return opening * depth + draw(inner) + closing * depth


def texts(leaf: Any = scalars, max_leaves: int = 12) -> Any:
    return st.recursive(
        leaf,
        lambda inner: st.one_of(_lists(inner), _objects(inner), _deep(inner)),
        max_leaves=max_leaves,
    )


texts_with_constants = texts(st.one_of(scalars, st.sampled_from(CONSTANTS)))


def tree(text: str, ordered: bool = True) -> Any:
    """What a text says: order, number texts and all, as tagged tuples."""

    def pairs(items: list[tuple[str, Any]]) -> Any:
        last: dict[str, Any] = {}
        for key, value in items:
            last[key] = value
        found = list(last.items())
        return ("object", *(found if ordered else sorted(found, key=repr)))

    def plain(value: Any) -> Any:
        return ("list", *map(plain, value)) if isinstance(value, list) else value

    def walk(value: Any) -> Any:
        if isinstance(value, list):
            return ("list", *map(walk, value))
        if isinstance(value, tuple) and value and value[0] == "object":
            return ("object", *((key, walk(item)) for key, item in value[1:]))
        return value

    def number(found: str) -> Any:
        return ("number", found)

    return walk(
        json.loads(
            text,
            object_pairs_hook=pairs,
            parse_float=number,
            parse_int=number,
            parse_constant=number,
        )
    )
