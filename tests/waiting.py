"""Waiting for what another thread or process does.

A test asks until something is so, or waits for it for so long that no machine is as slow: how
fast this one is decides nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

SECONDS = 120.0
"""The longest that any single step may take."""


def until(what: Callable[[], T | None], about: str = "condition") -> T:
    """Asks until `what` gives something true, and returns it. Raises TimeoutError."""
    end = time.monotonic() + SECONDS
    while not (found := what()):
        if time.monotonic() > end:
            raise TimeoutError(f"gave up waiting for: {about}")
        time.sleep(0.01)
    return found
