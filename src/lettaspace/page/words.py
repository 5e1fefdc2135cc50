"""Numbers and times in words."""

from datetime import datetime


def counted(number: int, thing: str) -> str:
    """`1 response`, `1,200 responses`."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def local_time(text: str, *, seconds: bool = True) -> str:
    """A stored time in the zone of this machine; as it stands where it is no time."""
    try:
        moment = datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError, OSError):
        return text[:40]
    return moment.strftime("%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M")
