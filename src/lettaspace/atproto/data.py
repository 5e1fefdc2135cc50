"""The JSON form of data-model values, as XRPC carries it.

CIDs are `{"$link": "…"}` and bytes `{"$bytes": "…"}` in JSON; everything else is itself, and a
blob is an object whose `ref` is a CID. Source: AT Protocol data model spec.

What the reference refuses in its strict mode is refused here, such as a malformed `$link` or
blob. Stricter still: it takes `1.0` and `1e3` for integers, keeps the last of duplicate keys,
replaces lone surrogates, and reads several texts as the same bytes or CID. Other readers make
something else of these, so all are refused.
"""

import json
import re
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable
from typing import Any, NoReturn

import orjson

from lettaspace.atproto.cbor import MAX_DEPTH, MAX_INT, MAX_WIDTH, check, step
from lettaspace.atproto.cid import CID, RAW
from lettaspace.errors import InvalidInput, InvalidRecord

_BLOB_KEYS = {"$type", "ref", "mimeType", "size"}
_SPECIAL = frozenset(("$bytes", "$link", "$type", "__proto__"))

# From UTF-8, half of a surrogate pair (which may have its other half) only comes as an escape.
_may_have_surrogate = re.compile(r"\\u[dD][89a-fA-F]").search


def from_json(obj: Any) -> Any:
    """The value of a parsed JSON document; the argument is not changed.

    Raises InvalidRecord, naming the path, for what the data model has no place for: floats,
    large integers, lone surrogates, malformed or accompanied `$link` and `$bytes`, a `$type`
    that is not a non-empty string, a `$type` of `blob` on what is none, the key `__proto__`,
    depth.
    """
    check(obj)
    return _convert(obj, _from_json)


def to_json(value: Any) -> Any:
    """The JSON document of a value, as Python objects; the argument is not changed.

    Raises InvalidRecord, naming the path, for what `from_json` would not give back.
    """
    check(value)
    return _convert(value, _to_json)


def loads(text: str | bytes) -> Any:
    """The value of a JSON text, in UTF-8 if it is bytes.

    Raises InvalidRecord for text that is not JSON, for duplicate keys, for numbers with a
    fraction or an exponent, and whatever `from_json` raises it for. `-0` is 0.
    """
    given_text = isinstance(text, str)
    try:
        if not isinstance(text, str):
            text = text.decode()
        obj = _parse(text)
    except UnicodeDecodeError:
        raise InvalidRecord("not JSON: not UTF-8") from None
    except json.JSONDecodeError as error:
        raise InvalidRecord(f"not JSON: {error.msg} at character {error.pos}") from None
    except ValueError:  # the interpreter's limit on the digits of a number
        raise InvalidRecord("JSON: integer beyond 2^53 - 1") from None
    except RecursionError:
        raise InvalidRecord(f"JSON: nested deeper than {MAX_DEPTH}") from None
    top = [obj]
    if not _read_in_place(top):
        return from_json(_parse(text))  # which says what is wrong, and where
    if given_text or _may_have_surrogate(text):
        check(top[0])
    return top[0]


def _parse(text: str) -> Any:
    return json.loads(
        text,
        object_pairs_hook=_object,
        parse_float=_refuse_float,
        parse_constant=_refuse_float,
    )


def _read_in_place(top: list[Any]) -> bool:
    """Makes the value of what JSON was parsed to, the only element of the list, in one pass.

    False, with some of it done, if it is none. Lone surrogates are not looked for.
    """
    level: list[Any] = [top]
    for _ in range(MAX_DEPTH + 1):
        deeper: list[Any] = []
        for node in level:
            for key, item in node.items() if type(node) is dict else enumerate(node):
                kind = type(item)
                if kind is str or item is None or kind is bool:
                    continue
                if kind is int:
                    if not -MAX_INT <= item <= MAX_INT:
                        return False
                elif kind is list or item.keys().isdisjoint(_SPECIAL):
                    deeper.append(item)
                else:
                    try:
                        new = node[key] = _from_json(item)
                    except _RefusedError:
                        return False
                    if type(new) is dict:
                        deeper.append(new)
        if not deeper:
            return True
        level = deeper
    return False


def dumps(value: Any, *, checked: bool = False) -> str:
    """The JSON text of a value, compact, keys in the order they have.

    Raises InvalidRecord as `to_json` does. What is `checked` is known to be a value of the data
    model, such as what `cbor.decode` gives.
    """
    if checked or _can_be_written(value):
        try:
            text = orjson.dumps(value, default=_default, option=orjson.OPT_STRICT_INTEGER).decode()
        except TypeError:  # a lone surrogate, too deep for it, or no JSON
            pass
        else:
            if not checked or _means_itself(text):
                return text
    return json.dumps(to_json(value), ensure_ascii=False, separators=(",", ":"))


def _default(item: Any) -> Any:
    try:
        return _to_json(item)
    except (_RefusedError, AttributeError) as error:
        raise TypeError from error


def _means_itself(text: str) -> bool:
    """Whether no key in a JSON text has a meaning of its own, beyond naming a type. Keys only
    stand so where they are keys: inside a string, a quote has a backslash before it."""
    types = text.count('"$type":')
    return not (
        '"$link":' in text
        or '"$bytes":' in text
        or '"__proto__":' in text
        or (types and (types != text.count('"$type":"') or '"$type":""' in text))
        or '"$type":"blob"' in text
    )


