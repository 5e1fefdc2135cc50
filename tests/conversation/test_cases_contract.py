"""Cases that people really met, on the writing half of the contract, by their ids."""

import base64
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lettaspace.conversation.records import CONVERSATION, CONVERSATION_STATE, MESSAGE
from lettaspace.conversation.space import STORE_FILE, Space
from lettaspace.errors import Conflict, InvalidInput, LettaspaceError, NotFound
from lettaspace.letta.importer import import_directory
from lettaspace.space import database
from lettaspace.space.database import Database
from lettaspace.space.writes import Create
from tests.conformance.kit import Talk, check, fails, result, says, user, word, words
from tests.letta import build, helpers
from tests.waiting import SECONDS, until

ROOT = Path(__file__).parents[2]


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.fixture
def space(home):
    with Space.open(home) as opened:
        yield opened


@pytest.fixture
def talk(space):
    return Talk.new(space)


def b1(talk, count=4):
    """The first messages of B1."""
    payloads = [
        user("List the jars."),
        says("Looking.", "call_A1"),
        result("plum\nfig", "call_A1"),
        says("Two jars: plum and fig."),
    ]
    return talk.add(*payloads[:count])


def python(code, *arguments):
    """Another process that runs `code` from the project's directory."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    out, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, errors
    return out


def snapshot(talk):
    return {each.rkey: each.cid for each in talk.records()}


def test_o04_a_call_without_a_result_after_a_crash(home, space, talk):
    b1(talk, 2)
    (still,) = talk.add(user("Still there?"))
    call = talk.of("Looking.")
    for _ in range(3):
        with Space.open(home) as again:
            talk.seen_by(again).handle.settle()
            seen = talk.seen_by(again)
            assert seen.window == ["List the jars.", "Looking.", "!call_A1", "Still there?"]
    (settled,) = [each for each in talk.handle.window().messages if each.role == "toolResult"]
    assert settled.payload()["isError"] is True
    text = settled.payload()["content"][0]["text"].lower()
    assert "user" not in text
    assert "stop" not in text
    now = talk.of("Looking.")
    assert (now.rkey, now.seq, now.payload()) == (call.rkey, 2, call.payload())
    assert now.updated_at is not None
    assert talk.handle.message(still.rkey).payload() == still.payload()
    assert talk.transcript == talk.window
    check(talk)


def test_o05_a_result_without_a_call(space, talk):
    talk.add(user("hi"), result("stray", "call_ZZ"), says("ok"))
    before = snapshot(talk)
    assert talk.window == ["hi", "ok"]
    assert {word(each): each.flags for each in talk.handle.transcript()} == {
        "hi": (),
        "stray": ("orphan-result",),
        "ok": (),
    }
    assert [problem.kind for problem in space.verify()] == ["orphan-result"]
    assert talk.handle.settle() == []
    assert talk.handle.repair() == 0
    assert snapshot(talk) == before
    # A compaction takes it along; nothing is deleted.
    talk.compact(3)
    assert talk.window == ["S"]
    assert talk.transcript == ["hi", "stray", "ok", "S"]


def test_o06_three_parallel_calls_two_results(talk):
    talk.add(user("go"), says("three", "c1", "c2", "c3"))
    kept = talk.add(result("r1", "c1"), result("r3", "c3"))
    talk.add(user("next"))
    assert words(talk.handle.settle()) == ["!c2"]
    assert talk.window[:2] == ["go", "three"]
    assert sorted(talk.window[2:5]) == ["!c2", "r1", "r3"]
    assert talk.window[5:] == ["next"]
    for each in kept:
        assert talk.handle.message(each.rkey) == each
    check(talk)


def test_o07_settling_uses_the_call_id(talk):
    talk.add(user("go"), says("calls", "toolu_9", id="ui-msg-7"))
    before = snapshot(talk)
    with pytest.raises(NotFound, match="ui-msg-7"):
        talk.handle.settle(["ui-msg-7"])
    assert snapshot(talk) == before
    assert talk.handle.pending() == ["toolu_9"]
    assert len(talk.handle.settle(["toolu_9"])) == 1
    assert talk.handle.pending() == []
    before = snapshot(talk)
    assert talk.handle.settle(["toolu_9"]) == []
    assert snapshot(talk) == before


def two_compactions(talk):
    """The state after O08."""
    talk.users("abcdef")
    talk.compact(2, "A")
    talk.users("gh")
    talk.compact(5, "B")


def test_o08_kept_messages_at_the_second_compaction(talk):
    rkeys = {word(each): each.rkey for each in talk.users("abcdef")}
    first = talk.compact(2, "A")
    rkeys["A"] = first.summary.rkey
    assert first.summary.seq == 7
    assert [(word(m), m.rkey, m.seq) for m in talk.handle.window().messages[1:]] == [
        (letter, rkeys[letter], seq) for seq, letter in enumerate("cdef", 8)
    ]
    assert all(m.updated_at for m in talk.handle.window().messages[1:])
    assert (talk.of("a").seq, talk.of("b").seq) == (1, 2)
    assert talk.window == ["A", *"cdef"]
    talk.users("gh")
    second = talk.compact(5, "B")
    assert second.summary.compacted_message_ids == [rkeys[each] for each in "Acdef"]
    assert talk.window == ["B", "g", "h"]

    def follow(rkey):
        message = talk.handle.message(rkey)
        inner = message.compacted_message_ids
        if inner is None:
            return [word(message)]
        return [each for covered in inner for each in follow(covered)]

    assert follow(second.summary.rkey) == list("abcdef")
    assert talk.transcript == [*"abAcdefBgh"]
    check(talk)


def test_o09_the_kept_tail_is_not_stored_again(home, space, talk):
    talk.users("abcdefgh")
    talk.add(says("the kiln is blue"), user("j"))
    for summary in "ST":
        talk.compact(len(talk.window) - 4, summary)
        talk.users("kl")
    with Space.open(home) as other_space:
        barrier = threading.Barrier(2)
        outcomes = []

        def third(mine, summary):
            def summarize(_covered):
                barrier.wait(30)
                return summary

            try:
                mine.handle.compact(summarize, lambda window: len(window) - 4)
                outcomes.append(summary)
            except Conflict:
                outcomes.append("refused")

        threads = [
            threading.Thread(target=third, args=each)
            for each in ((talk, "U"), (talk.seen_by(other_space), "V"))
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join(60)
    assert outcomes.count("refused") == 1
    records = talk.records()
    assert len(records) == 10 + 4 + 3
    assert space.search("kiln is blue").total == 1
    lists = [each.value.get("compactedMessageIds", []) for each in records]
    listed = [rkey for each in lists for rkey in each]
    assert len(set(listed)) == len(listed)
    active = {e.rkey for e in records if e.value.get("status") != "compacted"}
    assert not active & set(listed)
    check(talk)


def test_o10_the_summariser_fails(talk):
    b1(talk)
    talk.add(user("long pasted report"))
    before = snapshot(talk)
    with pytest.raises(OSError, match="429"):
        talk.handle.compact(fails(OSError("HTTP 429")), lambda _window: 4)
    assert snapshot(talk) == before
    assert len(talk.window) == 5

    # Written while the summary is being made: there in any case, and never summarised unread.
    def summarize(covered):
        assert "second report" not in words(covered)
        talk.add(user("second report"))
        return "S"

    talk.handle.compact(summarize)
    assert talk.window == ["S", "second report"]
    check(talk)


@pytest.mark.parametrize(("keep", "boundary"), [(2, 1), (3, 1)])
def test_o11_a_boundary_inside_a_parallel_batch(talk, keep, boundary):
    talk.add(user("u"), says("A", "c1", "c2"), result("r1", "c1"), result("r2", "c2"), says("end"))
    done = talk.handle.compact(lambda _covered: "S", lambda window: len(window) - keep)
    assert (done.asked, done.boundary) == (5 - keep, boundary)
    assert talk.window == ["S", "A", "r1", "r2", "end"]
    check(talk)


def test_o12_readers_do_not_replay_what_was_compacted(space, talk):
    talk.users("abcdef")
    done = talk.compact(6, "sum")
    talk.users("gh")
    assert talk.window == ["sum", "g", "h"]
    assert talk.plain() == [each.rkey for each in talk.handle.window().messages]
    whole = list(talk.handle.transcript())
    assert words(whole) == [*"abcdef", "sum", "g", "h"]
    points = [each for each in whole if each.compacted_message_ids is not None]
    assert [each.rkey for each in points] == [done.summary.rkey]
    # From the summary to the six, and back.
    six = [talk.handle.message(rkey) for rkey in points[0].compacted_message_ids]
    assert words(six) == list("abcdef")
    assert {each.covered_by for each in six} == {points[0].rkey}
    for letter in "afg":
        assert [hit.message.rkey for hit in space.search(letter).hits]


class TestO15:
    """The same image many times."""

    @pytest.fixture
    def images(self, talk):
        small = base64.b64encode(os.urandom(300_000)).decode()
        large = base64.b64encode(os.urandom(9_000_000)).decode()
        contents = [small, small, small, large]
        for number, data in enumerate(contents):
            talk.add(user(f"u{number}"), says(f"A{number}", f"c{number}"))
            image = {"type": "image", "data": data, "mimeType": "image/png"}
            talk.handle.append(
                {
                    "role": "toolResult",
                    "toolCallId": f"c{number}",
                    "content": [{"type": "text", "text": f"r{number}"}, image],
                }
            )
        return contents

    @pytest.mark.usefixtures("images")
    def test_o15_identical_bytes_are_stored_once(self, space):
        with space.database.read() as connection:
            stored = connection.exec_driver_sql("SELECT sum(length(data)) FROM blobs").scalar()
        assert 9_300_000 <= stored < 9_310_000

    def test_o15_compactions_cost_little_and_change_no_payload(self, home, talk, images):
        size = stored_bytes(home)
        for number in range(2):
            talk.compact(3, f"S{number}")
            grown, size = stored_bytes(home) - size, stored_bytes(home)
            assert 0 <= grown < 5_000, grown
        for number, data in enumerate(images):
            payload = talk.of(f"r{number}").payload()
            assert payload["content"][1]["data"] == data
        check(talk)


def stored_bytes(home):
    """What the rows of a store take, indexes left out. Whole pages would measure how full the
    last one of each table happened to be."""
    total = 0
    with Database.open(home / STORE_FILE) as database, database.read() as connection:
        tables = connection.exec_driver_sql(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'search_tri%'"
        ).scalars()
        for table in tables.all():
            rows = connection.exec_driver_sql(f"PRAGMA table_info({table})").all()
            lengths = " + ".join(f"coalesce(length({row[1]}), 0)" for row in rows)
            query = f"SELECT coalesce(sum({lengths}), 0) FROM {table}"
            total += connection.exec_driver_sql(query).scalar()
    return total


_APPENDS = """
import sys
from pathlib import Path
from lettaspace.conversation.space import Space
from tests.conformance.kit import user
from tests.waiting import SECONDS, until
home, uri, side, go_on = sys.argv[1:]
with Space.open(home) as space:
    talk = space.conversation(uri)
    for number in range(1, 51):
        if number == 26:
            until(Path(go_on).exists)
        talk.append(user(f"{side}-{number}"))
