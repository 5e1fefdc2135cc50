"""The times of records, and those of harnesses: ISO 8601 text, or milliseconds since 1970.

Whoever merges two versions of a record takes the later one by its own time. So a new version is
later than the one that it replaces, whatever this machine's clock says: `after`.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from lettaspace.atproto.syntax import is_datetime
from lettaspace.atproto.tid import MAX_MICROS

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_MAX_MILLIS = MAX_MICROS // 1000 - 1

EPOCH = "1970-01-01T00:00:00.000Z"
"""What stands for a time that nothing tells."""


def after(at: str, stored: object) -> str:
    """`at`, or the millisecond after the `stored` time where `at` is not later than that.

    `at` is a datetime. What is stored may be none: then it is `at`.
    """
    if not is_datetime(stored):
        return at
    moment = datetime.fromisoformat(str(stored))
    if datetime.fromisoformat(at) > moment:
        return at
    try:
        return text(moment.astimezone(UTC) + _MILLISECOND)
    except OverflowError:
        return str(stored)  # the last moment there is: nothing is later


def text(moment: datetime) -> str:
    """A moment in UTC as records hold it, in milliseconds."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


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
    return valid(text(moment))


def valid(value: Any) -> str | None:
    """The value itself if it is an AT Protocol datetime, else None."""
    return value if is_datetime(value) else None
