"""Soundness of Lexicon documents themselves.

Catches what would make a schema mean nothing, or something else than its author thinks: unknown
types and fields, limits that contradict each other, required fields that do not exist, local
references that lead nowhere. References into other documents are not followed. Sources: Lexicon
spec; for space type declarations, proposal 0016.
"""

import re
from collections.abc import Callable
from typing import Any, NoReturn

from lettaspace.atproto.cbor import step
from lettaspace.atproto.syntax import is_language, is_nsid, is_record_key
from lettaspace.atproto.validate import FORMATS
from lettaspace.errors import InvalidRecord

VALUELESS = frozenset(
    ("query", "procedure", "subscription", "space", "permission-set", "params", "token")
)
"""Types of definitions that no value can be checked against."""

_MAIN_ONLY = VALUELESS - {"params", "token"} | {"record"}

_NEVER_INSIDE = _MAIN_ONLY | {"token"}

_name = re.compile(r"[a-zA-Z][a-zA-Z0-9]{0,62}").fullmatch
_glob = re.compile(r"\*/\*|[a-z]+/(?:\*|[a-zA-Z0-9.+_-]+)").fullmatch


def check_lexicon(doc: Any) -> None:
    """Raise InvalidRecord, naming the place, unless a parsed document is a sound lexicon."""
    fields = _fields(doc, "lexicon", {"lexicon", "id", "defs"}, {"$type", "revision"})
    if type(fields["lexicon"]) is not int or fields["lexicon"] != 1:
        _fail("lexicon", "is not 1")
    if not is_nsid(fields["id"]):
        _fail("id", "is not an NSID")
    if fields.get("$type", "com.atproto.lexicon.schema") != "com.atproto.lexicon.schema":
        _fail("$type", "is not com.atproto.lexicon.schema")
    defs = fields["defs"]
    if type(defs) is not dict or not defs:
        _fail("defs", "is not an object with definitions")
    for name, schema in defs.items():
        path = step("defs", name)
        if not _name(name):
            _fail(path, "is not a name")
        kind = _type(path, schema)
        if kind in _MAIN_ONLY and name != "main":
            _fail(path, f"type {kind} is only for the main definition")
        if kind == "ref" or kind == "union" or kind == "unknown":
            _fail(path, f"type {kind} cannot be a definition")
        _check_schema(path, schema, defs)


def _type(path: str, schema: Any) -> str:
    kind = schema.get("type") if type(schema) is dict else None
    if type(kind) is not str or kind not in _TYPES:
        _fail(path, "type is missing or unknown")
    return kind


def _check_schema(path: str, schema: Any, defs: dict[str, Any]) -> None:
    kind = _type(path, schema)
    if path.count(".") > 1 and kind in _NEVER_INSIDE:
        _fail(path, f"type {kind} is only for definitions")
    needed, optional = _TYPES[kind]
    fields = _fields(schema, path, needed | {"type"}, optional)
    if kind != "space":  # whose fields of these names mean other things
        _check_limits(path, fields)
    if (check := _CHECKS.get(kind)) is not None:
        check(path, fields, defs)


def _check_object(path: str, fields: dict[str, Any], defs: dict[str, Any]) -> None:
    properties = fields.get("properties", {})
    if type(properties) is not dict:
        _fail(step(path, "properties"), "is not an object")
    for name, schema in properties.items():
        _check_schema(step(path, name), schema, defs)
    for listing in ("required", "nullable"):
        for name in _strings(step(path, listing), fields.get(listing, [])):
            if name not in properties:
                _fail(step(path, listing), "names a property that does not exist")


def _check_params(path: str, fields: dict[str, Any], defs: dict[str, Any]) -> None:
    # They are read from texts. `unknown`, which the specification allows, says not how.
    _check_object(path, fields, defs)
    for name, schema in fields["properties"].items():
        one = schema["items"] if schema["type"] == "array" else schema
        if one["type"] not in ("boolean", "integer", "string"):
            _fail(step(path, name), "is of a type that no text is read as")


