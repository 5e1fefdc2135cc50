"""A process that dies where it is told to: the other half of test_crash.py.

It reads jobs from its standard input, one JSON object a line: which scenario to run, in which
space, and before which SQL statement to be killed. Every job runs in a process of its own,
forked from this one. SQLite tells of each statement just before it runs it, COMMIT included,
so a kill before a COMMIT is the end of a transaction that is complete but for it, and a kill
before the statement after it is the end of a process that has just committed.
"""

import itertools
import json
import os
import signal
import sys
import tempfile
import traceback
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Engine, event

from lettaspace.conversation import compaction, forking, settling
from lettaspace.conversation.prompt import compile_prompt
from lettaspace.conversation.space import Space
from lettaspace.letta import writer
from lettaspace.letta.importer import import_directory
from tests.conformance.kit import result, says, user

APPENDED = ["one", "two", "A", "y" * 200_000, "three", "real", "B"]
COMPACTED = 8
FORKED_AT = -3
NOON = datetime(2024, 3, 5, 12, tzinfo=UTC)


def append(talk, acknowledge, _space, _source):
    for text in APPENDED:
        payload = user(text)
        if text == "A":
            payload = says(text, "a1", "a2")
        elif text == "B":
            payload = says(text)
        elif text == "real":
            payload = result(text, "late")
        talk.append(payload, key=f"key {text[:20]}")
        acknowledge(text)


def rewrite(talk, acknowledge, _space, _source):
    for message in talk.window().messages:
        if message.role == "user":
            text = message.payload()["content"][0]["text"]
            if not text.endswith("!"):
                talk.rewrite(message.rkey, user(f"{text}!"))
                acknowledge(text)


def compact(talk, acknowledge, _space, _source):
    talk.compact(lambda _covered: "SUM", lambda _window: COMPACTED, key="compact")
    acknowledge("compacted")


def compact_in_many(talk, acknowledge, space, source):
    compaction.MAX_WRITES = 3
    compact(talk, acknowledge, space, source)


def compact_in_a_chain(talk, acknowledge, space, source):
    compaction.MAX_COVERED = 3
    compact_in_many(talk, acknowledge, space, source)


def settle(talk, acknowledge, _space, _source):
    talk.settle()
    acknowledge("settled")


def settle_in_many(talk, acknowledge, space, source):
    settling.MAX_WRITES = 3
    settle(talk, acknowledge, space, source)


def fork(talk, acknowledge, _space, _source):
    forking.MAX_WRITES = 4
    window = talk.window().messages
    acknowledge(talk.fork(window[FORKED_AT].rkey, title="Fork").rkey)


def recompile(talk, acknowledge, space, _source):
    for template in ("You are one.", "You are two.", "You are three."):
        compile_prompt(space, talk.uri, memory=None, template=template, now=NOON)
        acknowledge(template)


def bring_in(_talk, acknowledge, space, source):
    writer.MAX_WRITES = 3
    import_directory(space, source, progress=lambda each: acknowledge(each.key))


def work(talk, acknowledge, _space, _source):
    """Goes on until it is ended."""
    compaction.MAX_WRITES = settling.MAX_WRITES = 5
    for turn in itertools.count():
        for payload in (user(f"u{turn}"), says(f"A{turn}", f"c{turn}")):
            acknowledge(talk.append(payload).payload()["content"][0]["text"])
        if turn % 3:
            talk.append(result(f"r{turn}", f"c{turn}"))
            acknowledge(f"r{turn}")
        if turn % 5 == 4:
            talk.compact(lambda _covered: "SUM", lambda window: len(window) // 2)
        if turn % 4 == 3:
            talk.settle()


SCENARIOS = {
    each.__name__: each
    for each in (
        append,
        rewrite,
        compact,
        compact_in_many,
        compact_in_a_chain,
        settle,
        settle_in_many,
        fork,
        recompile,
        bring_in,
        work,
    )
}


def conversation(space):
    (info,) = [each for each in space.conversations() if each.title == "Jars of crash"]
    return space.conversation(info.uri)


def run(job, out):
    """Runs a scenario; tells of what was acknowledged, and of every statement met."""
    count = 0
    statements = []

    def trace(statement):
        nonlocal count
        count += 1
        if job["kill"] is None:
            statements.append(statement.split(None, 1)[0].upper())
        elif count == job["kill"]:
            os.kill(os.getpid(), signal.SIGKILL)

    def tell(**what):
        os.write(out, json.dumps(what).encode() + b"\n")

    @event.listens_for(Engine, "connect")
    def connected(connection, _record):
        connection.set_trace_callback(trace)

    with Space.open(job["home"]) as space:
        talk = conversation(space)
        count = 0
        statements.clear()
        if "seconds" in job:
            # Ends the process as a kill does, wherever it is, inside of a COMMIT too.
            signal.setitimer(signal.ITIMER_REAL, job["seconds"])
        SCENARIOS[job["scenario"]](talk, lambda text: tell(ack=text), space, job.get("source"))
        if job["kill"] is not None:
            # After the last statement.
            os.kill(os.getpid(), signal.SIGKILL)
        tell(statements=statements)


def in_a_process_of_its_own(job):
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
    with os.fdopen(reading) as pipe:
        told = [json.loads(line) for line in pipe]
    _, status = os.waitpid(child, 0)
    return {
        "killed": os.WIFSIGNALED(status),
        "failed": os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0,
        "acks": [each["ack"] for each in told if "ack" in each],
        "statements": next((each["statements"] for each in told if "statements" in each), []),
    }


def warm_up():
    """Loads here, once, what every fork would load anew."""
    with tempfile.TemporaryDirectory() as home, Space.open(home) as space:
        talk = space.create_conversation(space.create_agent("Otter"))
        append(talk, str, space, None)
        compact(talk, str, space, None)


def main():
    warm_up()
    for line in sys.stdin:
        job = json.loads(line)
        job["home"] = Path(job["home"])
        sys.stdout.write(json.dumps(in_a_process_of_its_own(job)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
