"""JSON objects of which some keys are known, as frozen dataclasses that lose nothing.

A field says in its metadata which key it is and how its value is read (`json_key`,
`optional`). Keys that are not known go to `extra` and come back. Known keys that are absent
or null are None; the null stands in `extra`, so that it comes back too.

Errors name the place, as in `content[2].text`, and never hold what stands there.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache
from typing import Any, ClassVar, Self, TypeVar

from lettaspace.errors import InvalidInput

_T = TypeVar("_T")

Read = Callable[[Any, str], Any]
"""Makes a field's value of a JSON value that stands at a path. Raises InvalidInput."""


def typed(value: Any, path: str, kind: type[_T], name: str) -> _T:
    """The value, which must be of a kind called so."""
    if not isinstance(value, kind):
        raise InvalidInput(f"{path} is not {name}")
    return value


def string(value: Any, path: str) -> str:
    return typed(value, path, str, "a string")


def boolean(value: Any, path: str) -> bool:
    return typed(value, path, bool, "true or false")


def number(value: Any, path: str) -> float:
    """An int, a float, or a `jsontext.Number`, as it is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(f"{path} is not a number")
    return value


def anything(value: Any, _path: str) -> Any:
    return value


def json_key(key: str, read: Read) -> dict[str, Any]:
    """The metadata of a field."""
    return {"key": key, "read": read}


def optional(key: str, read: Read) -> Any:
    """A field that may be absent."""
    return field(default=None, metadata=json_key(key, read), kw_only=True)


@dataclass(frozen=True, slots=True)
class Model:
    """A JSON object of which some keys are known."""

    CONSTANT: ClassVar[tuple[str, str] | None] = None
    """A key that every object of the class has, and its value."""

    extra: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    """The keys that are not known, and the known ones that are null."""

    @classmethod
    def from_json(cls, data: Any, path: str = "") -> Self:
        """Reads an object; `path` is where it stands. Raises InvalidInput, naming the place."""
        if not isinstance(data, Mapping):
            raise InvalidInput(f"{path or 'the message'} is not an object")
        known = _known(cls)
        values: dict[str, Any] = {each.name: None for each in known.values()}
        extra: dict[str, Any] = {}
        prefix = f"{path}." if path else ""
        for key, value in data.items():
            if cls.CONSTANT is not None and key == cls.CONSTANT[0]:
                if value != cls.CONSTANT[1]:
                    raise InvalidInput(f"{prefix}{key} is not {cls.CONSTANT[1]!r}")
            elif value is None or key not in known:
                extra[key] = value
            else:
                values[known[key].name] = known[key].metadata["read"](value, prefix + key)
        if cls.CONSTANT is not None and cls.CONSTANT[0] not in data:
            raise InvalidInput(f"{prefix}{cls.CONSTANT[0]} is missing")
        for key, each in known.items():
            if values[each.name] is None and each.default is each.default_factory is MISSING:
                raise InvalidInput(f"{prefix}{key} is missing")
        return cls(**values, extra=extra)

    def to_json(self) -> dict[str, Any]:
        """The JSON object: known keys in the order Letta Code writes them, then the others."""
        out: dict[str, Any] = {}
        if self.CONSTANT is not None:
            out[self.CONSTANT[0]] = self.CONSTANT[1]
        for key, each in _known(type(self)).items():
            value = getattr(self, each.name)
            if value is not None:
                out[key] = _plain(value)
        for key, value in self.extra.items():
            out.setdefault(key, value)
        return out


def _known(model: Any) -> Mapping[str, Field[Any]]:
    """The fields of a class by their key in JSON."""
    return _fields(model)


@cache
def _fields(model: Any) -> Mapping[str, Field[Any]]:
    return {each.metadata["key"]: each for each in fields(model) if "key" in each.metadata}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    to_json = getattr(value, "to_json", None)
    return value if to_json is None else to_json()
