"""Progress on stderr, for who sits before a terminal; nothing at all for anybody else."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

Step = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and how much there is; 0: not known."""


@contextmanager
def steps() -> Iterator[Step]:
    """A bar for each thing being done."""
    if not sys.stderr.isatty():
        yield lambda _what, _done, _total: None
        return
    with _bars() as bars:
        tasks: dict[str, TaskID] = {}

        def step(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total or None)
            bars.update(tasks[what], completed=done, total=total or None)

        yield step


def _bars() -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        console=Console(stderr=True),
        transient=True,
    )
