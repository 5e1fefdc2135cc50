"""Bodies in blocks."""

from __future__ import annotations

import threading

from lettaspace.server.streams import BLOCK, Source
from tests.waiting import SECONDS


def test_blocks():
    source = Source(iter([b"a", b"", b"b" * BLOCK, b"c"]))
    assert source.pull() == b"a" + b"b" * BLOCK
    assert source.pull() == b"c"
    assert source.pull() == b""
    source.close()


def test_nothing_comes_after_closing():
    ended = []

    def pieces():
        try:
            while True:
                yield b"x" * BLOCK
        finally:
            ended.append(True)

    source = Source(pieces())
    assert source.pull()
    source.close()
    assert ended == [True]
    assert source.pull() == b""
    source.close()
    assert ended == [True]


def test_closing_waits_for_the_block_that_is_being_made():
    begun, go = threading.Event(), threading.Event()
    ended = []

    def pieces():
        try:
            begun.set()
            go.wait(SECONDS)
            yield b"x" * BLOCK
            yield b"y"
        finally:
            ended.append(True)

    source = Source(pieces())
    pulled = []
    puller = threading.Thread(target=lambda: pulled.append(source.pull()))
    puller.start()
    assert begun.wait(SECONDS)
    closer = threading.Thread(target=source.close)
    closer.start()
    go.set()
    puller.join(SECONDS)
    closer.join(SECONDS)
    assert ended == [True]
    assert len(pulled[0]) == BLOCK
