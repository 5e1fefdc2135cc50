"""JSON text, read and written without losing anything.

`loads` gives None, bool, int, `Number`, str, list and dict; `dumps` gives the text back.

- A number whose text is not what Python prints for an int (`1.0`, `1e3`, `-0`, an integer
  of more than 640 digits) becomes a `Number`, which remembers its text.
- The bare tokens `NaN`, `Infinity` and `-Infinity` are not JSON, but files hold them. They
  are read as a `Number` with `is_constant`, and written as the escape object
  `{"$type":"xyz.quasigod.lab.letta.defs#json","json":"NaN"}`, never bare.
- Lone surrogates stay in the str. Where both halves of a pair meet, they are one character.
- Of duplicate keys the last value counts, in the place of the first, as in JavaScript.

The text `dumps` gives is what JavaScript's `JSON.stringify` gives for strings, keys and
white space; numbers keep the text they were read with. One difference in meaning stays:
JavaScript moves keys that look like array indexes to the front, this module never does.
"""

import re
from collections.abc import Callable
from itertools import accumulate
from json import JSONDecodeError, JSONDecoder
from json.encoder import encode_basestring as _quote_plain
from json.encoder import encode_basestring_ascii as _quote_ascii
from typing import Any, Self

from lettaspace.errors import InvalidInput

MAX_DEPTH = 512
"""Lists and objects inside one another, the outermost counted as 1. Half of CPython's
default recursion limit, so that the same text is accepted however deep the caller stands."""

MAX_INT_DIGITS = 640
"""Longer integers are read as `Number`. The smallest limit to which a process can set
Python's own conversion, so that no setting makes a readable text unreadable."""

JSON_ESCAPE = "xyz.quasigod.lab.letta.defs#json"
"""The `$type` of the object that stands for a value by its source text."""

CONSTANTS = frozenset({"NaN", "Infinity", "-Infinity"})

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?", re.ASCII)
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_NOT_BRACKET = re.compile(r"[^\[\]{}]++")
_SURROGATE = re.compile("[\ud800-\udfff]")
_STEP = {"[": 1, "{": 1, "]": -1, "}": -1}


class Number(float):
    """A JSON number that keeps its source text; as a value, the nearest float.

    Equality, order and hash are the float's, so compare `text` where the text matters.

    Raises:
        ValueError: `text` is neither a JSON number nor one of `CONSTANTS`.
    """

    __slots__ = ("text",)

    text: str
    """Source text: ASCII, as it stood in the document."""

    def __new__(cls, text: str) -> Self:
        if text not in CONSTANTS and not _NUMBER.fullmatch(text):
            raise ValueError("not a JSON number")
        self = super().__new__(cls, text)
        self.text = text
        return self

    @property
    def is_constant(self) -> bool:
        """Whether the text is one of the tokens that JSON does not have."""
        return self.text in CONSTANTS

    def __repr__(self) -> str:
        return f"Number({self.text!r})"

    def __str__(self) -> str:
        return self.text

    def __reduce__(self) -> tuple[type[Self], tuple[str]]:
        return (type(self), (self.text,))


def loads(text: str | bytes) -> Any:
    """The value of one JSON text.

    Raises:
        InvalidInput: not JSON, not UTF-8, or nested deeper than `MAX_DEPTH`. The message
            gives the position (in characters, or in bytes where the bytes are not UTF-8).
    """
    if isinstance(text, bytes):
        try:
            text = text.decode()
        except UnicodeDecodeError as error:
            raise InvalidInput(f"JSON text is not UTF-8 at byte {error.start}") from None
    # Only text with that many brackets can be too deep, and few texts have them.
    if text.count("[") + text.count("{") > MAX_DEPTH and _depth(text) > MAX_DEPTH:
        raise InvalidInput(f"JSON text is nested too deeply (more than {MAX_DEPTH} levels)")
    try:
        return _decoder.decode(text)
    except JSONDecodeError as error:
        reason = (error.msg[:1].lower() + error.msg[1:]).removesuffix(" at")
        raise InvalidInput(f"not JSON at character {error.pos}: {reason}") from None
    except RecursionError:
        raise InvalidInput("JSON text is nested too deeply for the calling stack") from None


def dumps(
    value: Any,
    *,
    ascii: bool = False,  # noqa: A002 - the name the json module's users look for
    indent: int | None = None,
) -> str:
    """JSON text of a value: compact, or `indent` spaces a level.

    With `ascii` everything beyond ASCII is escaped; without it only lone surrogates are, so
    the text can always be encoded as UTF-8. Floats that are no `Number` are written as
    Python's repr.

    Raises:
        InvalidInput: a type that JSON does not have, an object key that is no str, an
            integer beyond Python's digit limit, or nesting (or a cycle) past `MAX_DEPTH`.
    """
    return _dumps(value, ascii, indent, _constant_object)


def source_text(value: Any) -> str:
    """Compact ASCII text of a value as an escape keeps it.

    Unlike in `dumps`, the three constants are written bare: the text stands inside a
    string, and only so can it be told from an object that somebody wrote.
    """
    return _dumps(value, True, None, str)


