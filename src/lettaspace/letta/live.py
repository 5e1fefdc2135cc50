"""What is kept of a conversation that goes on, so that a new row costs little.

Kept is what its rows gave, as in a first pass, and what its records said. Before any of it is
used again the file is compared with it: it must begin with the very bytes that were read.
Whatever does not fit is read anew from the start.
"""

import os
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from numpy.typing import NDArray

from lettaspace.conversation.records import MESSAGE
from lettaspace.letta import rows
from lettaspace.letta.plan import NOBODY, Plan
from lettaspace.letta.scan import Changed, Scan, Scanner
from lettaspace.space.writes import Repo

if TYPE_CHECKING:
    from hashlib import _Hash as HASH

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Baseline:
    """What the space held of a conversation when all of it had been stored."""

    plan: Plan
    agent: str
    rev: str | None
    """The repo's revision before anything of the conversation was looked at."""

    def differing(self, plan: Plan, agent: str, repo: Repo) -> NDArray[np.bool_]:
        """A flag for every entry whose record may have to be another one now: what the plan
        says of it is new, or somebody wrote its record."""
        old, count = self.plan, len(self.plan.status)
        flags = np.ones(len(plan.status), np.bool_)
        if agent != self.agent:
            return flags
        tids = plan.scan.tid_array()
        by, old_by = np.array(plan.covered_by), np.array(old.covered_by)
        moved = np.ones(len(flags), np.bool_)
        moved[:count] = (
            (np.array(plan.seqs)[:count] != np.array(old.seqs))
            | (by[:count] != old_by)
            | (tids[:count] != old.scan.tid_array())
        )
        flags[:count] = moved[:count] | (np.array(plan.updated)[:count] != np.array(old.updated))
        flags[:count] |= _numbers(plan.status)[:count] != _numbers(old.status)
        for entry, _ in plan.final.items() ^ old.final.items():
            flags[entry] = True
        # A summary lists others by their TIDs, in the order of their seqs.
        for listing in (by[moved], old_by[moved[:count]]):
            flags[listing[listing != NOBODY]] = True
        # Looking up who else wrote is worth it while that is less than there is to compare.
        limit = 2 * len(flags) + 1000
        ops = list(repo.ops(self.rev, limit=limit))
        written = [op.rkey.encode() for op in ops if op.collection == MESSAGE]
        flags |= np.isin(tids, np.array(written, tids.dtype)) | (len(ops) == limit)
        return flags


class Live:
    """The rows of one messages.jsonl, read once, and then only what was added."""

    def __init__(self, path: Path, conversation: str, created_at: str) -> None:
        self.baseline: Baseline | None = None
        self._scanner = Scanner(Scan(path, conversation, created_at))
        self._digest = sha256()
        self._size = 0
        self._lines = 0
        self._seen: tuple[int, ...] = ()
        self._torn = False

    def __len__(self) -> int:
        return len(self._scanner.scan)

    def is_of(self, path: Path, conversation: str, created_at: str) -> bool:
        scan = self._scanner.scan
        return (scan.path, scan.conversation, scan.created_at) == (path, conversation, created_at)

    def advance(self, check: Callable[[], None]) -> bool:
        """Reads the rows that were added, all that end with a newline.

        Returns whether something stands behind them. Raises Changed when the file no longer
        begins with what was read before, and what `check` raises, which is called for every
        row.
        """
        try:
            file = self._scanner.scan.path.open("rb", buffering=1 << 18)
        except FileNotFoundError:
            if self._size:
                raise Changed from None
            return False
        with file:
            stat = os.fstat(file.fileno())
            seen = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)
            if seen != self._seen:
                self._check(file)
                self._read(file, check)
                self._seen = seen
        return self._torn

    @property
    def seen_size(self) -> int:
        """The file's size in bytes when it was read last."""
        return self._seen[2] if self._seen else 0

    def result(self) -> Scan:
        """The scan of what was read."""
        return self._scanner.result()

    def _check(self, file: BinaryIO) -> None:
        digest, left = sha256(), self._size
        while left and (data := file.read(min(left, _CHUNK))):
            digest.update(data)
            left -= len(data)
        if left or digest.digest() != self._digest.digest():
            raise Changed

    def _read(self, file: BinaryIO, check: Callable[[], None]) -> None:
        self._torn = False
        tail = _Hashed(file, self._digest)
        for line in rows.read_lines(tail, offset=self._size, number=self._lines):
            if not line.ended:
                self._torn = True
                break
            check()
            self._scanner.line(line)
        self._digest = tail.digest
        self._size += tail.size
        self._lines += tail.lines


class Lives:
    """The conversations that went on last, at most so many, of at most so many messages."""

    def __init__(self, conversations: int = 8, messages: int = 400_000) -> None:
        self._conversations = conversations
        self._messages = messages
        self._lives: OrderedDict[str, Live] = OrderedDict()

    def take(self, key: str, path: Path, conversation: str, created_at: str) -> Live:
        """The one of a key, or a new one. It is no longer kept: whatever goes wrong with it
        from now on, it is read anew."""
        live = self._lives.pop(key, None)
        if live is None or not live.is_of(path, conversation, created_at):
            live = Live(path, conversation, created_at)
        return live

    def keep(self, key: str, live: Live) -> None:
        """Keeps it as the newest, and forgets the oldest where they are too many."""
        self._lives[key] = live
        while len(self._lives) > self._conversations or (
            self._lives and sum(map(len, self._lives.values())) > self._messages
        ):
            self._lives.popitem(last=False)


class _Hashed:
    """A file whose whole lines go into a digest as they are read."""

    def __init__(self, file: BinaryIO, digest: "HASH") -> None:
        self.digest = digest
        self.size = 0
        self.lines = 0
        self._file = file
        self._ahead = digest
        self._length = 0

    def readline(self, limit: int) -> bytes:
        if not self._length:
            self._ahead = self.digest.copy()
        data = self._file.readline(limit)
        self._ahead.update(data)
        self._length += len(data)
        if data.endswith(b"\n"):
            self.digest = self._ahead
            self.size += self._length
            self.lines += 1
            self._length = 0
        return data


def _numbers(status: bytearray) -> NDArray[np.uint8]:
    return np.frombuffer(bytes(status), dtype=np.uint8)
