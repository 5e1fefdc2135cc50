"""What a finished turn in Letta starts: a sync in the background, one at a time."""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

LOCK = "hook.lock"
AGAIN = "hook.again"
"""There while a turn has ended that no sync has begun after."""

SETTLE = 0.5
"""Seconds for Letta to write the end of its turn."""


def command(home: Path, letta: Path | None) -> list[str]:
    """The command line that a hook runs."""
    found = [sys.executable, "-m", "lettaspace", "--home", str(home.absolute())]
    found += ["letta", "hook", "run"]
    return found if letta is None else [*found, "--letta", str(letta.absolute())]


def run(home: Path, arguments: Sequence[str]) -> None:
    """Syncs, and again if another turn ended meanwhile. Says nothing, and fails with nothing:
    whoever runs `sync` or `status` is told what is wrong."""
    from filelock import FileLock, Timeout

    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        (home / AGAIN).touch(mode=0o600)
        # Whoever holds the lock sees the file when it is done.
        lock = FileLock(home / LOCK, timeout=0, mode=0o600)
        while (home / AGAIN).exists():
            with lock:
                _sync(home, arguments)
    except (Timeout, OSError):
        return


def _sync(home: Path, arguments: Sequence[str]) -> None:
    from contextlib import redirect_stderr, redirect_stdout

    from lettaspace.cli.run import run as run_command

    time.sleep(SETTLE)
    (home / AGAIN).unlink(missing_ok=True)
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        run_command(["--home", str(home), "sync", *arguments])
