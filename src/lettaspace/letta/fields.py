"""Fields: a small file that was changed here, and whose record was changed elsewhere.

Each field is taken from whoever changed it since the two were last the same. Where both did,
the one whose `updated_at`, the harness's own time, is later counts; where that tells nothing,
the file, which somebody uses here.
"""

from typing import Any

from lettaspace.conversation.times import to_millis, valid

Fields = dict[str, Any]

_TIMES = ("updated_at", "last_message_at")
_NOTHING = object()


def merge(base: Fields | None, ours: Fields, theirs: Fields) -> Fields:
    """What the file and the record both become. `ours` is the file's; without a base the
    whole of the later one counts."""
    later = _time(theirs) <= _time(ours)
    if base is None:
        return ours if later else theirs
    merged: Fields = {}
    for key in dict.fromkeys((*ours, *theirs)):
        value = _field(base, ours, theirs, key, later)
        if value is not _NOTHING:
            merged[key] = value
    for key in _TIMES:
        times = [each[key] for each in (ours, theirs) if valid(each.get(key))]
        if times:
            merged[key] = max(times, key=to_millis)
    return merged


def _field(base: Fields, ours: Fields, theirs: Fields, key: str, later: bool) -> Any:
    old, mine, other = (each.get(key, _NOTHING) for each in (base, ours, theirs))
    if mine == other or other == old:
        return mine
    return other if mine == old or not later else mine


def _time(value: Fields) -> int:
    time = valid(value.get("updated_at"))
    return to_millis(time) if time is not None else 0
