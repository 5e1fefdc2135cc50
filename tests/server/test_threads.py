"""The threads that work beside an event loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from lettaspace.server.threads import Threads
from tests.waiting import SECONDS


@pytest.fixture
def threads():
    threads = Threads(2, "t")
    yield threads
    threads.close()


def test_results_and_errors(threads):
    async def run():
        assert await threads.run(lambda: 5) == 5
        with pytest.raises(KeyError):
            await threads.run(lambda: {}["a"])
        assert await asyncio.gather(*(threads.run(lambda i=i: i) for i in range(50))) == list(
            range(50)
        )

    asyncio.run(run())


def test_work_is_done_in_as_many_threads_as_there_are(threads):
    both = threading.Barrier(2, timeout=SECONDS)

    async def run():
        await asyncio.gather(threads.run(both.wait), threads.run(both.wait))

    asyncio.run(run())


def test_what_nobody_waits_for_is_done_all_the_same(threads):
    go, done = threading.Event(), threading.Event()

    async def run():
        future = threads.run(lambda: (go.wait(SECONDS), done.set()))
        await asyncio.sleep(0)
        future.cancel()
        with pytest.raises(asyncio.CancelledError):
            await future

    asyncio.run(run())  # the loop is closed before the work ends
    go.set()
    assert done.wait(SECONDS)
    asyncio.run(asyncio.wait_for(_ask(threads), SECONDS))  # and the thread goes on


async def _ask(threads):
    assert await threads.run(lambda: 1) == 1


def test_closing_ends_the_threads_after_what_is_queued():
    threads = Threads(1, "closing")
    done = []

    async def run():
        for i in range(10):
            threads.run(lambda i=i: done.append(i))
        threads.close()

    asyncio.run(run())
    assert done == list(range(10))
    assert not [t for t in threading.enumerate() if t.name.startswith("closing")]
