"""Writing into Letta Code's directory so that Letta can open all of it at every moment.

Rows are only ever appended, whole ones; a small file takes the place of the one before in one
step, and so does a conversation that was not there. What is being written lies in a directory
of ours beside Letta's own until then; the next run clears away what a killed one left.
"""

import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from lettaspace.conversation import jsontext
from lettaspace.errors import Conflict, InvalidInput, StoreUnavailable
from lettaspace.letta.directory import MESSAGES
from lettaspace.letta.repository import alone

STAGING = ".lettaspace"
"""In Letta's directory, while something is written."""

ASIDE = "torn-rows"
"""In our home: what was cut off of Letta's files, because it was half of a row."""

_PIECE = 1 << 20


class Placing:
    """Writes into one storage directory. Methods raise StoreUnavailable for what the system
    refuses, and Conflict where somebody else writes at the same time."""

    def __init__(self, directory: Path, home: Path) -> None:
        self.directory = directory
        self._home = home
        self._staging = directory / STAGING
        self._count = 0

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Waits until no other process of ours writes there, and keeps them out."""
        try:
            with alone(self.directory):
                self._clear()
                try:
                    yield
                finally:
                    self._clear()
        except OSError as error:
            raise _unavailable(self.directory, error) from error

    def file(self, path: Path, data: bytes) -> None:
        """Gives a file new content, in one step. It keeps its mode."""
        try:
            draft = self._draft()
            _write(draft, data, _mode(path))
            draft.replace(path)
            _flush(path.parent)
        except OSError as error:
            raise _unavailable(path, error) from error

    def conversation(
        self, path: Path, rows: Iterable[bytes], files: Callable[[], Mapping[str, bytes]]
    ) -> tuple[int, Mapping[str, bytes]]:
        """Makes a conversation's directory where there is none, in one step; returns the size of
        its rows, and its small files, which are asked for when the rows were written."""
        try:
            draft = self._draft()
            draft.mkdir(parents=True)
            with (draft / MESSAGES).open("xb", buffering=_PIECE) as file:
                file.writelines(rows)
                size = file.tell()
                file.flush()
                os.fsync(file.fileno())
            if not size:
                (draft / MESSAGES).unlink()
            small = files()
            for name, data in small.items():
                _write(draft / name, data)
            _flush(draft)
            path.parent.mkdir(exist_ok=True)
            if path.exists():
                raise Conflict(f"{path}: something came there meanwhile")
            draft.rename(path)
            _flush(path.parent)
        except OSError as error:
            raise _unavailable(path, error) from error
        return size, small

    def append(self, path: Path, rows: Iterable[bytes], size: int) -> int:
        """Appends rows to a file that has that size; returns the new one."""
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            descriptor = os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o600)
            try:
                if os.fstat(descriptor).st_size != size:
                    raise Conflict(f"{path}: something came there meanwhile")
                for piece in _pieces(rows):
                    _write_all(descriptor, piece)
                    size += len(piece)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise _unavailable(path, error) from error
        return size

    def mend(self, path: Path, key: str) -> Path | None:
        """Makes a file of rows end with a whole one: a row that only lacks its newline gets it,
        and half of one is cut off, once it is kept in our home; then, where."""
        try:
            start, tail = _tail(path)
            if not tail:
                return None
            size = start + len(tail)
            if _is_whole(tail):
                self.append(path, [b"\n"], size)
                return None
            aside = self._keep(f"{key} {start}", tail)
            with path.open("r+b") as file:
                if file.seek(0, os.SEEK_END) != size:
                    raise Conflict(f"{path}: something came there meanwhile")
                file.truncate(start)
                os.fsync(file.fileno())
        except OSError as error:
            raise _unavailable(path, error) from error
        return aside

    def _keep(self, name: str, data: bytes) -> Path:
        directory = self._home / ASIDE
        directory.mkdir(mode=0o700, exist_ok=True)
        path = directory / f"{sha256(name.encode() + b' ' + data).hexdigest()[:24]}.part"
        if not path.exists() or path.read_bytes() != data:
            path.unlink(missing_ok=True)
            _write(path, data)
            _flush(directory)
        return path

    def _draft(self) -> Path:
        self._staging.mkdir(mode=0o700, exist_ok=True)
        self._count += 1
        return self._staging / str(self._count)

    def _clear(self) -> None:
        if self._staging.is_symlink():
            raise Conflict(f"{self._staging} is no directory of ours")
        shutil.rmtree(self._staging, ignore_errors=True)


def replace_file(path: Path, data: bytes) -> None:
    """Gives a file outside of the storage directory new content, in one step. It keeps its mode,
    and is for its owner alone where it is new. Raises StoreUnavailable."""
    draft = path.with_name(f".{path.name}.lettaspace")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.unlink(missing_ok=True)
        _write(draft, data, _mode(path))
        draft.replace(path)
        _flush(path.parent)
    except OSError as error:
        raise _unavailable(path, error) from error


def _pieces(rows: Iterable[bytes]) -> Iterator[bytes]:
    """Whole rows, many at once where they are short: whoever reads meanwhile sees no half."""
    some: list[bytes] = []
    size = 0
    for row in rows:
        if some and size + len(row) > _PIECE:
            yield b"".join(some)
            some, size = [], 0
        some.append(row)
        size += len(row)
    if some:
        yield b"".join(some)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _write(path: Path, data: bytes, mode: int = 0o600) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        _write_all(descriptor, data)
        if mode != 0o600:
            path.chmod(mode)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _mode(path: Path) -> int:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return 0o600


def _flush(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _tail(path: Path) -> tuple[int, bytes]:
    """What stands behind the last newline, and where it begins."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return 0, b""
    with file:
        end = file.seek(0, os.SEEK_END)
        start, tail = end, b""
        while start:
            start = max(start - _PIECE, 0)
            file.seek(start)
            tail = file.read(min(_PIECE, end - start - len(tail))) + tail
            newline = tail.rfind(b"\n")
            if newline >= 0:
                return start + newline + 1, tail[newline + 1 :]
    return 0, tail


def _is_whole(row: bytes) -> bool:
    try:
        return type(jsontext.loads(row)) is dict
    except InvalidInput:
        return False


def _unavailable(path: Path, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(f"cannot write {path}: {error.strerror or type(error).__name__}")
