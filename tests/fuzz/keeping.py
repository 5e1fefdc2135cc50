"""Which inputs are worth to be kept: the smallest ones that together reach what all reach."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any

import lettaspace

_SOURCE = str(Path(lettaspace.__file__).parent)


def distinct(
    fuzz: Callable[[bytes], None], inputs: Iterable[bytes], always: Iterable[bytes] = ()
) -> list[bytes]:
    """Those of `inputs` that reach steps of this package which neither a smaller one nor one
    of `always` reaches. A step is a line and the one before it. Threads that are there already
    are not looked at."""
    trace = _Trace()
    seen: set[object] = set()
    kept = []
    before = sys.gettrace()
    threading.settrace(trace.enter)
    sys.settrace(trace.enter)
    try:
        for data in always:
            seen |= trace.steps_of(fuzz, data)
        for data in sorted(set(inputs), key=lambda data: (len(data), data)):
            steps = trace.steps_of(fuzz, data)
            if not steps <= seen:
                seen |= steps
                kept.append(data)
    finally:
        sys.settrace(before)
        threading.settrace(before)  # type: ignore[arg-type]
    return kept


class _Trace:
    def __init__(self) -> None:
        self._steps: set[object] = set()

    def steps_of(self, fuzz: Callable[[bytes], None], data: bytes) -> set[object]:
        self._steps = set()
        fuzz(data)
        return self._steps

    def enter(self, frame: FrameType, event: str, _: Any) -> Any:  # noqa: ARG002
        code, last = frame.f_code, 0
        if not code.co_filename.startswith(_SOURCE):
            return None

        def step(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal last
            if event == "line":
                self._steps.add((code, last, frame.f_lineno))
                last = frame.f_lineno
            return step

        return step
