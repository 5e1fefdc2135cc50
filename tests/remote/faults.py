"""What can become of a request on its way to a host, and of its answer on the way back."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple


@dataclass(frozen=True, slots=True)
class Fault:
    """What becomes of a request."""

    name: str
    sends: int = 1
    """How often the host is given it at once."""
    answer: Literal["whole", "none", "cut", "reset", "status"] = "whole"
    """What the client is given: all of the (last) answer; a connection that just ends; half of
    the answer, and then the end of the connection or a reset; or `status`."""
    status: int = 0
    late: int | None = None
    """The host is given it once more, after so many later requests."""
    hold: Literal["", "request", "answer"] = ""
    """What is kept back until `FaultProxy.release`."""

    def __repr__(self) -> str:
        return self.name.upper().replace(" ", "_")


PASS = Fault("pass")
LOST_REQUEST = Fault("lost request", sends=0, answer="none")
LOST_ANSWER = Fault("lost answer", answer="none")
TWICE = Fault("twice", sends=2)
LATE_TWICE = Fault("late twice", late=2)
"""Answered, and given to the host again later."""
LOST_LATE_TWICE = Fault("lost late twice", answer="none", late=1)
OVERTAKEN = Fault("overtaken", sends=0, answer="none", late=1)
"""Lost, as the client sees it, and given to the host later all the same."""
RESET = Fault("reset", answer="reset")
CUT = Fault("cut", answer="cut")
TOO_MANY = Fault("too many", sends=0, answer="status", status=429)
ERROR_BEFORE = Fault("error before", sends=0, answer="status", status=500)
ERROR_AFTER = Fault("error after", answer="status", status=500)
BAD_GATEWAY = Fault("bad gateway", answer="status", status=502)
UNAVAILABLE = Fault("unavailable", sends=0, answer="status", status=503)
NO_ANSWER = Fault("no answer", answer="status", status=504)
HELD_REQUEST = Fault("held request", hold="request")
HELD_ANSWER = Fault("held answer", hold="answer")

FAULTS = (
    LOST_REQUEST, LOST_ANSWER, TWICE, LATE_TWICE, LOST_LATE_TWICE, OVERTAKEN, RESET, CUT,
    TOO_MANY, ERROR_BEFORE, ERROR_AFTER, BAD_GATEWAY, UNAVAILABLE, NO_ANSWER,
)  # fmt: skip
"""All that need nobody to release anything."""


class Call(NamedTuple):
    """A request, as a schedule is asked about it. `number` counts from 0 since it was set."""

    number: int
    verb: str
    nsid: str
    size: int


Schedule = Callable[[Call], Fault]


def by_number(faults: Sequence[Fault] | Mapping[int, Fault]) -> Schedule:
    """The fault of each request by its number; what is not named passes."""
    known = faults if isinstance(faults, Mapping) else dict(enumerate(faults))
    return lambda call: known.get(call.number, PASS)


def by_chance(seed: int, share: float, faults: Sequence[Fault] = FAULTS) -> Schedule:
    """Faults for a share of all requests; equal seeds give equal schedules."""
    dice = random.Random(seed)
    return lambda _call: dice.choice(faults) if dice.random() < share else PASS


def calm(_call: Call) -> Fault:
    """Everything passes."""
    return PASS
