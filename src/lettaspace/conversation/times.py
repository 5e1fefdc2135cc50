"""The times of records that are written again.

Whoever merges two versions of a record takes the later one by its own time. So a new version is
later than the one that it replaces, whatever this machine's clock says.
"""

from datetime import UTC, datetime, timedelta

from lettaspace.atproto.syntax import is_datetime

_MILLISECOND = timedelta(milliseconds=1)


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
