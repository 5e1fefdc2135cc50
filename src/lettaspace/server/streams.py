"""Bodies that are made while they are sent."""

import threading
from collections.abc import Iterator

BLOCK = 64 * 1024
"""Bytes that are gathered before they are sent; a single piece may be larger."""


class Source:
    """An iterator of bytes, read in blocks and closed exactly once, from whatever thread.

    Closing waits for a block that is being made, so that what the iterator holds, a database
    connection above all, is given back by its own `finally`.
    """

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._lock = threading.Lock()

    def pull(self) -> bytes:
        """The next block, empty at the end."""
        pieces: list[bytes] = []
        size = 0
        with self._lock:
            for piece in self._pieces:
                pieces.append(piece)
                size += len(piece)
                if size >= BLOCK:
                    break
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        close = getattr(self._pieces, "close", None)
        with self._lock:
            if close is not None:
                close()
            self._pieces = iter(())