def _can_be_written(value: Any) -> bool:
    """Whether `to_json` takes a value. Lone surrogates are not looked for."""
    level: list[Any] = [[value]]
    for _ in range(MAX_DEPTH + 1):
        deeper: list[Any] = []
        for node in level:
            if type(node) is dict:
                for key in node:
                    if type(key) is not str:
                        return False
                items = node.values()
            else:
                items = node
            for item in items:
                kind = type(item)
                if kind is str or item is None or kind is bool or kind is CID or kind is bytes:
                    continue
                if kind is int:
                    if not -MAX_INT <= item <= MAX_INT:
                        return False
                elif kind is list or kind is dict:
                    if kind is dict and not item.keys().isdisjoint(_SPECIAL):
                        try:
                            _to_json(item)
                        except _RefusedError:
                            return False
                    deeper.append(item)
                else:
                    return False
        if not deeper:
            return True
        if len(deeper) > MAX_WIDTH:
            return False
        level = deeper
    return False


def blob_refs(value: Any) -> list[CID]:
    """The CIDs of all blobs in a value, at any depth, in order, with repetitions.

    A blob is an object with exactly `$type` "blob", `ref` (a CID), `mimeType` and `size`. Odd
    values of the last two do not matter here: content that is referred to is to be kept.
    """
    found: list[CID] = []
    stack: list[Any] = [value]
    while stack:
        node = stack.pop()
        if type(node) is dict:
            fields: dict[str, Any] = node
            if fields.get("$type") == "blob" and _is_blob(fields):
                found.append(fields["ref"])
            else:
                stack += reversed(fields.values())
        elif type(node) is list:
            items: list[Any] = node
            stack += reversed(items)
    return found


def _is_blob(fields: dict[str, Any]) -> bool:
    return (
        fields.keys() == _BLOB_KEYS
        and type(fields["ref"]) is CID
        and type(fields["mimeType"]) is str
        and type(fields["size"]) is int
    )


class _RefusedError(Exception):
    pass


def _convert(root: Any, convert: Callable[[Any], Any]) -> Any:
    # Level by level, so that no depth is too deep: each container is replaced by a converted
    # shallow copy, whose children are then looked at in turn.
    top = [root]
    level: list[Any] = [top]
    while level:
        deeper: list[Any] = []
        for node in level:
            for key, item in node.items() if type(node) is dict else enumerate(node):
                kind = type(item)
                if kind is str or kind is int or kind is bool or item is None:
                    continue
                try:
                    new = node[key] = convert(item)
                except _RefusedError as reason:
                    raise InvalidRecord(f"{_path(root, item)}: {reason}") from None
                if type(new) is dict or type(new) is list:
                    deeper.append(new)
        level = deeper
    return top[0]


def _from_json(item: Any) -> Any:
    if type(item) is list:
        return item.copy()
    if type(item) is not dict:
        raise _RefusedError("not a JSON value")
    if "$link" in item or "$bytes" in item:
        if len(item) > 1:
            raise _RefusedError("other keys beside $link or $bytes")
        return _link(item["$link"]) if "$link" in item else _bytes(item["$bytes"])
    fields = _plain(item)
    if fields.get("$type") == "blob":
        ref = fields.get("ref")
        if type(ref) is dict and ref.keys() == {"$link"}:
            ref = _link(ref["$link"])
        _check_blob(fields | {"ref": ref})
    return fields


def _to_json(item: Any) -> Any:
    if type(item) is list:
        return item.copy()
    if type(item) is CID:
        return {"$link": str(item)}
    if type(item) is bytes:
        return {"$bytes": b2a_base64(item, newline=False).rstrip(b"=").decode()}
    if "$link" in item or "$bytes" in item:
        raise _RefusedError("key $link or $bytes has a meaning in JSON")
    fields = _plain(item)
    if fields.get("$type") == "blob":
        _check_blob(fields)
    return fields


def _check_blob(fields: dict[str, Any]) -> None:
    if not (_is_blob(fields) and fields["ref"].codec == RAW and fields["size"] >= 0):
        raise _RefusedError("$type is blob, but this is none")


def _plain(item: dict[str, Any]) -> dict[str, Any]:
    if "__proto__" in item:
        raise _RefusedError("key __proto__ is not allowed")
    if "$type" in item and not (type(item["$type"]) is str and item["$type"]):
        raise _RefusedError("$type is not a non-empty string")
    return item.copy()


def _link(text: Any) -> CID:
    try:
        return CID.parse(text)
    except InvalidInput as error:
        raise _RefusedError(f"$link: {error}") from None


def _bytes(text: Any) -> bytes:
    # One text per content: right padding or none, and no stray bits in the last character.
    if type(text) is str:
        bare = text.rstrip("=")
        padding = -len(bare) % 4
        if len(text) - len(bare) in (0, padding):
            try:
                data = a2b_base64(bare + "=" * padding)
            except ValueError:
                pass
            else:
                if b2a_base64(data, newline=False).rstrip(b"=") == bare.encode():
                    return data
    raise _RefusedError("$bytes is not base64")


def _path(root: Any, target: object) -> str:
    stack: list[tuple[str, Any]] = [("", root)]
    while stack:
        path, node = stack.pop()
        if node is target:
            return path or "value"
        if type(node) is dict:
            fields: dict[str, Any] = node
            stack += [(step(path, key), fields[key]) for key in reversed(fields)]
        elif type(node) is list:
            items: list[Any] = node
            stack += [(step(path, i), items[i]) for i in reversed(range(len(items)))]
    return "value"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise InvalidRecord("JSON: an object has the same key twice")
    return fields


def _refuse_float(_: str) -> NoReturn:
    raise InvalidRecord("JSON: number with a fraction or an exponent")
