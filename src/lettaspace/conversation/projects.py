"""Conversations by the directory that they were held in.

A directory is text: it may be one of another machine, under another system, and be there no
more. So nothing here asks a file system.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from lettaspace.conversation.overview import ConversationInfo

_WINDOWS = re.compile(r"[A-Za-z]:(?=[/\\]|$)|[/\\]{2}(?=[^/\\])")
_VERBATIM = re.compile(r"[/\\]{2}[?.][/\\](UNC[/\\])?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Project:
    """The conversations that were held in one directory, the most recently used first."""

    directory: str | None
    """As the first of them has it; None for those of which no directory is known."""
    conversations: tuple[ConversationInfo, ...]


def by_project(conversations: Iterable[ConversationInfo]) -> list[Project]:
    """Conversations by directory, in the order in which directories are first met; those of
    which none is known come last."""
    groups: dict[str | None, list[ConversationInfo]] = {}
    for each in conversations:
        groups.setdefault(same(each.cwd) if each.cwd else None, []).append(each)
    unknown = groups.pop(None, [])
    found = [Project(group[0].cwd, tuple(group)) for group in groups.values()]
    return [*found, Project(None, tuple(unknown))] if unknown else found


def same(directory: str) -> str:
    """A text that is the same for all spellings of a directory's absolute path.

    Slashes at the end, doubled ones and `.` say nothing. In a path of Windows, which a drive or a
    share begins, slashes lean either way and letter case does not count.
    """
    verbatim = _VERBATIM.match(directory)
    if verbatim:
        directory = ("//" if verbatim[1] else "") + directory[verbatim.end() :]
    if begin := _WINDOWS.match(directory):
        directory = directory.replace("\\", "/").casefold()
    share = "//" if begin and ":" not in begin[0] else ""
    parts = [part for part in directory.split("/") if part not in ("", ".")]
    root = "/" if directory.startswith("/") and not share else ""
    return f"{share or root}{'/'.join(parts)}"
