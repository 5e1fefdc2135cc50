"""Redacting: a secret is replaced where it stands, and all around it stays as it is.

    redact = Redactor()
    redact.text("Authorization: Bearer abc123")  # 'Authorization: Bearer [redacted: authorization]'
    redact.json(message.payload())               # the same payload, its secrets replaced

A value keeps its shape: the same lists, the same keys in the same order, the same numbers.
Text that is itself JSON is redacted inside its strings, so it can be parsed as before. In a
Letta message ids, signatures and images are left alone, byte for byte. Redacting twice gives
what redacting once gave. docs/redaction.md is the policy.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from lettaspace.conversation.jsontext import dumps
from lettaspace.conversation.secretplaces import PLAIN, Named, find_in_string
from lettaspace.conversation.secretrules import is_base64
from lettaspace.conversation.secrets import SHORTEST, Span

ROUNDS = 8
"""How often a text is looked at again, because what stood beside a secret may now be one."""

_PLAIN_KEY = re.compile(r"[A-Za-z]\w{0,23}", re.ASCII)

_Path = tuple["_Path", "str | int"] | None
_Visit = Callable[[str, Named, _Path], str]


class Place(NamedTuple):
    """Where a secret stands, never which."""

    path: str
    """Of the string in the value, as `content[0].text`; of a key, the path of its value."""
    line: int
    """In that string, from 1."""
    column: int
    """In that line, from 1, in code points."""
    kind: str


class Redacting(Protocol):
    """What an export is given: a Redactor, or NoRedaction."""

    def text(self, text: str) -> str: ...

    def json(self, value: Any) -> Any: ...


class NoRedaction:
    """Changes nothing."""

    def text(self, text: str) -> str:
        return text

    def json(self, value: Any) -> Any:
        return value


class Redactor:
    """Replaces every secret by a mark that says its kind: `[redacted: github-pat]`."""

    def text(self, text: str) -> str:
        """A text, its secrets replaced."""
        return _redact(text, PLAIN, None)

    def json(self, value: Any) -> Any:
        """A value as `jsontext.loads` gives it, a message's payload or any other.

        What has no secret in it is given back itself, not copied.
        """
        return _top(value, None, _redact)


def places(value: Any) -> Iterator[Place]:
    """Where the secrets of such a value stand, in reading order."""
    found: list[Place] = []

    def note(text: str, named: Named, path: _Path) -> str:
        for span in find_in_string(text, named):
            line_start = text.rfind("\n", 0, span.start) + 1
            line = text.count("\n", 0, span.start) + 1
            found.append(Place(_shown(path), line, span.start - line_start + 1, span.kind))
        return text

    _top(value, None, note)
    return iter(found)


def _redact(text: str, named: Named, _path: _Path) -> str:
    for _ in range(ROUNDS):
        spans = find_in_string(text, named)
        if not spans:
            return text
        text = _replaced(text, spans)
    return _mark("text") if find_in_string(text, named) else text


def _replaced(text: str, spans: list[Span]) -> str:
    pieces: list[str] = []
    at = 0
    for start, end, kind in spans:
        pieces += (text[at:start], _mark(kind))
        at = end
    return "".join((*pieces, text[at:]))


def _mark(kind: str) -> str:
    return f"[redacted: {kind}]"


# Known structure. What is not named in it is free-form, as all of a tool's arguments are.

_MESSAGE_IDS = frozenset({"id", "otid", "toolCallId", "responseId"})
_PART_KEEPS = {
    "text": frozenset({"textSignature"}),
    "thinking": frozenset({"thinkingSignature"}),
    "image": frozenset({"data"}),
    "toolCall": frozenset({"id", "thoughtSignature"}),
}


def _top(value: Any, path: _Path, visit: _Visit) -> Any:
    """A message's payload; or an object that has one, an envelope, or a list of such."""
    if isinstance(value, dict):
        if isinstance(value.get("content"), list) and isinstance(value.get("role"), str):
            return _message(value, path, visit)
        inner = _AROUND_MESSAGES & value.keys() if _is_shallow(path) else None
        if inner:
            return _object(value, path, visit, dict.fromkeys(inner, _top))
    elif isinstance(value, list) and _is_shallow(path):
        return _list(value, path, visit, _top)
    return _free(value, path, visit)