"""


def test_o24_two_writers_one_conversation(home, space, talk, tmp_path):
    go_on = tmp_path / "go"
    sides = [python(_APPENDS, home, talk.handle.uri, side, go_on) for side in "LR"]
    seen = {}

    def look():
        for message in talk.handle.window().messages:
            assert seen.setdefault(message.seq, message.cid) == message.cid
        return len(seen)

    # Half of it is looked at while they write, whoever is faster.
    until(lambda: look() == 50)
    go_on.touch()
    until(lambda: look() and all(side.poll() is not None for side in sides))
    for side in sides:
        finish(side)
    messages = talk.handle.window().messages
    assert [each.seq for each in messages] == list(range(1, 101))
    assert all(seen.get(each.seq, each.cid) == each.cid for each in messages)
    for side in "LR":
        own = [each for each in words(messages) if each.startswith(side)]
        assert own == [f"{side}-{number}" for number in range(1, 51)]
    check(talk)


def test_o25_compare_and_swap_on_the_record(space, talk):
    loaded = b1(talk)[3]
    # (a) another record changes.
    talk.handle.rewrite(talk.of("List the jars.").rkey, user("List all jars."))
    saved = talk.handle.rewrite(loaded.rkey, says("Two."), expected=loaded.cid)
    # (b) this record changes.
    with pytest.raises(Conflict) as caught:
        talk.handle.rewrite(loaded.rkey, says("Three."), expected=loaded.cid)
    assert str(saved.cid) in str(caught.value)
    assert str(loaded.cid) in str(caught.value)
    assert talk.handle.message(loaded.rkey) == saved
    # Reloaded, it goes.
    again = talk.handle.message(loaded.rkey)
    talk.handle.rewrite(again.rkey, says("Three."), expected=again.cid)
    assert talk.window[-1] == "Three."


class TestO26:
    def test_o26_a_failed_batch_keeps_nothing_and_no_lock(self, home, space, talk, monkeypatch):
        good = {
            "conversation": talk.handle.uri,
            "agent": talk.handle.agent,
            "role": "user",
            "seq": 1,
            "message": {"format": "acme.msg", "version": 1, "data": {}},
            "createdAt": space.now(),
        }
        bad = {**good, "seq": 2, "message": {**good["message"], "data": {"x": 0.5}}}
        before = talk.ops()
        with pytest.raises(LettaspaceError):
            space.repo.apply_writes([Create(MESSAGE, None, good), Create(MESSAGE, None, bad)])
        assert (talk.records(), talk.ops()) == ([], before)
        monkeypatch.setattr(database, "LOCK_SECONDS", 10.0)  # a lock that was kept is an error
        with Space.open(home) as other:
            assert talk.seen_by(other).users("a")[0].seq == 1
        with pytest.raises(InvalidInput):
            talk.handle.append({"role": "user", "content": object()})
        assert talk.window == ["a"]

    def test_o26_first_opens_at_once(self, tmp_path):
        home = tmp_path / "fresh"
        code = (
            "import sys; from lettaspace.conversation.space import Space\n"
            "with Space.open(sys.argv[1]) as space:\n"
            "    agent = space.create_agent('Otter')\n"
            "    space.create_conversation(agent).append({'role': 'user', 'content': []})\n"
            "    print(space.identity.did)"
        )
        processes = [python(code, home) for _ in range(8)]
        assert len({finish(each) for each in processes}) == 1
        with Space.open(home) as space:
            assert len(space.conversations()) == 8
            assert list(space.verify()) == []

    def test_o26_a_backup_while_a_writer_is_open(self, home, talk, tmp_path):
        for number in range(20):
            talk.add(user(f"m{number}"))
        copy = tmp_path / "copy"
        with Database.open(home / STORE_FILE) as database:
            database.backup(copy / STORE_FILE)
        (copy / "identity.json").write_bytes((home / "identity.json").read_bytes())
        (copy / "identity.json").chmod(0o600)
        with Space.open(copy) as restored:
            assert talk.seen_by(restored).window == [f"m{number}" for number in range(20)]
            check(talk.seen_by(restored))


_SWITCHES = """
import sys
from lettaspace.conversation.space import Space
from tests.conformance.kit import user
home, *names = sys.argv[1:]
with Space.open(home) as space:
    for name in names:
        space.conversation(name).append(user(f"for {name}"))
