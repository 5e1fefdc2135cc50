"""Checks of values against Lexicon schemas, compiled once into closures.

A check takes a value and returns nothing, or raises Mismatch with a reason and, built on the
way out, the path. Looking up a definition is left to the caller, which knows the documents.
Source: Lexicon spec, its types and string formats.
"""

from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

from lettaspace.atproto import graphemes, syntax, uri
from lettaspace.atproto.cbor import step
from lettaspace.atproto.cid import CID, RAW

Schema: TypeAlias = dict[str, Any]
Check: TypeAlias = Callable[[Any], None]
Resolve: TypeAlias = Callable[[str], Check | None]
"""The check of the definition a full reference (`nsid` or `nsid#name`) names, None if unknown."""

FORMATS: dict[str, Callable[[object], bool]] = {
    "at-identifier": syntax.is_at_identifier,
    "at-uri": uri.is_at_uri,
    "cid": syntax.is_cid_string,
    "datetime": syntax.is_datetime,
    "did": syntax.is_did,
    "handle": syntax.is_handle,
    "language": syntax.is_language,
    "nsid": syntax.is_nsid,
    "record-key": syntax.is_record_key,
    "space-ref": uri.is_space_ref,
    "tid": syntax.is_tid,
    "uri": syntax.is_uri,
}


class Mismatch(Exception):
    """A value does not fit its schema: why, and the steps to the place, innermost first."""

    def __init__(self, reason: str, *steps: str | int) -> None:
        super().__init__(reason)
        self.steps: list[str | int] = list(steps)

    def __str__(self) -> str:
        path = ""
        for part in reversed(self.steps):
            path = step(path, part)
        return f"{path or 'value'}: {self.args[0]}"


def compile_schema(schema: Schema, base: str, resolve: Resolve) -> Check:
    """The check for one schema; `base` is the NSID of its document, for local references.

    The schema must be sound (see `lexicondoc`). Definitions it refers to are resolved when a
    value first needs them, so they may refer back.
    """
    kind = schema["type"]
    if kind == "object":
        return _object(schema, base, resolve)
    if kind == "record":
        return _record(schema, base, resolve)
    if kind == "array":
        return _array(schema, base, resolve)
    if kind == "ref":
        return _reference(full_reference(schema["ref"], base), resolve)
    if kind == "union":
        return _union(schema, base, resolve)
    return _LEAVES[kind](schema)


def full_reference(ref: str, base: str) -> str:
    """A reference with its document's NSID, and without `#main`."""
    return (base + ref if ref.startswith("#") else ref).removesuffix("#main")


def _object(schema: Schema, base: str, resolve: Resolve) -> Check:
    properties: dict[str, Schema] = schema.get("properties", {})
    checks = {name: compile_schema(s, base, resolve) for name, s in properties.items()}
    required: list[str] = schema.get("required", [])
    nullable = frozenset[str](schema.get("nullable", ()))
    find = checks.get

    def check(value: Any) -> None:
        if type(value) is not dict:
            raise Mismatch("is not an object")
        for name in required:
            if name not in value:
                raise Mismatch("is missing", name)
        name = ""
        try:
            for name, item in value.items():
                test = find(name)
                if test is not None and (item is not None or name not in nullable):
                    test(item)
        except Mismatch as mismatch:
            mismatch.steps.append(name)
            raise

    return check


def _record(schema: Schema, base: str, resolve: Resolve) -> Check:
    # A record is always the main definition, so its type is the document's NSID.
    test = _object(schema["record"], base, resolve)

    def check(value: Any) -> None:
        if type(value) is dict and value.get("$type") != base:
            raise Mismatch(f"is not {base}", "$type")
        test(value)

    return check


def _array(schema: Schema, base: str, resolve: Resolve) -> Check:
    test = compile_schema(schema["items"], base, resolve)
    least: int = schema.get("minLength", 0)
    most: int | None = schema.get("maxLength")

    def check(value: Any) -> None:
        if type(value) is not list:
            raise Mismatch("is not an array")
        _check_size(len(value), least, most, "elements")
        index = 0
        try:
            for index, item in enumerate(value):  # noqa: B007, read in the handler
                test(item)
        except Mismatch as mismatch:
            mismatch.steps.append(index)
            raise

    return check


def _reference(target: str, resolve: Resolve) -> Check:
    found: Check | None = None

    def check(value: Any) -> None:
        nonlocal found
        if found is None and (found := resolve(target)) is None:
            raise Mismatch(f"schema {target} is not known")
        found(value)

    return check


def _union(schema: Schema, base: str, resolve: Resolve) -> Check:
    members = {
        target: _reference(target, resolve)
        for target in (full_reference(ref, base) for ref in schema["refs"])
    }
    closed: bool = schema.get("closed", False)

    def check(value: Any) -> None:
        if type(value) is not dict:
            raise Mismatch("is not an object")
        kind = value.get("$type")
        if type(kind) is not str or not kind:
            raise Mismatch("is missing or empty", "$type")
        member = members.get(kind.removesuffix("#main"))
        if member is not None:
            member(value)
        elif closed:
            raise Mismatch("is none of the types allowed here", "$type")

    return check