_AROUND_MESSAGES = frozenset({"message", "messages", "data"})


def _is_shallow(path: _Path) -> bool:
    """At most `[0].messages[0].message.data`."""
    for _ in range(5):
        if path is None:
            return True
        path = path[0]
    return False


def _message(value: Any, path: _Path, visit: _Visit) -> Any:
    shapes = {"content": _content, "metadata": _metadata}
    return _object(value, path, visit, shapes, _MESSAGE_IDS)


def _content(value: Any, path: _Path, visit: _Visit) -> Any:
    if not isinstance(value, list):
        return _free(value, path, visit)
    return _list(value, path, visit, _part)


def _part(value: Any, path: _Path, visit: _Visit) -> Any:
    if not isinstance(value, dict):
        return _free(value, path, visit)
    kind = value.get("type")
    keeps = _PART_KEEPS.get(kind, frozenset()) if isinstance(kind, str) else frozenset()
    if kind == "image" and isinstance(data := value.get("data"), str) and not is_base64(data):
        keeps = frozenset()
    return _object(value, path, visit, {}, keeps)


def _metadata(value: Any, path: _Path, visit: _Visit) -> Any:
    if not isinstance(value, dict):
        return _free(value, path, visit)
    return _object(value, path, visit, {"provider": _provider}, frozenset({"agent_id"}))


def _provider(value: Any, path: _Path, visit: _Visit) -> Any:
    if not isinstance(value, dict):
        return _free(value, path, visit)
    return _object(value, path, visit, {}, frozenset({"response_id"}))


_Shape = Callable[[Any, _Path, _Visit], Any]


def _object(
    value: dict[str, Any],
    path: _Path,
    visit: _Visit,
    shapes: Mapping[str, _Shape],
    keeps: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """An object of which some values have a shape of their own and some are not looked at."""
    new: dict[str, Any] = {}
    for key, item in value.items():
        at = (path, key)
        if key in keeps and (isinstance(item, str) or key == "data"):
            new[key] = item
        elif key in shapes:
            new[key] = shapes[key](item, at, visit)
        else:
            new_key = _key(key, at, visit, value, new)
            new[new_key] = _free(item, at, visit, PLAIN.of(key))
    return new if _differs(new, value) else value


def _key(key: str, at: _Path, visit: _Visit, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """A key, redacted if need be, and then unlike the others of its object."""
    if len(key) < SHORTEST or (changed := visit(key, PLAIN, at)) is key:
        return key
    while changed in old or changed in new:
        changed += "'"
    return changed


def _differs(new: dict[str, Any], old: dict[str, Any]) -> bool:
    pairs = zip(new.items(), old.items(), strict=True)
    return any(a is not b or c is not d for (a, c), (b, d) in pairs)


def _list(value: list[Any], path: _Path, visit: _Visit, shape: _Shape) -> list[Any]:
    new = [shape(item, (path, at), visit) for at, item in enumerate(value)]
    return new if any(a is not b for a, b in zip(new, value, strict=True)) else value


def _free(value: Any, path: _Path, visit: _Visit, named: Named = PLAIN) -> Any:
    # One frame for each level, since values may be nested half as deep as Python can call.
    if isinstance(value, str):
        return visit(value, named, path)
    if isinstance(value, dict):
        new: dict[str, Any] = {}
        inside = named.inside_object()
        for key, item in value.items():
            at = (path, key)
            new_key = _key(key, at, visit, value, new)
            new[new_key] = _free(item, at, visit, inside.of(key))
            inside = inside.after(item)
        return new if _differs(new, value) else value
    if isinstance(value, list):
        items: list[Any] = []
        inside = named.inside_list()
        for number, item in enumerate(value):
            items.append(_free(item, (path, number), visit, inside))
            inside = inside.after(item)
        return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
    return value


def _shown(path: _Path) -> str:
    keys: list[str] = []
    while path is not None:
        path, key = path
        if isinstance(key, str) and _PLAIN_KEY.fullmatch(key):
            keys.append(f".{key}")
        else:
            # A key may hold a secret, too.
            keys.append(f"[{key if isinstance(key, int) else dumps(_redact(key, PLAIN, None))}]")
    return "".join(reversed(keys)).removeprefix(".")
