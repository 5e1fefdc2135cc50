"""DAG-CBOR: the one binary form of a value of the AT Protocol data model.

A value is None, a bool, an int within ±(2^53 - 1), a str without lone surrogates, bytes, a CID,
a list of values, or a dict from str to values; dict order does not matter. Equal values have
equal encodings and nothing else is accepted when decoding (data model spec; IPLD DAG-CBOR).

The work is done by `cbrrr`, in C. It lets floats and integers of 64 bits through and has no
depth limit, so both directions look every value over themselves.
"""

import re
from typing import Any, TypeAlias, cast

from cbrrr import CbrrrDecodeError, decode_dag_cbor, encode_dag_cbor

from lettaspace.atproto.cid import CID
from lettaspace.errors import InvalidInput, InvalidRecord

Value: TypeAlias = "bool | int | str | bytes | CID | list[Value] | dict[str, Value] | None"

MAX_INT = (1 << 53) - 1
MAX_DEPTH = 512
"""How many arrays and maps may lie inside one another."""

# Past this many containers at one depth, a value is a cycle or a shared structure unfolding.
MAX_WIDTH = 1 << 20

# Arrays and maps open with a byte from 0x80 to 0xbf, as do the later bytes of UTF-8 characters.
_NOT_CONTAINER_HEADS = bytes(set(range(256)) - set(range(0x80, 0xC0)))

# What a float opens with. No text in UTF-8 has that byte, but integers may.
_FLOAT = b"\xfb"

_is_plain = re.compile(r"[$A-Za-z_][A-Za-z0-9_:-]{0,39}").fullmatch

# The library's stub declares its own class as a type variable.
_DecodeError: type[ValueError] = cast(type[ValueError], CbrrrDecodeError)

_INTEGER = "integer beyond 2^53 - 1"
_DEPTH = f"nested deeper than {MAX_DEPTH}"
_KEY = "map key is not a string"
_SURROGATE = "text with a lone surrogate"


def encode(value: Any, *, checked: bool = False) -> bytes:
    """The DAG-CBOR encoding of a value.

    Raises InvalidRecord, naming the path, for anything outside the data model: floats, large
    integers, lone surrogates, keys that are not strings, tuples and other types, depth. What is
    `checked` is known to be a value of the data model, such as what `data.loads` gives.
    """
    if not checked and (problem := _problem(value)) is not None:
        raise InvalidRecord(_locate(value, problem))
    try:
        return encode_dag_cbor(value, cid_type=CID)
    except (TypeError, ValueError, SystemError):
        # Left for cbrrr to find: lone surrogates, and keys that are not plain strings. A key
        # with a lone surrogate beside another one is what it has a SystemError for.
        raise InvalidRecord(_locate(value, "not a value of the data model")) from None


def decode(data: bytes, *, checked: bool = False) -> Any:
    """The value of a DAG-CBOR encoding.

    Raises InvalidInput unless the bytes are exactly what `encode` gives for that value. What is
    `checked`, as a store's records were before they got there, is looked over only as far as
    costs little: it has one form and no floats.
    """
    is_large = not checked and len(data) > 4096
    if is_large and len(data.translate(None, _NOT_CONTAINER_HEADS)) > 64:
        # cbrrr allocates what an array announces, so nested lies would cost far more memory
        # than they have bytes. Where enough of them fit in, find out first.
        _check_nesting(data)
    try:
        value = decode_dag_cbor(data, cid_ctor=CID.from_bytes)
    except UnicodeDecodeError:
        raise InvalidInput("not DAG-CBOR: text is not UTF-8") from None
    except _DecodeError as error:
        # What stands in parentheses may quote keys.
        raise InvalidInput(f"not DAG-CBOR: {str(error).partition(' (')[0]}") from None
    except ValueError:
        raise InvalidInput("not DAG-CBOR: bytes after the end") from None
    is_sure = checked and _FLOAT not in data
    if not is_sure and (problem := _problem(value)) is not None:
        raise InvalidInput(f"not DAG-CBOR of the data model: {problem}")
    return value


