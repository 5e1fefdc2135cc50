"""A file that is there whole, or not at all."""

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from lettaspace.conversation.space import IDENTITY_FILE, STORE_FILE
from lettaspace.errors import InvalidInput, StoreUnavailable


@contextmanager
def replaced(path: Path, *, home: Path | None = None) -> Iterator[BinaryIO]:
    """A file to write, which takes the place of the one at `path` when the block ends well.

    It is written under another name in the same directory, readable by its owner alone, and
    renamed once it is on the disk. Whatever goes wrong, nothing is left of it, and what was
    at `path` stays. A link is followed.

    Raises InvalidInput for a path that is something else than a file, or where the space in
    the directory `home` keeps its own; StoreUnavailable where nothing can be written.
    """
    target = _target(path)
    own = (STORE_FILE, IDENTITY_FILE)
    if home is not None and target.parent == home.resolve() and target.name.startswith(own):
        raise InvalidInput(f"cannot write {path}: the space itself is kept there")
    with _unavailable(path):
        descriptor, name = tempfile.mkstemp(prefix=".lettaspace-", suffix=".tmp", dir=target.parent)
    try:
        # What goes wrong in the block with a file is taken to be this one.
        with _unavailable(path):
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(target)
    except BaseException:
        with suppress(FileNotFoundError):
            Path(name).unlink()
        raise
    _keep_name(target.parent)


def _target(path: Path) -> Path:
    """Where the file itself is. Raises InvalidInput unless it is a file or not there yet."""
    with _unavailable(path):
        try:
            target = path.resolve()
            mode = target.stat().st_mode
        except FileNotFoundError:
            return target
        except (RuntimeError, ValueError):  # a circle of links, a NUL
            raise InvalidInput(f"cannot write {path}: not a path") from None
    if stat.S_ISDIR(mode):
        raise InvalidInput(f"cannot write {path}: it is a directory")
    if not stat.S_ISREG(mode):
        raise InvalidInput(f"cannot write {path}: it is not a file")
    return target


@contextmanager
def _unavailable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or "no reason given"
        raise StoreUnavailable(f"cannot write {path}: {reason}") from None


def _keep_name(directory: Path) -> None:
    """Makes a rename last through a power cut, where the system can."""
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
