"""An archive brought into a space: the same again, one's own, or merged; never a loss."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lettaspace import Space
from lettaspace.atproto import tid
from lettaspace.atproto.tid import DAY, TidClock
from lettaspace.conversation.handle import Conversation
from lettaspace.conversation.readdress import FORK
from lettaspace.conversation.records import (
    AGENT,
    COMPILED_PROMPT,
    CONVERSATION,
    CONVERSATION_STATE,
    MESSAGE,
)
from lettaspace.demo import write_directory
from lettaspace.errors import Damaged
from lettaspace.export import restore as module
from lettaspace.export.archive import open_archive, write_archive
from lettaspace.export.restore import Outcomes, RestoreReport, replaces, restore
from lettaspace.letta.importer import import_directory
from lettaspace.space.writes import Create, Update, Value
from tests.conformance.kit import user, words
from tests.export.spaces import FOREIGN, fill, image, problems, records

LATER = "2090-01-01T00:00:00.000Z"
EARLIER = "1990-01-01T00:00:00.000Z"


def save(space: Space, path: Path) -> Path:
    write_archive(space, path)
    return path


def bring(space: Space, path: Path, **options: Any) -> RestoreReport:
    with open_archive(path) as archive:
        return restore(space, archive, **options)


def total(report: RestoreReport) -> Outcomes:
    counts = report.collections.values()
    return Outcomes(
        sum(each.created for each in counts),
        sum(each.updated for each in counts),
        sum(each.unchanged for each in counts),
        sum(each.kept for each in counts),
    )


def values(space: Space) -> dict[tuple[str, str], Value]:
    found = {key: space.repo.get(*key) for key in records(space)}
    return {key: record.value for key, record in found.items() if record is not None}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a space to be archived. Not to be written to."""
    home = tmp_path_factory.mktemp("source") / "home"
    with Space.open(home) as space:
        fill(space)
    return home


