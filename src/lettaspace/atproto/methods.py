"""XRPC methods: what a request has to hold, and what an answer does, by their lexicons.

    method = methods.method("com.atproto.space.listRecords")
    method.params([("space", "at://…"), ("repo", "did:web:…"), ("limit", "10")])

Reading a query is as tolerant as the reference: unknown parameters are ignored, an empty value
is no value, a default stands for what is absent. It is stricter where texts could be read in
two ways: an integer is digits only, a boolean is `true` or `false`, and what takes one value is
not given twice. Source: XRPC and Lexicon specs; protocol, section 6.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, TypeAlias

from lettaspace.atproto import data
from lettaspace.atproto.cbor import MAX_INT
from lettaspace.atproto.lexicon import METHODS, Lexicons
from lettaspace.atproto.validate import Check, Schema
from lettaspace.errors import InvalidInput, InvalidRecord

JSON = "application/json"

_Read: TypeAlias = Callable[[str, str], Any]

# The reference takes any text for this cursor, whatever its lexicon says (section 0).
_ANY_TEXT = frozenset({("com.atproto.space.listRepos", "cursor")})

_digits = re.compile(r"-?[0-9]{1,16}").fullmatch
_media = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+/[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch


class Method:
    """A query or procedure. Raises InvalidInput unless the lexicons have one of this NSID.

    `kind` is "query" or "procedure"; `takes` and `gives` are the media types of the bodies it
    is sent and answers with, None for no body; `errors` are the names it declares.
    """

    def __init__(self, nsid: str, lexicons: Lexicons) -> None:
        schema = lexicons.definition(nsid)
        if schema is None or schema["type"] not in ("query", "procedure"):
            raise InvalidInput(f"no method {nsid}")
        self.nsid = nsid
        self.kind: str = schema["type"]
        self.errors = frozenset[str](error["name"] for error in schema.get("errors", ()))
        self.takes, self._check_input = _body(schema.get("input"), nsid, lexicons)
        self.gives, self._check_output = _body(schema.get("output"), nsid, lexicons)
        params = _params(nsid, schema.get("parameters", {"properties": {}}))
        self._check_params = lexicons.checker(params, nsid)
        self._readers = {name: _reader(one) for name, one in params["properties"].items()}
        self._defaults: dict[str, Any] = {
            name: one["default"] for name, one in params["properties"].items() if "default" in one
        }

    def __repr__(self) -> str:
        return f"<{self.kind} {self.nsid}>"

    def params(self, pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
        """The parameters in a query's decoded pairs, each of its own type, defaults added.

        Raises InvalidInput, naming the parameter.
        """
        found: dict[str, Any] = {}
        for name, text in pairs:
            reader = self._readers.get(name)
            if reader is None or not text:
                continue
            read, many = reader
            if many:
                found.setdefault(name, []).append(read(name, text))
            elif name in found:
                raise InvalidInput(f"{name}: is given twice")
            else:
                found[name] = read(name, text)
        try:
            self._check_params(found)
        except InvalidRecord as error:
            raise InvalidInput(str(error)) from None
        return self._defaults | found

    def input(self, content_type: str | None, body: bytes) -> dict[str, Any]:
        """The value of a request's JSON body, in the data model.

        Empty for methods that take no body, or one of another type, which is left as it is.
        Raises InvalidInput for another type of body than the method takes, and naming the path
        in the body, for what is no JSON, not of the data model, or does not fit the schema.
        """
        if self.takes is None:
            if body:
                raise InvalidInput("this method takes no body")
            return {}
        media = media_type(content_type)
        if self.takes not in (media, "*/*"):
            raise InvalidInput(f"Content-Type is not {self.takes}")
        if self.takes != JSON:
            return {}
        try:
            value = data.loads(body)
            self._check_input(value)
        except InvalidRecord as error:
            raise InvalidInput(str(error)) from None
        return value if type(value) is dict else {}

    def output(self, value: Any) -> None:
        """Raise InvalidRecord unless an answer's value, in the data model, fits the schema."""
        if self.gives == JSON:
            self._check_output(value)
        elif value is not None:
            raise InvalidRecord("this method answers with no JSON")


def media_type(content_type: str | None) -> str:
    """The media type in a Content-Type, without its parameters, in lower case.

    Raises InvalidInput where there is none.
    """
    media = (content_type or "").partition(";")[0].strip(" \t").lower()
    if not _media(media):
        raise InvalidInput("Content-Type is missing or malformed")
    return media


def method(nsid: str) -> Method:
    """The method of this name among those that ship. Raises InvalidInput if there is none."""
    found = shipped().get(nsid)
    if found is None:
        raise InvalidInput(f"no method {nsid}")
    return found


@cache
def shipped() -> Mapping[str, Method]:
    """The methods that ship with the package, by NSID; one object for all callers."""
    lexicons = Lexicons.load(METHODS)
    return MappingProxyType(
        {
            nsid: Method(nsid, lexicons)
            for nsid in lexicons
            if (main := lexicons.definition(nsid)) and main["type"] in ("query", "procedure")
        }
    )


def _params(nsid: str, schema: Schema) -> Schema:
    """The parameters as an object schema."""
    properties = {
        name: {k: v for k, v in one.items() if k != "format"} if (nsid, name) in _ANY_TEXT else one
        for name, one in schema["properties"].items()
    }
    return {**schema, "type": "object", "properties": properties}


def _reader(schema: Schema) -> tuple[_Read, bool]:
    """What reads a parameter's text, and whether it may be given many times."""
    many = schema["type"] == "array"
    return _READERS[schema["items"]["type"] if many else schema["type"]], many


def _read_string(name: str, text: str) -> str:
    if "\0" in text:  # which some databases have no place for
        raise InvalidInput(f"{name}: holds a NUL character")
    return text


def _read_integer(name: str, text: str) -> int:
    if not _digits(text) or not -MAX_INT <= (value := int(text)) <= MAX_INT:
        raise InvalidInput(f"{name}: is not an integer")
    return value


def _read_boolean(name: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise InvalidInput(f"{name}: is neither true nor false")
    return text == "true"


_READERS: dict[str, _Read] = {
    "boolean": _read_boolean,
    "integer": _read_integer,
    "string": _read_string,
}


def _body(schema: Schema | None, nsid: str, lexicons: Lexicons) -> tuple[str | None, Check]:
    if schema is None:
        return None, _take_any
    check = lexicons.checker(schema["schema"], nsid) if "schema" in schema else _take_any
    return schema["encoding"], check


def _take_any(_: Any) -> None:
    pass
