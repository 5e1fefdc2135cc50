"""What is never stored: the values of authentication headers in what a harness notes of a message.

Some providers' responses, and the errors of failed ones, carry the headers of the request. Those
values would be copied into every replica and every backup, and nothing ever reads them again.
What was said, tool arguments and results are content, and stay as they are.
"""

from collections.abc import Callable
from typing import Any

from lettaspace.conversation.jsontext import Number
from lettaspace.conversation.secretrules import AUTH_HEADERS, NOT_STORED

_CONTENT = frozenset({"content", "parts"})
_SCALARS = frozenset({str, int, float, bool, type(None), Number})
_MAX_DEPTH = 512  # deeper nesting is refused when the payload is encoded


def without_authentication(data: dict[str, Any]) -> dict[str, Any]:
    """A message's payload as it is to be stored: itself, or a copy where there is something.

    In every object or list under a key that ends in `headers` (letter case aside), outside of
    the content, the values of authentication headers become `[not stored]`: `{name: value}`,
    `[name, value]` and `{"name": name, "value": value}`. A pure function of the payload.
    """
    # Nearly every message is given back here, so only this first look has to be quick.
    if not any(
        _has_headers(key, value, 1)
        for key, value in data.items()
        if type(value) not in _SCALARS and key not in _CONTENT
    ):
        return data
    return {
        key: value if key in _CONTENT else _of_key(key)(value, 2) for key, value in data.items()
    }


def _has_headers(key: Any, value: Any, depth: int) -> bool:
    if depth > _MAX_DEPTH:
        return False
    if isinstance(value, dict):
        if _names_headers(key):
            return True
        for inner, item in value.items():
            if type(item) not in _SCALARS and _has_headers(inner, item, depth + 1):
                return True
    elif isinstance(value, list):
        if _names_headers(key):
            return True
        for item in value:
            if type(item) not in _SCALARS and _has_headers(None, item, depth + 1):
                return True
    return False


def _of_key(key: Any) -> Callable[[Any, int], Any]:
    return _inside if _names_headers(key) else _outside


def _names_headers(key: Any) -> bool:
    return isinstance(key, str) and key[-7:].lower() == "headers"


# Loops, not comprehensions: a level must cost one frame, since values may be nested half as deep
# as Python can call.


def _outside(value: Any, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        return value
    if isinstance(value, dict):
        new = {}
        for key, item in value.items():
            new[key] = _of_key(key)(item, depth + 1)
        return new
    if isinstance(value, list):
        items = []
        for item in value:
            items.append(_outside(item, depth + 1))
        return items
    return value


def _inside(value: Any, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        return value
    if isinstance(value, dict):
        named = any(_names_authentication(value.get(key)) for key in ("name", "key"))
        new = {}
        for key, item in value.items():
            if _names_authentication(key) or (named and key == "value"):
                new[key] = NOT_STORED
            else:
                new[key] = _inside(item, depth + 1)
        return new
    if isinstance(value, list):
        items = []
        follows = False
        for item in value:
            items.append(NOT_STORED if follows else _inside(item, depth + 1))
            follows = _names_authentication(item)
        return items
    return value


def _names_authentication(name: Any) -> bool:
    return isinstance(name, str) and name.lower() in AUTH_HEADERS