@pytest.fixture(scope="module")
def archive(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    with Space.open(source) as space:
        return save(space, tmp_path_factory.mktemp("archive") / "space.car")


@pytest.fixture
def twin(source: Path, home: Path) -> Path:
    """A home of the same identity that holds nothing."""
    home.mkdir()
    shutil.copy2(source / "identity.json", home)
    return home


def test_the_same_identity_gets_the_same_records(source: Path, archive: Path, twin: Path) -> None:
    with Space.open(source) as before, Space.open(twin) as after:
        report = bring(after, archive)
        assert not report.readdressed
        assert total(report) == Outcomes(created=len(records(before)))
        assert records(after) == records(before)
        assert after.repo.set_hash().digest() == before.repo.set_hash().digest()
        assert problems(after) == problems(before) == []
        assert [each.title for each in after.conversations()] == [
            each.title for each in before.conversations()
        ]
        for one in before.conversations():
            two = after.conversation(one.rkey)
            assert words(two.window().messages) == words(before.window(one.uri).messages)
            assert [m.cid for m in two.transcript()] == [m.cid for m in before.transcript(one.uri)]
            assert [m.payload() for m in two.transcript()] == [
                m.payload() for m in before.transcript(one.uri)
            ]
        assert after.search("jars").total == before.search("jars").total > 0


def test_its_revisions_go_on_from_the_archives(archive: Path, twin: Path) -> None:
    with open_archive(archive) as opened:
        rev = opened.rev
    with Space.open(twin) as space:
        # A clock that is an hour slow.
        micros, _ = tid.decode(rev)
        space.repo.clock = TidClock(lambda: (micros - DAY // 24) * 1000)
        bring(space, archive)
        found = space.repo.rev()
        assert found is not None
        assert found > rev


def test_another_identity_gets_records_of_its_own(source: Path, archive: Path, home: Path) -> None:
    with Space.open(source) as before, Space.open(home) as after:
        report = bring(after, archive)
        assert report.readdressed
        assert report.author == before.identity.did != after.identity.did
        assert total(report) == Outcomes(created=len(records(before)))
        assert problems(after) == []
        assert records(after).keys() == records(before).keys()
        old, new = before.identity.did, after.identity.did
        ours, theirs = values(after), values(before)
        for key, value in ours.items():
            for name in ("conversation", "agent"):
                if name in value and key[0] != FOREIGN:
                    assert value[name] == theirs[key][name].replace(old, new)
            for name in ("message", "state", "seq", "createdAt", "text"):
                assert value.get(name) == theirs[key].get(name)
        for one, two in zip(before.conversations(), after.conversations(), strict=True):
            assert two.title == one.title
            assert two.agent == str(one.agent).replace(old, new)
            assert two.messages == one.messages
        forks = [value for value in ours.values() if FORK in value]
        assert len(forks) == 2
        for fork in forks:
            for ref in fork[FORK].values():
                assert str(after.record(ref["uri"]).cid) == ref["cid"]
        copies = after.search("tiles")
        assert copies.distinct < copies.total  # forks know what they are copies of


def test_a_second_time_writes_nothing(source: Path, archive: Path, home: Path) -> None:
    with Space.open(home) as space:
        bring(space, archive)
        rev = space.repo.rev()
        report = bring(space, archive)
        assert total(report) == Outcomes(unchanged=len(records(space)))
        assert space.repo.rev() == rev
        assert (report.kept_conversations, report.mixed_conversations) == ([], [])


def test_there_and_back_again(source: Path, archive: Path, home: Path, tmp_path: Path) -> None:
    """What went through another identity comes home as it was."""
    with Space.open(home) as other:
        bring(other, archive)
        back = save(other, tmp_path / "back.car")
    copy = tmp_path / "copy"
    shutil.copytree(source, copy)
    with Space.open(copy) as space:
        report = bring(space, back)
        assert total(report) == Outcomes(unchanged=len(records(space)))


def test_the_same_letta_history_is_the_same_here(home: Path, tmp_path: Path) -> None:
    write_directory(tmp_path / "letta")
    with Space.open(tmp_path / "one") as one:
        import_directory(one, tmp_path / "letta")
        path = save(one, tmp_path / "space.car")
    with Space.open(home) as two:
        import_directory(two, tmp_path / "letta")
        report = bring(two, path)
        assert report.readdressed
        assert total(report) == Outcomes(unchanged=len(records(two)))
        assert problems(two) == []


def test_a_dry_run_tells_and_writes_nothing(archive: Path, home: Path) -> None:
    with Space.open(home) as space:
        talk = space.create_conversation(space.create_agent("Otter"))
        talk.append(user("mine"))
        rev, before = space.repo.rev(), records(space)
        would = bring(space, archive, dry_run=True)
        assert (space.repo.rev(), records(space)) == (rev, before)
        did = bring(space, archive)
        assert would.dry_run
        assert would.collections == did.collections
        assert total(bring(space, archive, dry_run=True)).created == 0


def test_o61_never_delete(archive: Path, home: Path) -> None:
    with Space.open(home) as space:
        fill(space, "agent-badger")
        talk = space.create_conversation(space.create_agent("Mole", key="agent-otter"))
        talk.append(user("mine"))
        before = records(space)
        bring(space, archive)
        after = records(space)
        assert before.keys() < after.keys()
        changed = {key for key, cid in before.items() if after[key] != cid}
        assert changed <= {(AGENT, "agent-otter"), (FOREIGN, "n1")}
        for each in space.conversations():
            assert len(list(space.transcript(each.uri))) == each.messages
        assert problems(space) == []


class Pair:
    """Two spaces of one identity that hold one conversation, and then differ."""

    def __init__(self, tmp_path: Path) -> None:
        self.path = tmp_path / "theirs.car"
        theirs = tmp_path / "theirs"
        with Space.open(theirs) as space:
            talk = space.create_conversation(space.create_agent("Otter", key="a"), title="jars")
            for number in range(3):
                talk.append(user(f"u{number}"))
            self.rkey = talk.rkey
            self.tids = [message.rkey for message in talk.window().messages]
            prompt = {
                "agent": talk.agent,
                "conversation": talk.uri,
                "content": "x",
                "coreMemory": "x",
                "rawSystemHash": "x",
                "compiledAt": EARLIER,
            }
            space.repo.apply_writes([Create(COMPILED_PROMPT, talk.rkey, prompt)])
        shutil.copytree(theirs, tmp_path / "ours")
        self.theirs = Space.open(theirs)
        self.ours = Space.open(tmp_path / "ours")

    def change(self, space: Space, collection: str, rkey: str, **fields: Any) -> Value:
        stored = space.repo.get(collection, rkey)
        assert stored is not None
        value = {**stored.value, **fields}
        space.repo.apply_writes([Update(collection, rkey, value)])
        return value

    def merge(self) -> RestoreReport:
        return bring(self.ours, save(self.theirs, self.path))

    def talk(self, space: Space) -> Conversation:
        return space.conversation(self.rkey)


@pytest.fixture
def pair(tmp_path: Path) -> Any:
    made = Pair(tmp_path)
    with made.theirs, made.ours:
        yield made


@pytest.mark.parametrize("winner", ["theirs", "ours", "tie"])
@pytest.mark.parametrize(
    ("collection", "field"),
    [
        (AGENT, "updatedAt"),
        (CONVERSATION_STATE, "updatedAt"),
        (MESSAGE, "updatedAt"),
        (COMPILED_PROMPT, "compiledAt"),
    ],
)
def test_the_later_one_stays(pair: Pair, collection: str, field: str, winner: str) -> None:
    rkey = {AGENT: "a", MESSAGE: pair.tids[1]}.get(collection, pair.rkey)
    mark = {AGENT: "name", CONVERSATION_STATE: "title", MESSAGE: "role", COMPILED_PROMPT: "content"}
    times = {"theirs": (LATER, EARLIER), "ours": (EARLIER, LATER), "tie": (LATER, LATER)}[winner]
    theirs = pair.change(
        pair.theirs, collection, rkey, **{field: times[0], mark[collection]: "theirs"}
    )
    ours = pair.change(pair.ours, collection, rkey, **{field: times[1], mark[collection]: "ours"})
    report = pair.merge()
    stored = pair.ours.repo.get(collection, rkey)
    assert stored is not None
    assert stored.value == (theirs if winner == "theirs" else ours)
    expected = Outcomes(updated=1) if winner == "theirs" else Outcomes(kept=1)
    expected.unchanged = report.collections[collection].unchanged
    assert report.collections[collection] == expected


def test_a_conversation_stays_as_it_is_here(pair: Pair) -> None:
    ours = pair.ours.repo.get(CONVERSATION, pair.rkey)
    pair.change(pair.theirs, CONVERSATION, pair.rkey, createdAt=LATER)
    report = pair.merge()
    assert pair.ours.repo.get(CONVERSATION, pair.rkey) == ours
    assert report.kept_conversations == [pair.rkey]
    assert report.collections[CONVERSATION] == Outcomes(kept=1)


def test_what_was_compacted_there_is_compacted_here(pair: Pair) -> None:
    pair.talk(pair.theirs).compact(lambda _covered: "SUM", lambda _window: 2)
    report = pair.merge()
    assert words(pair.talk(pair.ours).window().messages) == ["SUM", "u2"]
    assert words(pair.talk(pair.ours).transcript()) == words(pair.talk(pair.theirs).transcript())
    assert problems(pair.ours) == []
    assert report.mixed_conversations == []


def test_what_was_compacted_here_stays_so(pair: Pair) -> None:
    pair.talk(pair.ours).compact(lambda _covered: "SUM", lambda _window: 2)
    before = records(pair.ours)
    report = pair.merge()
    assert records(pair.ours) == before
    assert total(report).created == total(report).updated == 0
    assert problems(pair.ours) == []


def test_a_later_archive_whose_fork_names_an_older_version(
    tmp_path: Path, home: Path, source: Path
) -> None:
    theirs = tmp_path / "theirs"
    shutil.copytree(source, theirs)
    with Space.open(theirs) as there, Space.open(home) as here:
        bring(here, save(there, tmp_path / "1.car"))
        fork = next(each for each in there.conversations() if each.forked_from is not None)
        assert fork.forked_from is not None
        point = fork.forked_from["message"]["uri"].rpartition("/")[2]
        stored = there.repo.get(MESSAGE, point)
        assert stored is not None
        there.repo.apply_writes([Update(MESSAGE, point, {**stored.value, "updatedAt": LATER})])
        report = bring(here, save(there, tmp_path / "2.car"))
        assert report.kept_conversations == []
        assert report.collections[MESSAGE].updated == 1
        assert total(report).created == total(report).kept == 0
        assert problems(here) == []


BASE = {"conversation": "at://x", "role": "user", "seq": 1}


@pytest.mark.parametrize(
    ("theirs", "ours", "expected"),
    [
        ({}, {"role": "x"}, False),
        ({"status": "compacted"}, {}, True),
        ({"status": "compacted"}, {"status": "active"}, True),
        ({}, {"status": "compacted"}, False),
        ({"status": "compacted"}, {"status": "compacted", "seq": 2}, False),
        ({"updatedAt": EARLIER}, {}, True),
        ({}, {"updatedAt": EARLIER}, False),
        ({"updatedAt": LATER}, {"status": "compacted", "updatedAt": EARLIER}, True),
        ({"status": "compacted", "updatedAt": EARLIER}, {"updatedAt": LATER}, False),
        ({"updatedAt": "2024-01-01T01:00:00+02:00"}, {"updatedAt": "2024-01-01T00:00:00Z"}, False),
        ({"updatedAt": "2024-01-01T01:00:00-02:00"}, {"updatedAt": "2024-01-01T00:00:00Z"}, True),
        ({"updatedAt": LATER, "conversation": "at://y"}, {}, False),
    ],
)
def test_which_message_stays(theirs: Value, ours: Value, expected: bool) -> None:
    assert replaces(MESSAGE, {**BASE, **theirs}, {**BASE, **ours}) is expected


def test_of_others_the_time_decides_where_there_is_one() -> None:
    assert replaces(FOREIGN, {"updatedAt": LATER}, {"updatedAt": EARLIER})
    assert not replaces(FOREIGN, {"n": 1}, {"n": 2})
    assert not replaces(FOREIGN, {"updatedAt": "yesterday"}, {"updatedAt": 5})
    assert not replaces(FOREIGN, {"compiledAt": LATER}, {"compiledAt": EARLIER})


def test_both_went_on(pair: Pair) -> None:
    pair.talk(pair.theirs).append(user("theirs"))
    pair.talk(pair.ours).append(user("ours"))
    would = bring(pair.ours, save(pair.theirs, pair.path), dry_run=True)
    assert would.mixed_conversations == [pair.rkey]
    report = pair.merge()
    assert report.mixed_conversations == [pair.rkey]
    found = words(pair.talk(pair.ours).transcript())
    assert found[:3] == ["u0", "u1", "u2"]
    assert sorted(found[3:]) == ["ours", "theirs"]
    (problem,) = problems(pair.ours)
    assert "seq 4 is on 2 messages" in problem
    assert pair.merge().mixed_conversations == []


@pytest.mark.parametrize("longer", ["theirs", "ours"])
def test_one_side_went_on(pair: Pair, longer: str) -> None:
    pair.talk(pair.theirs if longer == "theirs" else pair.ours).append(user("more"))
    assert pair.merge().mixed_conversations == []
    assert words(pair.talk(pair.ours).transcript()) == ["u0", "u1", "u2", "more"]
    assert problems(pair.ours) == []


def batches(monkeypatch: pytest.MonkeyPatch, size: int = 7) -> None:
    monkeypatch.setattr(module, "MAX_WRITES", size)


@pytest.mark.parametrize("after", [0, 1, 3, 5])
def test_a_crash_leaves_whole_batches_and_a_second_time_the_rest(
    archive: Path, home: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    batches(monkeypatch)
    with Space.open(home) as space:
        done = 0
        transact = space.repo.transact

        def dying(*arguments: Any, **options: Any) -> Any:
            nonlocal done
            if done == after:
                raise KeyboardInterrupt
            done += 1
            return transact(*arguments, **options)

        with monkeypatch.context() as patch:
            patch.setattr(space.repo, "transact", dying)
            with pytest.raises(KeyboardInterrupt):
                bring(space, archive)
        assert len(records(space)) == after * 7
        assert [each for each in problems(space) if "listed-missing" not in each] == []
        report = bring(space, archive)
        assert total(report).unchanged == after * 7
        assert total(report).created == len(records(space)) - after * 7 > 0
        assert report.mixed_conversations == []
        assert problems(space) == []


def test_a_killed_process_leaves_whole_batches(archive: Path, home: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from lettaspace import Space\n"
        "from lettaspace.export import restore as module\n"
        "from lettaspace.export.archive import open_archive\n"
        "module.MAX_WRITES = 5\n"
        "def step(what, done, total):\n"
        "    if done > 12: os.kill(os.getpid(), signal.SIGKILL)\n"
        "with open_archive(Path(sys.argv[2])) as archive, Space.open(sys.argv[1]) as space:\n"
        "    module.restore(space, archive, progress=step)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(home), str(archive)], check=False)
    assert done.returncode == -9
    with Space.open(home) as space:
        assert len(records(space)) == 15
        assert total(bring(space, archive)).unchanged == 15
        assert problems(space) == []


def test_a_file_altered_meanwhile_stops_it_between_batches(
    archive: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches(monkeypatch)
    path = tmp_path / "space.car"
    shutil.copy(archive, path)
    size = path.stat().st_size
    with Space.open(home) as space, open_archive(path) as opened:

        def spoil(_what: str, _done: int, _total: int) -> None:
            path.write_bytes(bytes(size))

        with pytest.raises(Damaged, match="changed while it was read"):
            restore(space, opened, progress=spoil)
        assert len(records(space)) == 7


def test_somebody_else_writes_meanwhile(
    archive: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches(monkeypatch)
    with Space.open(home) as space, Space.open(home) as other:
        with open_archive(archive) as opened:
            restore(
                space, opened, progress=lambda _what, done, _all: other.create_agent(f"A{done}")
            )
        assert problems(space) == []


def test_the_index_is_the_same_as_if_written_here(archive: Path, twin: Path, source: Path) -> None:
    with Space.open(source) as before, Space.open(twin) as after:
        bring(after, archive)
        for one in before.conversations():
            assert [m.rkey for m in after.window(one.uri).messages] == [
                m.rkey for m in before.window(one.uri).messages
            ]


PROBE = """
import json, resource, sys
from pathlib import Path
from lettaspace import Space
from lettaspace.export.archive import open_archive, write_archive
from lettaspace.export.restore import restore
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with Space.open(sys.argv[1]) as space, Space.open(sys.argv[1] + "-new") as new:
    path = Path(sys.argv[1]) / "space.car"
    before = peak()
    report = write_archive(space, path)
    with open_archive(path) as archive:
        restore(new, archive)
    print(json.dumps([peak() - before, report.size]))
"""


def test_memory_does_not_grow_with_the_space(tmp_path: Path) -> None:
    found = []
    for name, count in (("small", 25), ("large", 200)):
        with Space.open(tmp_path / name) as space:
            talk = space.create_conversation(space.create_agent("Otter"))
            for number in range(count):
                talk.append({"role": "user", "content": [image(400_000, number)]})
        done = subprocess.run(
            [sys.executable, "-c", PROBE, str(tmp_path / name)],
            check=True,
            capture_output=True,
            text=True,
        )
        found.append(json.loads(done.stdout))
    (small, _), (large, size) = found
    assert size > 80_000_000
    # What stays is a batch of blobs, a few times over, and SQLite's cache.
    assert large < small + 30_000
