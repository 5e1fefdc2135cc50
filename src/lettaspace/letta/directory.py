"""Letta Code's storage directory: where it is, what is in it, its small files.

Names in it are unpadded base64url. Only names that the directory lists are ever used as paths;
ids found inside files are data. Letta rewrites its small JSON files in place while it runs, so
a reader may meet half of one: it is read again as long as it keeps changing.
"""

import binascii
import os
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lettaspace.conversation import jsontext
from lettaspace.errors import InvalidInput, NotFound, StoreUnavailable

CONVERSATION = "conversation.json"
MANIFEST = "manifest.json"
MESSAGES = "messages.jsonl"
PROMPT = "system-prompt.json"
FILES = (CONVERSATION, MANIFEST, MESSAGES, PROMPT)

MAX_SMALL = 64 * 1024 * 1024
"""Bytes of a file that is read whole."""

MAX_NAME = 255
"""Bytes of a name that every file system takes."""

PATIENCE = 1.0
"""Seconds to wait for a file that is being written to become whole."""

_PAUSE = 0.02
_SETTLED = 5
"""So many equal readings in a row, and the file is taken to be at rest."""


def default_directory() -> Path:
    """$LETTA_LOCAL_BACKEND_DIR, or ~/.letta/lc-local-backend."""
    named = os.environ.get("LETTA_LOCAL_BACKEND_DIR")
    return Path(named) if named else Path.home() / ".letta" / "lc-local-backend"


def encode_name(key: str) -> str:
    """The name of the file or directory for an id or key."""
    return urlsafe_b64encode(key.encode()).decode().rstrip("=")


def is_name(key: str, suffix: str = "") -> bool:
    """Whether a file or directory can have the name for an id or key: it is text, and not too
    long for a file system."""
    try:
        name = encode_name(key) + suffix
    except UnicodeEncodeError:
        return False
    return bool(key) and len(name) <= MAX_NAME


def decode_name(name: str) -> str | None:
    """The id or key behind a name, or None if it is not one that `encode_name` gives."""
    try:
        key = urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode()
    except (binascii.Error, ValueError):
        return None
    return key if key and encode_name(key) == name else None


@dataclass(frozen=True, slots=True)
class AgentFile:
    """An agent's file; the id is what the name says."""

    id: str
    path: Path


@dataclass(frozen=True, slots=True)
class ConversationDir:
    """A conversation's directory. `key` is `conversation:<id>` or `default:<agent id>`."""

    key: str
    path: Path

    @property
    def id(self) -> str:
        """What Letta calls it: every agent has one that is called `default`."""
        kind, _, name = self.key.partition(":")
        return name if kind == "conversation" else "default"

    @property
    def default_agent(self) -> str | None:
        kind, _, name = self.key.partition(":")
        return name if kind == "default" else None


@dataclass(slots=True)
class Listing:
    """What a storage directory holds, by key."""

    agents: list[AgentFile] = field(default_factory=list[AgentFile])
    conversations: list[ConversationDir] = field(default_factory=list[ConversationDir])
    odd: list[str] = field(default_factory=list[str])
    """Names that do not belong there: `agents/x.json`, `conversations/y`; made printable."""


def list_directory(directory: Path) -> Listing:
    """Lists a storage directory. Raises NotFound if it is none, StoreUnavailable if it cannot
    be read.

    Conversations are in the order of their keys, shorter keys first, so that those with a
    counter in them are in the order they were made.
    """
    if not (directory / "conversations").is_dir() and not (directory / "agents").is_dir():
        raise NotFound(f"no Letta storage directory at {directory}")
    listing = Listing()
    for entry in entries(directory / "agents"):
        if not entry.name.endswith(".json"):
            continue
        agent_id = decode_name(entry.name.removesuffix(".json"))
        if agent_id is None:
            listing.odd.append(f"agents/{_printable(entry.name)}")
        else:
            listing.agents.append(AgentFile(agent_id, Path(entry.path)))
    for entry in entries(directory / "conversations"):
        key = decode_name(entry.name)
        if not entry.is_dir():
            continue
        if key is None or not key.startswith(("conversation:", "default:")):
            listing.odd.append(f"conversations/{_printable(entry.name)}")
        else:
            listing.conversations.append(ConversationDir(key, Path(entry.path)))
    listing.agents.sort(key=lambda agent: agent.id)
    listing.conversations.sort(key=lambda each: (len(each.key), each.key))
    listing.odd.sort()
    return listing


def size(path: Path) -> int:
    """A file's bytes; 0 where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


@dataclass(frozen=True, slots=True)
class Small:
    """A small JSON file as it was read."""

    raw: bytes | None
    """None when there is no such file, or it cannot be read."""
    value: dict[str, Any] | None
    """As `jsontext.loads` gives it; None when it is not a JSON object."""
    problem: str = ""
    """Why there is no value: `missing`, `not JSON`, `not an object`, or the system's words."""


def read_small(
    path: Path,
    *,
    patience: float = PATIENCE,
    sleep: Callable[[float], None] = time.sleep,
) -> Small:
    """Reads a small file, again and again while it is torn and changing."""
    deadline = time.monotonic() + patience
    last: bytes | None = None
    equal = 0
    while True:
        small = _read_once(path)
        if small.value is not None or small.raw is None:
            return small
        equal = equal + 1 if small.raw == last else 0
        if equal >= _SETTLED or time.monotonic() >= deadline or _at_rest(path, patience):
            return small
        last = small.raw
        sleep(_PAUSE)


def fingerprint(conversation: ConversationDir) -> str:
    """Changes when any of the conversation's files does: sizes, times and inodes."""
    parts: list[str] = []
    directory = str(conversation.path)
    for name in FILES:
        try:
            # A sweep over a thousand conversations feels what joining paths costs.
            stat = os.stat(f"{directory}{os.sep}{name}")  # noqa: PTH116
        except OSError:
            parts.append("-")
        else:
            parts.append(f"{stat.st_size}.{stat.st_mtime_ns}.{stat.st_ino}")
    return " ".join(parts)


def _read_once(path: Path) -> Small:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_SMALL + 1)
    except FileNotFoundError:
        return Small(None, None, "missing")
    except OSError as error:
        return Small(None, None, error.strerror or "unreadable")
    if len(raw) > MAX_SMALL:
        return Small(raw, None, "too large")
    try:
        value = jsontext.loads(raw.removeprefix(b"\xef\xbb\xbf"))
    except InvalidInput:
        return Small(raw, None, "not JSON")
    if type(value) is not dict:
        return Small(raw, None, "not an object")
    return Small(raw, value)


def _at_rest(path: Path, patience: float) -> bool:
    try:
        return time.time() - path.stat().st_mtime > 2 * patience
    except OSError:
        return False


def entries(path: Path) -> Iterator["os.DirEntry[str]"]:
    """What a directory lists; nothing where there is none. Raises StoreUnavailable."""
    try:
        with os.scandir(path) as entries:
            yield from entries
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise StoreUnavailable(f"cannot read {path}: {error.strerror or error}") from error


def _printable(name: str) -> str:
    return ascii(name)[1:-1]
