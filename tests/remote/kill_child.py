"""A process that syncs, and dies where it is told to: the other half of test_kill.py.

It reads jobs from its standard input, one JSON object a line: the home, the host's origin and
the author's key, a token, the time, the size of a batch, and before which SQL statement to be
killed, if at all. Every job runs in a process of its own, forked from this one. Two lines answer
it: the number of that process, at once; and in the end, what became of it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

from lettaspace.atproto.keys import VerifyingKey
from lettaspace.conversation.space import Space
from lettaspace.errors import Unreachable
from lettaspace.remote import pulling
from tests.conformance.kit import Talk
from tests.remote.world import Bearer, client, open_at, syncer

Job = dict[str, Any]

CLOCK_ID = 1000


def run(job: Job, out: int) -> None:
    """Syncs; tells of every statement met."""
    statements: list[str] = []

    def trace(statement: str) -> None:
        statements.append(statement.split(None, 1)[0].upper())
        if len(statements) == job["kill"]:
            os.kill(os.getpid(), signal.SIGKILL)

    @event.listens_for(Engine, "connect")
    def connected(connection: Any, _record: object) -> None:
        connection.set_trace_callback(trace)

    def now() -> float:
        return float(job["now"])

    for name, value in job["sizes"].items():
        setattr(pulling, name, value)
    kill, job["kill"] = job["kill"], None
    with (
        open_at(Path(job["home"]), now, CLOCK_ID) as space,
        client(job["origin"], Bearer(job["token"]), now) as to_host,
    ):
        statements.clear()
        job["kill"] = kill
        syncer(space, to_host, VerifyingKey.from_did(job["key"]), job["batch"]).sync()
        if kill is not None:
            os.kill(os.getpid(), signal.SIGKILL)  # after the last statement
        os.write(out, json.dumps(statements).encode())


def in_a_process_of_its_own(job: Job) -> Job:
    """What a job told before it ended, and whether it was killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            run(job, writing)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writing)
    tell({"process": child})
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    return {
        "killed": os.WIFSIGNALED(status),
        "failed": os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0,
        "statements": json.loads(told) if told else [],
    }


def tell(what: Job) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def warm_up() -> None:
    """Loads here, once, what every fork would load anew."""
    with (
        tempfile.TemporaryDirectory() as home,
        Space.open(home) as space,
        client("http://localhost:9", Bearer(), lambda: 0.0) as nowhere,
    ):
        Talk.new(space).users("abc")
        with suppress(Unreachable):
            nowhere.query("com.atproto.server.getSession")


def main() -> None:
    warm_up()
    for line in sys.stdin:
        tell(in_a_process_of_its_own(json.loads(line)))


if __name__ == "__main__":
    main()