"""


def test_o27_the_conversation_named_is_the_one_written_to(home, space):
    talks = {number: Talk.new(space, title=f"{number}") for number in ("21", "30", "92")}
    remembered = space.conversation(talks["92"].handle.rkey)
    assert remembered.window().messages == []
    finish(python(_SWITCHES, home, talks["21"].handle.rkey, talks["30"].handle.uri))
    assert {number: len(talk.window) for number, talk in talks.items()} == {
        "21": 1,
        "30": 1,
        "92": 0,
    }


def test_o35_a_fork_of_a_compacted_conversation(space, talk):
    two_compactions(talk)
    before = snapshot(talk)
    window = talk.handle.window().messages
    fork = Talk(talk.handle.fork())
    assert fork.window == words(window) == ["B", "g", "h"]
    assert [e.payload() for e in fork.handle.window().messages] == [e.payload() for e in window]
    for message in fork.handle.transcript():
        for rkey in message.compacted_message_ids or ():
            fork.handle.message(rkey)
    assert snapshot(talk) == before
    check(fork)


def test_o36_the_fork_point_is_exact(talk):
    times = [f"2024-03-05T10:00:0{number}.000Z" for number in range(1, 9)]
    payloads = [
        user("1"),
        says("2"),
        says("3", "slow"),
        user("4"),
        user("5"),
        says("6"),
        result("7", "slow"),
        says("8"),
    ]
    for payload, at in zip(payloads, times, strict=True):
        talk.handle.append(payload, created_at=at)
    fork = Talk(talk.handle.fork(talk.of("4").rkey))
    assert fork.window == ["1", "2", "3", "!slow", "4"]
    own = [each for each in fork.handle.window().messages if word(each) != "!slow"]
    assert [each.created_at for each in own] == times[:4]
    seqs = fork.seqs
    assert seqs == sorted(set(seqs))
    assert fork.handle.pending() == []
    assert talk.window == list("12345678")
    check(fork)


def test_o37_a_fork_stays_its_own(home, space, talk):
    b1(talk)
    fork = Talk(talk.handle.fork(talk.of("Looking.").rkey))
    talk.add(user("#5"))
    expected = ["List the jars.", "Looking.", "!call_A1"]
    assert fork.window == expected
    with Space.open(home) as again:
        assert fork.seen_by(again).window == fork.seen_by(again).transcript == expected
        info = again.conversation_info(fork.handle.uri)
        assert info.rkey == fork.handle.rkey
        parent = info.forked_from
        assert parent["conversation"]["uri"] == talk.handle.uri
        assert parent["message"]["uri"] == talk.of("Looking.").uri
        for key in (CONVERSATION, CONVERSATION_STATE):
            assert again.repo.get(key, fork.handle.rkey) is not None
        # "plum" was said after the fork left.
        hits = again.search("plum").hits
        assert {hit.conversation for hit in hits} == {talk.handle.uri}
        assert len(hits) == 2


class TestO64:
    """The write landed, the answer did not."""

    _LOST = """
