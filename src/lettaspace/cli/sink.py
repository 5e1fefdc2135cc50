"""Where an export goes: a file, which is then there whole or not at all, or standard output."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lettaspace.cli.app import App


@contextmanager
def sink(app: App, target: Path | None) -> Iterator[Callable[[bytes], object]]:
    """Takes the bytes of an export, UTF-8 whatever the locale; None: standard output."""
    if target is not None:
        from lettaspace.export.files import replaced

        with replaced(target, home=app.home) as file:
            yield file.write
        return
    sys.stdout.flush()
    stream = sys.stdout.buffer
    app.out.started = True
    yield stream.write
    stream.flush()