def _check_array(path: str, fields: dict[str, Any], defs: dict[str, Any]) -> None:
    _check_schema(step(path, "items"), fields["items"], defs)


def _check_ref(path: str, fields: dict[str, Any], defs: dict[str, Any]) -> None:
    _check_reference(step(path, "ref"), fields["ref"], defs)


def _check_union(path: str, fields: dict[str, Any], defs: dict[str, Any]) -> None:
    refs = _strings(step(path, "refs"), fields["refs"])
    for ref in refs:
        _check_reference(step(path, "refs"), ref, defs)
    closed = fields.get("closed", False)
    if type(closed) is not bool or (closed and not refs):
        _fail(step(path, "closed"), "is not a boolean, or closes a union of nothing")


def _check_reference(path: str, ref: object, defs: dict[str, Any]) -> None:
    nsid, mark, name = ref.partition("#") if type(ref) is str else ("", "", "")
    if not (nsid or mark) or (nsid and not is_nsid(nsid)) or (mark and not _name(name)):
        _fail(path, "is not a reference")
    if not nsid and name not in defs:
        _fail(path, "leads to no definition")


def _check_string(path: str, fields: dict[str, Any], _: dict[str, Any]) -> None:
    if "format" in fields and fields["format"] not in FORMATS:
        _fail(step(path, "format"), "is unknown")
    for listing in ("enum", "knownValues"):
        _strings(step(path, listing), fields.get(listing, []))
    for single in ("const", "default"):
        if type(fields.get(single, "")) is not str:
            _fail(step(path, single), "is not a string")


def _check_integer(path: str, fields: dict[str, Any], _: dict[str, Any]) -> None:
    values = fields.get("enum", [])
    singles = [
        fields[name] for name in ("const", "default", "minimum", "maximum") if name in fields
    ]
    if type(values) is not list or any(type(v) is not int for v in [*values, *singles]):
        _fail(path, "has a bound or value that is not an integer")


def _check_boolean(path: str, fields: dict[str, Any], _: dict[str, Any]) -> None:
    if any(type(fields.get(name, True)) is not bool for name in ("const", "default")):
        _fail(path, "has a value that is not a boolean")


def _check_blob(path: str, fields: dict[str, Any], _: dict[str, Any]) -> None:
    if not all(_glob(glob) for glob in _strings(step(path, "accept"), fields.get("accept", []))):
        _fail(step(path, "accept"), "has what is not a media type")


def _check_record(path: str, fields: dict[str, Any], defs: dict[str, Any]) -> None:
    _check_key(path, fields["key"])
    record = fields["record"]
    if type(record) is not dict or record.get("type") != "object":
        _fail(step(path, "record"), "is not an object schema")
    _check_schema(step(path, "record"), record, defs)


def _check_key(path: str, key: object) -> None:
    literal = type(key) is str and key.startswith("literal:") and is_record_key(key[8:])
    if key not in ("tid", "nsid", "any") and not literal:
        _fail(step(path, "key"), "is not tid, nsid, any or literal:…")


def _check_space(path: str, fields: dict[str, Any], _: dict[str, Any]) -> None:
    if type(fields["name"]) is not str or not fields["name"]:
        _fail(step(path, "name"), "is not a text")
    if not all(map(is_nsid, _strings(step(path, "collections"), fields["collections"]))):
        _fail(step(path, "collections"), "has what is not an NSID")
    if "key" in fields:
        _check_key(path, fields["key"])
    names = fields.get("name:lang", {})
    if type(names) is not dict or not all(
        is_language(tag) and type(text) is str for tag, text in names.items()
    ):
        _fail(step(path, "name:lang"), "is not a map from languages to texts")