def _string(schema: Schema) -> Check:
    form_name: str | None = schema.get("format")
    form = None if form_name is None else FORMATS[form_name]
    article = "an" if form_name in ("at-uri", "at-identifier") else "a"
    allowed = _allowed(schema)
    least: int = schema.get("minLength", 0)
    most: int | None = schema.get("maxLength")
    fewest: int = schema.get("minGraphemes", 0)
    greatest: int | None = schema.get("maxGraphemes")
    sized = least > 0 or most is not None
    counted = fewest > 0 or greatest is not None
    plain = not sized and not counted and allowed is None

    def check(value: Any) -> None:
        if type(value) is not str:
            raise Mismatch("is not a string")
        if form is not None and not form(value):
            raise Mismatch(f"is not {article} {form_name}")
        if plain:
            return
        if sized:
            # Surrogates are for the encoder to refuse; here they only must not stop the count.
            size = len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))
            _check_size(size, least, most, "bytes of UTF-8")
        if counted:
            _check_size(graphemes.count(value), fewest, greatest, "graphemes")
        if allowed is not None and value not in allowed:
            raise Mismatch("is not one of the values allowed here")

    return check


def _integer(schema: Schema) -> Check:
    allowed = _allowed(schema)
    minimum: int | None = schema.get("minimum")
    maximum: int | None = schema.get("maximum")

    def check(value: Any) -> None:
        if type(value) is not int:
            raise Mismatch("is not an integer")
        if minimum is not None and value < minimum:
            raise Mismatch(f"is below {minimum}")
        if maximum is not None and value > maximum:
            raise Mismatch(f"is above {maximum}")
        if allowed is not None and value not in allowed:
            raise Mismatch("is not one of the values allowed here")

    return check


def _boolean(schema: Schema) -> Check:
    constant: bool | None = schema.get("const")

    def check(value: Any) -> None:
        if type(value) is not bool:
            raise Mismatch("is not a boolean")
        if constant is not None and value is not constant:
            raise Mismatch("is not the value allowed here")

    return check


def _bytes(schema: Schema) -> Check:
    least: int = schema.get("minLength", 0)
    most: int | None = schema.get("maxLength")

    def check(value: Any) -> None:
        if type(value) is not bytes:
            raise Mismatch("is not bytes")
        _check_size(len(value), least, most, "bytes")

    return check


def _blob(schema: Schema) -> Check:
    accept: list[str] | None = schema.get("accept")
    max_size: int | None = schema.get("maxSize")

    def check(value: Any) -> None:
        if type(value) is not dict or value.get("$type") != "blob":
            raise Mismatch("is not a blob")
        ref, mime_type, size = value.get("ref"), value.get("mimeType"), value.get("size")
        if len(value) != 4:
            raise Mismatch("is not a blob: has not exactly ref, mimeType and size")
        if type(ref) is not CID or ref.codec != RAW:
            raise Mismatch("is not the CID of a blob", "ref")
        if type(mime_type) is not str or not mime_type:
            raise Mismatch("is missing or empty", "mimeType")
        if type(size) is not int or size < 0:
            raise Mismatch("is not a size", "size")
        if accept is not None and not any(_accepts(glob, mime_type) for glob in accept):
            raise Mismatch("is not one of the types allowed here", "mimeType")
        if max_size is not None and size > max_size:
            raise Mismatch(f"is above {max_size}", "size")

    return check


def _accepts(glob: str, mime_type: str) -> bool:
    if glob == "*/*":
        return True
    return mime_type.startswith(glob[:-1]) if glob.endswith("/*") else mime_type == glob


def _cid_link(_: Schema) -> Check:
    return _check_link


def _check_link(value: Any) -> None:
    if type(value) is not CID:
        raise Mismatch("is not a CID link")


def _null(_: Schema) -> Check:
    return _check_null


def _check_null(value: Any) -> None:
    if value is not None:
        raise Mismatch("is not null")


def _unknown(_: Schema) -> Check:
    return _check_unknown


def _check_unknown(value: Any) -> None:
    # Any object, but not one that is a whole of its own in the data model.
    if type(value) is not dict:
        raise Mismatch("is not an object")
    if value.get("$type") == "blob" or "$link" in value or "$bytes" in value:
        raise Mismatch("is a blob, link or bytes where an object is wanted")


def _token(_: Schema) -> Check:
    return _check_token


def _check_token(_: Any) -> NoReturn:
    raise Mismatch("a token is a name and has no values")


def _allowed(schema: Schema) -> frozenset[Any] | None:
    if "const" in schema:
        return frozenset((schema["const"],))
    return frozenset(schema["enum"]) if "enum" in schema else None


def _check_size(size: int, least: int, most: int | None, unit: str) -> None:
    if size < least:
        raise Mismatch(f"has {size} {unit}, fewer than {least}")
    if most is not None and size > most:
        raise Mismatch(f"has {size} {unit}, more than {most}")


_LEAVES: dict[str, Callable[[Schema], Check]] = {
    "blob": _blob,
    "boolean": _boolean,
    "bytes": _bytes,
    "cid-link": _cid_link,
    "integer": _integer,
    "null": _null,
    "string": _string,
    "token": _token,
    "unknown": _unknown,
}