def is_deeper(value: Any, data: bytes, depth: int) -> bool:
    """Whether more than `depth` arrays and maps lie inside one another in a value of the data
    model, whose encoding this is."""
    if len(data.translate(None, _NOT_CONTAINER_HEADS)) <= depth:
        return False
    level: list[Any] = [[value]]
    for _ in range(depth + 1):
        level = [
            item
            for node in level
            for item in (node.values() if type(node) is dict else node)
            if type(item) is dict or type(item) is list
        ]
        if not level:
            return False
    return True


def check(value: Any) -> None:
    """Raise InvalidRecord, naming the path, unless `encode` would accept the value."""
    encode(value)


def _problem(value: Any) -> str | None:
    # The checks cbrrr lacks. Level by level: no recursion, and depth costs nothing to know.
    level: list[Any] = [[value]]
    for _ in range(MAX_DEPTH + 1):
        deeper: list[Any] = []
        for node in level:
            for item in node.values() if type(node) is dict else node:
                kind = type(item)
                if kind is str:
                    continue
                if kind is int:
                    if not -MAX_INT <= item <= MAX_INT:
                        return _INTEGER
                elif kind is dict or kind is list:
                    deeper.append(item)
                elif not (item is None or kind is bool or kind is CID or kind is bytes):
                    return f"{kind.__name__} is not a type of the data model"
        if not deeper:
            return None
        if len(deeper) > MAX_WIDTH:
            break
        level = deeper
    return _DEPTH


def _locate(value: Any, problem: str) -> str:
    # Says where the first problem lies. Only runs once something is known to be wrong.
    if problem is _DEPTH:
        return f"value: {problem}"
    stack: list[tuple[str, Any]] = [("", value)]
    while stack:
        path, item = stack.pop()
        if type(item) is dict:
            children: dict[Any, Any] = item
            for key in children:
                if type(key) is not str or not _is_text(key):
                    return f"{path or 'value'}: {_SURROGATE if type(key) is str else _KEY}"
            stack += [(step(path, key), children[key]) for key in reversed(children)]
        elif type(item) is list:
            elements: list[Any] = item
            stack += [(step(path, i), elements[i]) for i in reversed(range(len(elements)))]
        elif type(item) is str:
            if not _is_text(item):
                return f"{path or 'value'}: {_SURROGATE}"
        elif (found := _problem(item)) is not None:
            return f"{path or 'value'}: {found}"
    return f"value: {problem}"


def step(path: str, key: str | int) -> str:
    """The path of a child in messages: `message.data`, `tags[3]`; long or odd keys cut short."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    name = key if _is_plain(key) else ascii(key[:40])
    return f"{path}.{name}" if path else name


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_nesting(data: bytes) -> None:
    # Walks the heads, skipping over what strings hold. Anything malformed is left to cbrrr:
    # up to there, what was announced has been checked.
    pending: list[int] = []  # items still to come, per open container
    announced = 0  # their sum; each takes at least a byte
    at, end = 0, len(data)
    while at < end:
        major, info = data[at] >> 5, data[at] & 31
        at += 1
        if info > 27:
            return
        count = info
        if info > 23:
            width = 1 << (info - 24)
            count = int.from_bytes(data[at : at + width], "big")
            at += width
        if major == 6:
            continue
        if major in (2, 3):
            at += count
        elif major in (4, 5) and count:
            pending.append(count * (major - 3))
            announced += pending[-1]
            # All open containers but the outermost are themselves items that have begun.
            if announced - len(pending) + 1 > end - at:
                raise InvalidInput("not DAG-CBOR: not enough bytes left in buffer")
            if len(pending) > MAX_DEPTH:
                raise InvalidInput(f"not DAG-CBOR of the data model: {_DEPTH}")
            continue
        while pending:
            pending[-1] -= 1
            announced -= 1
            if pending[-1]:
                break
            pending.pop()
        else:
            return