def _check_method(path: str, fields: dict[str, Any], defs: dict[str, Any]) -> None:
    if "parameters" in fields:
        where, schema = step(path, "parameters"), fields["parameters"]
        if type(schema) is not dict or schema.get("type") != "params":
            _fail(where, "is not of type params")
        _check_schema(where, schema, defs)
    for name in ("input", "output", "message"):
        if name in fields:
            where = step(path, name)
            needed = {"encoding"} if name != "message" else {"schema"}
            body = _fields(fields[name], where, needed, {"description", "schema"})
            if type(body.get("encoding", "")) is not str:
                _fail(step(where, "encoding"), "is not a media type")
            if "schema" in body:
                inner = step(where, "schema")
                if _type(inner, body["schema"]) not in ("object", "ref", "union"):
                    _fail(inner, "is not of type object, ref or union")
                _check_schema(inner, body["schema"], defs)
    errors = fields.get("errors", [])
    if type(errors) is not list:
        _fail(step(path, "errors"), "is not a list")
    for error in errors:
        where = step(path, "errors")
        if type(_fields(error, where, {"name"}, {"description"})["name"]) is not str:
            _fail(step(where, "name"), "is not a text")


def _check_limits(path: str, fields: dict[str, Any]) -> None:
    for low, high in (
        ("minLength", "maxLength"),
        ("minGraphemes", "maxGraphemes"),
        ("minimum", "maximum"),
        ("", "maxSize"),
    ):
        least, most = fields.get(low, 0), fields.get(high)
        for name, limit in ((low, fields.get(low)), (high, most)):
            if limit is not None and (
                type(limit) is not int or (limit < 0 and name[3:4].isupper())
            ):
                _fail(step(path, name), "is not a limit")
        if most is not None and low in fields and least > most:
            _fail(step(path, low), f"is above {high}")


def _fields(value: Any, path: str, needed: set[str], optional: set[str]) -> dict[str, Any]:
    if type(value) is not dict:
        _fail(path, "is not an object")
    fields: dict[str, Any] = value
    for name in sorted(needed - fields.keys()):
        _fail(step(path, name), "is missing")
    for name in fields.keys() - needed - optional - {"description"}:
        _fail(step(path, name), "is not a known field")
    if type(fields.get("description", "")) is not str:
        _fail(step(path, "description"), "is not a text")
    return fields


def _strings(path: str, value: Any) -> list[str]:
    if type(value) is not list or any(type(item) is not str for item in value):
        _fail(path, "is not a list of strings")
    return value


def _fail(path: str, reason: str) -> NoReturn:
    raise InvalidRecord(f"lexicon: {path}: {reason}")


# Per type: fields it needs, fields it may have; a description is always allowed.
_TYPES: dict[str, tuple[set[str], set[str]]] = {
    "null": (set(), set()),
    "boolean": (set(), {"default", "const"}),
    "integer": (set(), {"default", "const", "enum", "minimum", "maximum"}),
    "string": (
        set(),
        {"default", "const", "enum", "knownValues", "format"}
        | {"minLength", "maxLength", "minGraphemes", "maxGraphemes"},
    ),
    "bytes": (set(), {"minLength", "maxLength"}),
    "cid-link": (set(), set()),
    "blob": (set(), {"accept", "maxSize"}),
    "array": ({"items"}, {"minLength", "maxLength"}),
    "object": (set(), {"properties", "required", "nullable"}),
    "params": ({"properties"}, {"required"}),
    "ref": ({"ref"}, set()),
    "union": ({"refs"}, {"closed"}),
    "token": (set(), set()),
    "unknown": (set(), set()),
    "record": ({"key", "record"}, set()),
    "query": (set(), {"parameters", "output", "errors"}),
    "procedure": (set(), {"parameters", "input", "output", "errors"}),
    "subscription": (set(), {"parameters", "message", "errors"}),
    "space": ({"name", "collections"}, {"key", "name:lang"}),
    "permission-set": ({"permissions"}, {"title", "title:lang", "detail", "detail:lang"}),
}

_CHECKS: dict[str, Callable[[str, dict[str, Any], dict[str, Any]], None]] = {
    "array": _check_array,
    "blob": _check_blob,
    "boolean": _check_boolean,
    "integer": _check_integer,
    "object": _check_object,
    "params": _check_params,
    "procedure": _check_method,
    "query": _check_method,
    "record": _check_record,
    "ref": _check_ref,
    "space": _check_space,
    "string": _check_string,
    "subscription": _check_method,
    "union": _check_union,
}
