"""Datetimes as Letta writes them: ISO 8601 text, or milliseconds since 1970."""

from datetime import UTC, datetime, timedelta
from typing import Any

from lettaspace.atproto.syntax import is_datetime
from lettaspace.atproto.tid import MAX_MICROS

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_MAX_MILLIS = MAX_MICROS // 1000 - 1

EPOCH = "1970-01-01T00:00:00.000Z"
"""What stands for a time that nothing tells."""


def to_millis(text: str) -> int:
    """Milliseconds since 1970 of an AT Protocol datetime, rounded down.

    A time that no TID can name (before 1970, after 2255) gives the nearest one that can.
    """
    moment = datetime.fromisoformat(text)
    return min(max((moment - _EPOCH) // _MILLISECOND, 0), _MAX_MILLIS)


def from_millis(value: Any) -> str | None:
    """The text JavaScript gives a time in milliseconds since 1970, or None if it is none."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        moment = _EPOCH + timedelta(milliseconds=int(value))
    except (OverflowError, ValueError):
        return None
    text = moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
    return valid(text)


def valid(value: Any) -> str | None:
    """The value itself if it is an AT Protocol datetime, else None."""
    return value if is_datetime(value) else None
