"""Starting the command line."""

import sys
from pathlib import Path

from bench.context import Context
from bench.figure import Figure, Goal, ratio
from bench.measure import interleaved, spawned

GOAL = Goal(5)


def show_help(context: Context) -> list[Figure]:
    """`lettaspace --help` against a start of the same interpreter that does nothing."""
    rounds = context.rounds(31)
    script = Path(sys.executable).with_name("lettaspace")
    command = [str(script)] if script.exists() else [sys.executable, "-m", "lettaspace"]
    command.append("--help")
    bare = [sys.executable, "-c", "pass"]
    spawned(command)
    ours, base = interleaved(rounds, lambda: spawned(command), lambda: spawned(bare))
    return [
        ratio(
            "help",
            ("lettaspace --help", ours),
            ("python -c pass", base),
            GOAL,
            rounds=rounds,
        )
    ]
