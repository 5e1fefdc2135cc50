"""Runs something in a process of its own that is killed before one of its steps."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

STEPS = {"os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "subprocess.Popen"}
"""What counts as a step, by the names of Python's audit events."""


def killed(work: Callable[[], object], step: int) -> bool:
    """Whether it was killed: it is done otherwise, because it has no more steps than that."""
    child = os.fork()
    if not child:
        left = step

        def hook(event: str, _arguments: object) -> None:
            nonlocal left
            if event in STEPS:
                if not left:
                    os.kill(os.getpid(), signal.SIGKILL)
                left -= 1

        sys.addaudithook(hook)
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or not os.WEXITSTATUS(status)
    return os.WIFSIGNALED(status)


def killed_writing(work: Callable[[], object], step: int) -> bool:
    """The same, before one of the calls that write files: each of them is a step."""

    def counted() -> object:
        left = step
        for name in ("write", "fsync", "rename", "replace", "unlink", "mkdir"):
            real = getattr(os, name)

            def call(*arguments: object, _real: Callable[..., object] = real, **named: object):  # type: ignore[no-untyped-def]
                nonlocal left
                if not left:
                    os.kill(os.getpid(), signal.SIGKILL)
                left -= 1
                return _real(*arguments, **named)

            setattr(os, name, call)
        return work()

    return killed(counted, 1_000_000)