import os, sys
from lettaspace.conversation.space import Space
from tests.conformance.kit import user
home, uri, what = sys.argv[1:]
talk = Space.open(home).conversation(uri)
if what == "append":
    talk.append(user("go"), key="k")
else:
    talk.compact(lambda covered: "S", lambda window: 2, key="k")
os._exit(0)
"""

    def test_o64_an_append_is_repeated(self, home, talk):
        finish(python(self._LOST, home, talk.handle.uri, "append"))
        again = talk.handle.append(user("go"), key="k")
        assert again.seq == 1
        assert talk.window == ["go"]
        with pytest.raises(Conflict):
            talk.handle.append(user("stop"), key="k")
        assert talk.window == ["go"]

    def test_o64_a_compaction_is_repeated(self, home, talk):
        talk.users("abcd")
        finish(python(self._LOST, home, talk.handle.uri, "compact"))
        before = talk.ops()
        again = talk.handle.compact(fails(AssertionError()), key="k")
        assert word(again.summary) == "S"
        assert talk.ops() == before
        assert talk.window == ["S", "c", "d"]

    def test_o64_an_import_goes_on_where_it_was(self, space, tmp_path, monkeypatch):
        store = build.Store(tmp_path / "letta")
        store.agent()
        messages = [build.message(number, "user", f"m{number}") for number in range(1, 31)]
        store.conversation(build.rows(messages))
        monkeypatch.setattr("lettaspace.letta.writer.MAX_WRITES", 5)
        apply_writes, batches = space.repo.apply_writes, []

        def drops_the_third_answer(*arguments, **more):
            written = apply_writes(*arguments, **more)
            batches.append(len(written))
            if len(batches) == 3:
                raise ConnectionError
            return written

        with monkeypatch.context() as patch:
            patch.setattr(space.repo, "apply_writes", drops_the_third_answer)
            (lost,) = import_directory(space, store.path).conversations
        assert lost.outcome == "failed"
        (info,) = space.conversations()
        half = len(helpers.transcript(space, info.uri))
        assert 0 < half < 30
        landed = helpers.records(space)
        ops = len(list(space.repo.ops()))
        report = import_directory(space, store.path)
        assert report.conversations[0].messages.new == 30 - half
        assert helpers.texts(helpers.window(space)) == [f"m{number}" for number in range(1, 31)]
        seqs = [message.seq for message in helpers.window(space)]
        assert seqs == list(range(1, 31))
        # What had landed was not written again.
        assert landed.items() <= helpers.records(space).items()
        assert len(list(space.repo.ops())) == ops + 30 - half
        assert import_directory(space, store.path).conversations[0].messages.new == 0
        assert list(space.verify()) == []


def test_json_of_what_is_read_is_json(talk):
    """What a harness gets back is plain data, whatever was settled or summarised."""
    talk.add(user("u"), says("A", "c1"))
    talk.handle.settle()
    talk.compact(1)
    for message in talk.handle.transcript():
        assert json.loads(json.dumps(message.payload())) == message.payload()
