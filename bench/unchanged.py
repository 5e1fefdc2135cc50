"""A sync of a Letta directory in which nothing has changed: against looking at every file."""

import os
import subprocess
from pathlib import Path

from bench.context import Context
from bench.directory import write_many
from bench.figure import Figure, Goal, ratio
from bench.measure import interleaved, timed
from lettaspace.cli.lettadir import bring_both_ways, check
from lettaspace.conversation.space import Space
from lettaspace.letta.directory import list_directory
from lettaspace.letta.memfs import MEMFS, MEMORY

GOAL = Goal(5)

CONVERSATIONS = 1000
MESSAGES = 10
"""In each conversation; how many they are changes nothing."""
COMMITS = 5
"""In each agent's memory."""
ROUNDS = 21


def sync(context: Context) -> list[Figure]:
    """What `lettaspace sync` does between directory and space, nothing having changed."""
    conversations = context.size(CONVERSATIONS)
    directory = write_many(context.work / "unchanged", conversations, MESSAGES).path
    for agent in list_directory(directory).agents:
        _remember(directory / MEMFS / agent.id / MEMORY)
    with Space.open(context.work / "unchanged-home") as space:

        def look() -> int:
            check(directory)
            done = bring_both_ways(space, directory).reconciled
            return 0 if done is None else done.written

        look()
        if look():
            raise RuntimeError("the second sync wrote something")
        ours, bare = interleaved(
            context.rounds(ROUNDS), lambda: timed(look), lambda: timed(lambda: _walk(directory))
        )
    return [
        ratio(
            "sync-noop-1000",
            (f"a sync of {conversations} unchanged conversations", ours),
            ("walking the directory and a stat of every file", bare),
            GOAL,
            rounds=context.rounds(ROUNDS),
            files=_walk(directory),
        )
    ]


def _walk(directory: Path) -> int:
    """Looks at every file there is, as plainly as Python can; how many there are."""
    count = 0
    for place, _, files in os.walk(directory):
        for name in files:
            os.stat(f"{place}/{name}")  # noqa: PTH116
            count += 1
    return count


def _remember(path: Path) -> None:
    """An agent's memory, as Letta keeps it: a git repository with some commits."""
    path.mkdir(parents=True)
    _git(path, "init", "-q", "-b", "main")
    for number in range(COMMITS):
        (path / "human.md").write_text(f"Has {number} jars on the shelf.\n")
        _git(path, "add", "-A")
        _git(path, "commit", "-q", "-m", f"Jar {number}")


def _git(path: Path, *arguments: str) -> None:
    settings = ["-c", "user.name=bench", "-c", "user.email=bench@example.invalid"]
    settings += ["-c", "core.hooksPath=/dev/null", "-c", "commit.gpgSign=false"]
    subprocess.run(["git", *settings, *arguments], cwd=path, check=True)
