"""Restoring into an empty Letta directory: time against writing the same bytes plainly."""

import os
import shutil
from pathlib import Path

from bench.context import Context
from bench.figure import Figure, Goal, ratio
from bench.measure import timed
from lettaspace.conversation.space import Space
from lettaspace.letta.restoring import restore

GOAL = Goal(10)


def large(context: Context) -> list[Figure]:
    """A restore of 100,000 messages against writing and fsyncing the files it made."""
    written = context.large
    _ = context.large_import
    # A copy: restoring notes in the home what the two have in common.
    home = context.work / "restore-home"
    shutil.copytree(context.large_home, home)
    target = context.work / "restored"
    target.mkdir()
    with Space.open(home) as space:
        ours = timed(lambda: restore(space, target))
    files = {
        path.relative_to(target): path.read_bytes() for path in target.rglob("*") if path.is_file()
    }
    bare = timed(lambda: _write(context.work / "plain", files))
    return [
        ratio(
            "restore-100k",
            (f"restoring {written.messages} messages", ours),
            ("writing the same bytes, with fsync", bare),
            GOAL,
            messages=written.messages,
            bytes=sum(map(len, files.values())),
        )
    ]


def _write(target: Path, files: dict[Path, bytes]) -> None:
    for path, data in files.items():
        made = target / path
        made.parent.mkdir(parents=True, exist_ok=True)
        with made.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
