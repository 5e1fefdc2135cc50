"""TIDs: timestamp identifiers, 13 characters that sort as their times do.

A TID is 64 bits: a zero, 53 bits of microseconds since 1970, 10 bits of clock identifier,
written in base32 with an alphabet in ASCII order (AT Protocol TID spec).
"""

import secrets
import threading
import time
from collections.abc import Callable

from lettaspace.atproto.syntax import is_tid
from lettaspace.errors import InvalidInput

ALPHABET = "234567abcdefghijklmnopqrstuvwxyz"

MAX_MICROS = (1 << 53) - 1
"""The last time a TID can name, in microseconds: June 2255."""

MAX_CLOCK_ID = (1 << 10) - 1

# Ten bits at a time is two characters: half the steps of going character by character.
_PAIRS = tuple(high + low for high in ALPHABET for low in ALPHABET)
# int() reads base 32 in its own digits, so decoding is one translation and one call.
_DIGITS = str.maketrans(ALPHABET, "0123456789abcdefghijklmnopqrstuv")

DAY = 24 * 60 * 60 * 1_000_000


def encode(micros: int, clock_id: int) -> str:
    """The TID of a time in microseconds since 1970 and a clock identifier (0 to 1023).

    Raises InvalidInput outside those ranges.
    """
    if not 0 <= micros <= MAX_MICROS:
        raise InvalidInput("time is outside the range of a TID")
    if not 0 <= clock_id <= MAX_CLOCK_ID:
        raise InvalidInput("clock identifier of a TID is not within 0 to 1023")
    return (
        ALPHABET[micros >> 50]
        + _PAIRS[micros >> 40 & 1023]
        + _PAIRS[micros >> 30 & 1023]
        + _PAIRS[micros >> 20 & 1023]
        + _PAIRS[micros >> 10 & 1023]
        + _PAIRS[micros & 1023]
        + _PAIRS[clock_id]
    )


def decode(tid: str) -> tuple[int, int]:
    """The time in microseconds since 1970 and the clock identifier of a TID.

    The TID syntax does not exclude texts whose top bit is one. They sort above all others, so
    their time is beyond `MAX_MICROS` and `encode` does not take it. Raises InvalidInput for what
    is not a TID.
    """
    if not is_tid(tid):
        raise InvalidInput("not a TID")
    number = int(tid.translate(_DIGITS), 32)
    return number >> 10, number & MAX_CLOCK_ID


def derive(millis: int, digest: bytes) -> str:
    """A repeatable TID for something that happened at `millis` (milliseconds since 1970).

    What tells apart things of one millisecond comes from `digest`, a hash of what identifies
    the thing: its first four bytes (big-endian, modulo 1000) are the microseconds within the
    millisecond, the low ten bits of the next two are the clock identifier. So equal things get
    equal TIDs everywhere, and two different ones of the same millisecond meet about once in a
    million. Raises InvalidInput for a time no TID can name (before 1970 too: moving it would
    claim another time) and for a digest of fewer than six bytes.
    """
    if len(digest) < 6:
        raise InvalidInput("digest of a derived TID has fewer than six bytes")
    micros = millis * 1000 + int.from_bytes(digest[:4], "big") % 1000
    return encode(micros, int.from_bytes(digest[4:6], "big") & MAX_CLOCK_ID)


class TidClock:
    """Mints TIDs from a clock, strictly increasing for the life of the object. Thread-safe.

    `now` returns nanoseconds since 1970; `clock_id` is random unless given. Sorting above what
    is stored is up to the caller, who passes the highest stored TID as `floor`. A floor more
    than `max_ahead` microseconds ahead of the clock is not believed, since one wild TID would
    otherwise put every later one beside it, in the future, for good. The default of a day
    still covers a clock that was stepped back, or runs in the wrong timezone.
    """

    def __init__(
        self,
        now: Callable[[], int] = time.time_ns,
        clock_id: int | None = None,
        *,
        max_ahead: int = DAY,
    ) -> None:
        if clock_id is None:
            clock_id = secrets.randbelow(MAX_CLOCK_ID + 1)
        elif not 0 <= clock_id <= MAX_CLOCK_ID:
            raise InvalidInput("clock identifier of a TID is not within 0 to 1023")
        self._now = now
        self._clock_id = clock_id
        self._max_ahead = max_ahead
        self._last = -1
        self._lock = threading.Lock()

    def mint(self, floor: str | None = None) -> str:
        """A TID above every one minted here before and, if it is credible, above `floor`.

        The time is the clock's where that is possible, else the next free microsecond, so the
        TIDs fall back in with the clock as soon as it has caught up. Raises InvalidInput if
        `floor` is not a TID or the clock is outside the range of TIDs.
        """
        lowest = -1 if floor is None else decode(floor)[0]
        with self._lock:
            now = self._now() // 1000
            micros = max(now, self._last + 1)
            if micros <= lowest <= now + self._max_ahead:
                micros = lowest + 1
            tid = encode(micros, self._clock_id)
            self._last = micros
        return tid
