"""What a watcher follows: agents' files and conversations' directories, by their paths."""

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

from lettaspace.letta import tracking
from lettaspace.letta.directory import MESSAGES, AgentFile, ConversationDir, decode_name

LONG = 1 << 20
RECENT = 14 * 86400.0
MOST = 2
"""Bytes of a long conversation's rows, seconds since it was written last, and how many such
are worth reading before anything happens in them."""

Thing = AgentFile | ConversationDir


def thing(path: Path) -> Thing | None:
    """What a path below the directory is; None if it is nothing, or no longer there."""
    name = decode_name(path.stem if path.parent.name == "agents" else path.name)
    if name is None or not path.exists():
        return None
    if path.parent.name == "agents":
        return AgentFile(name, path)
    is_key = name.startswith(("conversation:", "default:")) and path.is_dir()
    return ConversationDir(name, path) if is_key else None


def mark(each: Thing) -> str:
    """Changes when a conversation's or agent's files do."""
    if isinstance(each, ConversationDir):
        return tracking.mark(each)
    try:
        stat = each.path.stat()
    except OSError:
        return ""
    return f"{stat.st_size}.{stat.st_mtime_ns}.{stat.st_ino}"


def longest(conversations: Sequence[ConversationDir]) -> list[ConversationDir]:
    """The long conversations that were written last, the newest at the end."""
    found: list[tuple[float, ConversationDir]] = []
    for each in conversations:
        with contextlib.suppress(OSError):
            stat = (each.path / MESSAGES).stat()
            if stat.st_size >= LONG and time.time() - stat.st_mtime < RECENT:
                found.append((stat.st_mtime, each))
    found.sort(key=lambda pair: pair[0])
    return [each for _, each in found[-MOST:]]