def number_text(value: float) -> str:
    """The text of a `Number` or of any other float; `NaN` and the like for those."""
    if isinstance(value, Number):
        return value.text
    if value != value:
        return "NaN"
    if value in (_INFINITY, -_INFINITY):
        return "Infinity" if value > 0 else "-Infinity"
    return float.__repr__(value)


def well_formed(text: str) -> bool:
    """Whether the str holds no surrogate, that is, can be encoded as UTF-8."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def plain_value(value: Any) -> Any:
    """An instance of a subclass of str, int, dict or list (an enum, an ordered dict) as an
    instance of that class; anything else as it is."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, list):
        return list(value)
    return value


def count_constants(value: Any) -> int:
    """How many bare `NaN`, `Infinity` and `-Infinity` a value holds, to report them."""
    found = 0
    rest: list[Any] = [value]
    while rest:
        item = rest.pop()
        kind: Any = type(item)
        if kind is dict:
            rest.extend(item.values())
        elif kind is list:
            rest.extend(item)
        elif isinstance(item, float) and number_text(item) in CONSTANTS:
            found += 1
    return found


_INFINITY = float("inf")


def _read_number(text: str) -> Number:
    # The scanner has checked the text; the class would check it again.
    number = float.__new__(Number, text)
    number.text = text
    return number


def _read_int(text: str) -> int | Number:
    if text == "-0" or len(text) > MAX_INT_DIGITS:
        return _read_number(text)
    return int(text)


_decoder = JSONDecoder(parse_float=_read_number, parse_int=_read_int, parse_constant=_read_number)


def _depth(text: str) -> int:
    """Greatest nesting, for text that may not even be JSON."""
    brackets = _NOT_BRACKET.sub("", _STRING.sub("", text))
    return max(accumulate(map(_STEP.__getitem__, brackets)), default=0)


def _constant_object(text: str) -> str:
    return f'{{"$type":"{JSON_ESCAPE}","json":"{text}"}}'


def _dumps(value: Any, ascii_only: bool, indent: int | None, constant: Callable[[str], str]) -> str:
    parts: list[str] = []
    quote = _quote_ascii if ascii_only else _quote_plain
    try:
        if not indent:
            _write(value, parts.append, quote, constant, 1)
        else:
            _write_indented(value, parts.append, quote, constant, 1, " " * indent)
    except TypeError:
        raise InvalidInput("an object key is not a string") from None
    except RecursionError:
        raise InvalidInput("value is nested too deeply for the calling stack") from None
    text = "".join(parts)
    if ascii_only or well_formed(text):
        return text
    # Joins halves that meet, as JavaScript's strings do by themselves. What is left stands
    # inside strings, where an escape means the same.
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _write(
    value: Any,
    put: Callable[[str], None],
    quote: Callable[[str], str],
    constant: Callable[[str], str],
    depth: int,
) -> None:
    kind: Any = type(value)
    if kind is str:
        put(quote(value))
    elif kind is dict:
        _check(depth)
        lead = "{"
        for key, item in value.items():
            if type(item) is str:
                put(f"{lead}{quote(key)}:{quote(item)}")
            else:
                put(f"{lead}{quote(key)}:")
                _write(item, put, quote, constant, depth + 1)
            lead = ","
        put("}" if value else "{}")
    elif kind is list:
        _check(depth)
        put("[")
        lead = ""
        for item in value:
            if lead:
                put(lead)
            _write(item, put, quote, constant, depth + 1)
            lead = ","
        put("]")
    else:
        _write_other(value, put, quote, constant, depth)


def _write_indented(
    value: Any,
    put: Callable[[str], None],
    quote: Callable[[str], str],
    constant: Callable[[str], str],
    depth: int,
    step: str,
) -> None:
    kind: Any = type(value)
    if not value or (kind is not dict and kind is not list):
        _write(value, put, quote, constant, depth)
        return
    _check(depth)
    end = "\n" + step * (depth - 1)
    line = end + step
    lead = line
    put("{" if kind is dict else "[")
    for key in value:
        put(lead)
        item = key
        if kind is dict:
            put(f"{quote(key)}: ")
            item = value[key]
        _write_indented(item, put, quote, constant, depth + 1, step)
        lead = "," + line
    put(end + ("}" if kind is dict else "]"))


def _check(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise InvalidInput(f"value is nested too deeply (more than {MAX_DEPTH} levels)")


def _write_other(
    value: Any,
    put: Callable[[str], None],
    quote: Callable[[str], str],
    constant: Callable[[str], str],
    depth: int,
) -> None:
    """Scalars, and instances of subclasses of the JSON types (enums, ordered dicts)."""
    if value is None:
        put("null")
    elif value is True:
        put("true")
    elif value is False:
        put("false")
    elif isinstance(value, int):
        try:
            put(int.__repr__(value))
        except ValueError:
            raise InvalidInput("an integer has too many digits to be written") from None
    elif isinstance(value, float):
        text = number_text(value)
        put(constant(text) if text in CONSTANTS else text)
    elif (plain := plain_value(value)) is not value:
        _write(plain, put, quote, constant, depth)
    else:
        raise InvalidInput(f"JSON has no {type(value).__name__}")
