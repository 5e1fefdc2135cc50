"""What the benchmarks of one run share: sizes, a directory to work in, what takes long to make."""

import shutil
import sys
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path

from bench.child import Outcome, in_child
from bench.directory import Written, write_mixture, write_one
from bench.letta import Letta, LettaStore, installed
from lettaspace.conversation.space import Space
from lettaspace.letta.importer import import_directory

ACTIVE = 100
_QUICK = 20


class Context:
    """One run. What it makes is made once, when it is first asked for."""

    def __init__(self, work: Path, *, quick: bool) -> None:
        self.work = work
        self.quick = quick
        self._large_import: Outcome | None = None
        self._closing = ExitStack()

    def size(self, full: int) -> int:
        return full // _QUICK if self.quick else full

    def rounds(self, full: int) -> int:
        return 1 + full // _QUICK if self.quick else full

    @cached_property
    def large(self) -> Written:
        """The directory that the imports read."""
        return write_mixture(self.work / "large", self.size(100_000))

    @cached_property
    def small(self) -> Written:
        """The same, a tenth of it."""
        return write_mixture(self.work / "small", self.size(10_000))

    @property
    def large_import(self) -> Outcome:
        """The newest import of `large`; its space is at `large_home`."""
        return self._large_import or self.import_large()

    @property
    def large_home(self) -> Path:
        return self.work / "large-home"

    def import_large(self) -> Outcome:
        """Imports `large` into an empty space, in a process of its own."""
        shutil.rmtree(self.large_home, ignore_errors=True)
        self._large_import = in_child("import", self.large.path, self.large_home)
        return self._large_import

    @cached_property
    def long(self) -> tuple[Written, Path]:
        """A directory with one long conversation, and a space with the same."""
        return self._single("long", self.size(100_000))

    @cached_property
    def short(self) -> tuple[Written, Path]:
        """The same with a short one; its window is equal to the long one's."""
        return self._single("short", max(self.size(1_000), 2 * ACTIVE))

    @cached_property
    def many(self) -> tuple[Written, Path]:
        """A directory with very many messages in all, and a space with the same."""
        return self._stored("many", self.many_messages)

    @cached_property
    def few(self) -> tuple[Written, Path]:
        """The same with few; the window of its first conversation is equal to the other's."""
        return self._stored("few", 1_000)

    @property
    def many_messages(self) -> int:
        return 4_000 if self.quick else 1_000_000

    def letta(self, directory: Path) -> LettaStore | None:
        """Letta Code's own store in a directory; None where it is not installed."""
        return LettaStore(self._letta, directory) if self._letta else None

    @cached_property
    def _letta(self) -> Letta | None:
        if not installed():
            print("Letta Code is not installed: its side is left out", file=sys.stderr)
            return None
        letta = Letta()
        self._closing.callback(letta.close)
        return letta

    def __enter__(self) -> "Context":
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def _stored(self, name: str, messages: int) -> tuple[Written, Path]:
        written = write_mixture(self.work / name, messages, active=ACTIVE)
        home = self.work / f"{name}-home"
        in_child("import", written.path, home)
        return written, home

    def _single(self, name: str, messages: int) -> tuple[Written, Path]:
        written = write_one(self.work / name, messages, active=ACTIVE)
        home = self.work / f"{name}-home"
        with Space.open(home) as space:
            import_directory(space, written.path)
        return written, home
