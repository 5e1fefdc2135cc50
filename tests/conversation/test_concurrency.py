"""Eight processes on one conversation: nothing is lost, no seq is shared, no reader misled."""

import json
import os
import sys
import time
import traceback

from lettaspace.conversation.space import Space
from lettaspace.errors import Conflict
from tests.conformance.kit import Talk, check, result, says, user, word

ROUNDS = 60
"""So many turns each writer makes, and all others go on until these are done."""

WRITERS = ("a", "b", "c")


class Worker:
    """One process. It tells what it acknowledged through its pipe."""

    def __init__(self, home, uri, name):
        self.space = Space.open(home)
        self.talk = Talk(self.space.conversation(uri))
        self.name, self.done = name, home.parent
        self.acks = []
        self.conflicts = self.rounds = 0

    def run(self):
        kind = self.name.partition("-")[0]
        is_over = False
        while not is_over:
            # Everybody else has a round when the last word is said.
            is_over = self.rounds + 1 == ROUNDS if kind == "writer" else self.are_done()
            getattr(self, kind)()
            self.rounds += 1
        if kind == "writer":
            (self.done / self.name).touch()
        self.space.close()
        return {"acks": self.acks, "conflicts": self.conflicts, "rounds": self.rounds}

    def are_done(self):
        return all((self.done / f"writer-{letter}").exists() for letter in WRITERS)

    def add(self, payload, **more):
        message = self.talk.handle.append(payload, **more)
        self.acks.append(word(message))

    def writer(self):
        """A turn: a question, a call, its result (which now and then never comes)."""
        number = f"{self.name}:{self.rounds}"
        self.add(user(f"{number}:0"), key=f"{number}:0")
        if self.rounds % 2:
            self.add(user(f"{number}:0"), key=f"{number}:0")
            self.acks.pop()
        self.add(says(f"{number}:1", number))
        if self.rounds % 3:
            self.add(result(f"{number}:2", number))

    def compacter(self):
        try:
            self.talk.compact(len(self.talk.window) // 2, f"{self.name}:{self.rounds}")
        except Conflict:
            self.conflicts += 1
        time.sleep(0.1)

    def settler(self):
        # Calls of the last moments may be answered still.
        pending = self.talk.handle.pending()
        for call in pending[:-4]:
            self.talk.handle.settle([call])
        time.sleep(0.05)

    def reader(self):
        window = self.talk.space.active(self.talk.handle.uri)
        check_window(window, complete=False)
        if self.rounds % 8 == 0:
            whole = [message.rkey for message in self.talk.handle.transcript()]
            assert len(set(whole)) == len(whole)


def check_window(window, *, complete):
    """Each message once, results after their calls, everybody's own in their own order."""
    rkeys = [message.rkey for message in window]
    assert len(set(rkeys)) == len(rkeys), "a message stands twice"
    seqs = [message.seq for message in window]
    assert len(set(seqs)) == len(seqs), "a seq is used twice"
    # Of a compaction in more than one batch the summary is there first.
    tail = [message.seq for message in window if message.compacted_message_ids is None]
    assert tail == sorted(tail), "seqs do not rise"
    assert seqs == sorted(seqs) or not complete
    assert not any(message.flags for message in window), "a result without its call"
    last = {}
    for message in window:
        writer, number, *step = word(message).split(":")
        if not writer.startswith("writer"):
            continue
        now = (int(number), int(step[0]))
        # A result of its own may come while others speak, but never before its call.
        assert now > last.get(writer, (-1, -1)), f"{writer} {now} after {last[writer]}"
        last[writer] = now


def in_a_process_of_its_own(home, uri, name):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            told = Worker(home, uri, name).run()
            with os.fdopen(writing, "w") as pipe:
                json.dump(told, pipe)
            status = 0
        except BaseException:
            traceback.print_exc(file=sys.stderr)
        finally:
            os._exit(status)
    os.close(writing)
    return name, child, os.fdopen(reading)


def test_eight_processes_at_once(tmp_path):
    home = tmp_path / "home"
    with Space.open(home) as space:
        uri = Talk.new(space).handle.uri
    names = [f"writer-{letter}" for letter in WRITERS]
    names += ["compacter-x", "compacter-y", "settler-z", "reader-1", "reader-2"]
    running = [in_a_process_of_its_own(home, uri, name) for name in names]
    told = {}
    for name, child, pipe in running:
        with pipe:
            text = pipe.read()
        _, status = os.waitpid(child, 0)
        assert status == 0, f"{name} failed"
        told[name] = json.loads(text)

    with Space.open(home) as space:
        talk = Talk(space.conversation(uri))
        whole = list(talk.handle.transcript())
        said = [word(message) for message in whole]
        acknowledged = [each for name in names for each in told[name]["acks"]]
        for each in acknowledged:
            assert said.count(each) == 1, each
        written = [each for each in said if each.startswith("writer")]
        assert sorted(written) == sorted(acknowledged)
        seqs = [each.value["seq"] for each in talk.records()]
        assert len(set(seqs)) == len(seqs)
        # Everybody's own questions are in their own order, through all compactions.
        for name in names[: len(WRITERS)]:
            own = [each for each in said if each.startswith(name) and each.endswith(":0")]
            assert own == sorted(own, key=lambda each: int(each.split(":")[1]))
        talk.handle.repair()
        check_window(space.active(uri), complete=True)
        check(talk)
        summaries = [each for each in whole if each.compacted_message_ids is not None]
        # An attempt that found nothing to summarise, or was overtaken, left no summary.
        attempts = sum(told[n]["rounds"] - told[n]["conflicts"] for n in names if "compacter" in n)
        assert 1 <= len(summaries) <= attempts
        listed = [each for summary in summaries for each in summary.compacted_message_ids]
        assert len(set(listed)) == len(listed)
