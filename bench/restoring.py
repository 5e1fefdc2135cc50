"""Restoring into an empty Letta directory: time against writing the same bytes plainly."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from bench.context import Context
from bench.figure import Figure, Goal, ratio
from bench.measure import Cost, interleaved, timed
from lettaspace.conversation.space import Space
from lettaspace.letta.restoring import restore

GOAL = Goal(10)

_ROUNDS = 3


def large(context: Context) -> list[Figure]:
    """A restore of 100,000 messages against writing the files it made.

    The baseline has all bytes in memory. It makes the same directories, and for each file opens
    it, writes it at once and fsyncs it; nothing else, so neither directories are flushed nor
    files moved into place. Both write to the same disk, in turn, when nothing waits for it.
    """
    written = context.large
    _ = context.large_import
    rounds = context.rounds(_ROUNDS)
    sides = _Sides(context)
    ours, bare = interleaved(rounds, sides.restore, sides.plain)
    return [
        ratio(
            "restore-100k",
            (f"restoring {written.messages} messages", ours),
            ("writing the same bytes, with fsync", bare),
            GOAL,
            messages=written.messages,
            files=len(sides.files),
            bytes=sum(map(len, sides.files.values())),
            rounds=rounds,
        )
    ]


class _Sides:
    def __init__(self, context: Context) -> None:
        self._stored = context.large_home
        self._home = context.work / "restore-home"
        self._target = context.work / "restored"
        self._plain = context.work / "plain"
        self.files: dict[Path, bytes] = {}

    def restore(self) -> Cost:
        target = _empty(self._target)
        # A copy: restoring notes in the home what the two have in common.
        shutil.copytree(self._stored, _empty(self._home), dirs_exist_ok=True)
        with Space.open(self._home) as space:
            cost = _alone(lambda: restore(space, target))
        self.files = {
            path.relative_to(target): path.read_bytes()
            for path in target.rglob("*")
            if path.is_file()
        }
        return cost

    def plain(self) -> Cost:
        target = _empty(self._plain)
        return _alone(lambda: _write(target, self.files))


def _empty(directory: Path) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    return directory


def _alone(run: Callable[[], object]) -> Cost:
    """The cost of what writes to a disk that has nothing else to do."""
    os.sync()
    return timed(run)


def _write(target: Path, files: dict[Path, bytes]) -> None:
    for path, data in files.items():
        made = target / path
        made.parent.mkdir(parents=True, exist_ok=True)
        with made.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
