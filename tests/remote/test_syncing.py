"""Pulling and pushing, case by case. `test_convergence` has what networks and machines do to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import delete, select

from lettaspace.atproto.cid import CID
from lettaspace.atproto.keys import SigningKey
from lettaspace.conversation.records import AGENT, CONVERSATION_STATE, MESSAGE
from lettaspace.errors import Conflict, Damaged, HostRefused
from lettaspace.remote import pulling, pushing
from lettaspace.remote.hostrepo import HostRepo, OpsPage
from lettaspace.remote.limits import Limits
from lettaspace.remote.mirror import DELETED, INVALID, NO_BLOB, REFUSED, Key, Mirror
from lettaspace.remote.syncing import Syncer, problem
from lettaspace.server import repos
from lettaspace.space import schema
from lettaspace.space.writes import Create, Delete, Update, Write
from tests.conformance.kit import Talk, check, user
from tests.remote.world import MIRA, SPACE, Machine, Setup, World, setup

NOTE = "org.example.note"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setup]:
    with setup(tmp_path_factory.mktemp("syncing"), machines=2) as made:
        yield made


@pytest.fixture
def world(shared: Setup) -> Iterator[World]:
    made = World(shared, [0.0, 0.0])
    yield made
    made.close()


@pytest.fixture
def a(world: World) -> Machine:
    return world.machines[0]


@pytest.fixture
def b(world: World) -> Machine:
    return world.machines[1]


class Wrapped(HostRepo):
    """A host's repo of which a test replaces some methods."""

    def __init__(self, machine: Machine, **methods: Callable[..., Any]) -> None:
        client = machine.world.setup.clients[machine.number]
        super().__init__(client, SPACE, MIRA, limits=Limits())
        self.asked: list[str] = []
        for name, method in methods.items():
            setattr(self, name, lambda *args, m=method, **named: m(self, *args, **named))


def syncer(machine: Machine, host: HostRepo) -> Syncer:
    return Syncer(machine.space, host, lambda _again: machine.key, sleep=lambda _: None)


def notes(machine: Machine, *texts: str) -> None:
    """A record of another kind for every text, which is its key as well."""
    machine.space.repo.apply_writes([Create(NOTE, text, {"text": text}) for text in texts])


def found(machine: Machine) -> dict[str, str]:
    return {each.rkey: each.value["text"] for each in machine.space.repo.records(NOTE)}


def at_host(world: World, *writes: Write) -> None:
    """Somebody else writes there."""
    repo = world.setup.server.host.repos
    repo.write(SPACE, MIRA, lambda _view: writes, lambda *_: None)


def mirror(machine: Machine) -> dict[Key, CID]:
    with machine.space.database.read() as connection:
        return dict(Mirror(connection, machine.space.repo.id).all())


def held(machine: Machine) -> dict[str, str]:
    with machine.space.database.read() as connection:
        rows = Mirror(connection, machine.space.repo.id).held()
    return {key.rkey: reason for key, reason in rows}


def requests(machine: Machine) -> list[str]:
    """The methods that the last sync called."""
    return [request.rpartition(".")[2] for request, _ in machine.log]


class TestInSync:
    def test_what_is_here_is_there_and_on_the_other_machine(self, world, a, b):
        notes(a, "one", "two")
        report = a.sync()
        assert (report.pushed, report.created) == (2, 0)
        report = b.sync()
        assert (report.pushed, report.created) == (0, 2)
        assert found(b) == {"one": "one", "two": "two"}
        same(world)

    def test_a_second_sync_does_nothing(self, a):
        notes(a, "one")
        a.sync()
        before = a.space.repo.rev()
        report = a.sync()
        assert not report.did_something
        assert a.space.repo.rev() == before
        assert requests(a) == ["listRepoOps"]

    def test_ten_new_messages_take_three_requests(self, a, b):
        talk = Talk.new(a.space)
        a.sync()
        b.sync()
        talk.users("abcdefghij")
        a.sync()
        assert requests(a) == ["listRepoOps", "applyWrites", "getLatestCommit"]
        assert b.sync().created == 10
        assert requests(b) == ["listRepoOps"]

    def test_an_update_and_an_explicit_deletion_are_pushed(self, a, b):
        notes(a, "one", "two")
        a.sync()
        b.sync()
        a.space.repo.apply_writes([Update(NOTE, "one", {"text": "new"}), Delete(NOTE, "two")])
        assert a.sync().pushed == 2
        assert set(mirror(a)) == {Key(NOTE, "one")}

    def test_what_was_written_and_taken_back_is_not_sent(self, a):
        notes(a, "one", "two")
        a.space.repo.apply_writes([Delete(NOTE, "two")])
        assert a.sync().pushed == 1

    def test_a_push_alone_writes_nothing_blindly(self, world, a, b):
        notes(a, "one")
        a.sync()
        b.sync()
        notes(a, "two")
        a.sync()
        known = []

        def apply(self, writes, encoded=None):
            known.append(set(found(b)))
            return HostRepo.apply(self, writes)

        notes(b, "three")
        syncer(b, Wrapped(b, apply=apply)).sync(pull=False)
        assert known == [{"one", "two", "three"}]
        a.sync()
        same(world)

    def test_more_than_a_checkpoint(self, world, a, monkeypatch):
        monkeypatch.setattr(pushing, "CHECKPOINT", 10)
        monkeypatch.setattr(pushing, "_LOOK", 22)
        for at in range(9):
            notes(a, *(f"n{at}-{each}" for each in range(4)))
        assert a.sync().pushed == 36
        assert requests(a).count("getLatestCommit") >= 4
        same(world)

    def test_a_checkpoint_keeps_what_was_sent(self, world, a, monkeypatch):
        """Of a first push that breaks off, all that was confirmed need not be looked at again."""
        monkeypatch.setattr(pushing, "CHECKPOINT", 2)
        for text in "abcdef":
            notes(a, text)
        left = iter(range(2))

        def apply(self, writes, encoded=None):
            if next(left, None) is None:
                raise HostRefused("no more", status=403, error="Forbidden")
            return HostRepo.apply(self, writes)

        with pytest.raises(HostRefused):
            syncer(a, Wrapped(a, apply=apply)).sync()
        assert set(mirror(a)) == {Key(NOTE, text) for text in "abcd"}
        assert a.sync().pushed == 2
        same(world)


class TestChecked:
    """Nothing is taken that the author did not sign."""

    def test_a_commit_of_another_key(self, a, b):
        notes(a, "one")
        a.sync()
        host = Wrapped(b)
        other = SigningKey.generate().verifying_key
        with pytest.raises(Damaged):
            Syncer(b.space, host, lambda _again: other, sleep=lambda _: None).sync()
        assert found(b) == {}
        assert problem_of(b) == "damaged"

    def test_the_key_is_asked_for_again(self, a, b):
        notes(a, "one")
        a.sync()
        b.sync()
        notes(a, "two")
        a.sync()
        asked: list[bool] = []

        def keys(again: bool):
            asked.append(again)
            return b.key if again else SigningKey.generate().verifying_key

        Syncer(b.space, Wrapped(b), keys, sleep=lambda _: None).sync()
        assert asked == [False, True]
        assert set(found(b)) == {"one", "two"}

    def test_a_log_that_leaves_something_out_is_healed_by_a_list(self, world, a, b):
        notes(a, "one")
        a.sync()
        b.sync()
        notes(a, "two", "three")
        a.sync()

        def ops(self, *args, **named):
            for page in HostRepo.ops(self, *args, **named):
                yield OpsPage([op for op in page.ops if op.rkey != "two"], page.commit)

        host = Wrapped(b, ops=ops, car=refuses)
        assert syncer(b, host).sync().created == 2
        assert set(found(b)) == {"one", "two", "three"}
        same(world)

    def test_a_list_that_is_wrong_as_well_gives_way_to_the_whole(self, world, a, b):
        notes(a, "one")
        a.sync()
        b.sync()
        notes(a, "two")
        a.sync()

        def ops(self, *args, **named):
            for page in HostRepo.ops(self, *args, **named):
                yield OpsPage([], page.commit)

        def listed(self, *args, **named):
            yield from ()

        host = Wrapped(b, ops=ops, list=listed)
        assert syncer(b, host).sync().created == 1
        same(world)

    def test_much_to_take_comes_as_a_whole(self, world, a, b, monkeypatch):
        monkeypatch.setattr(pulling, "MAX_OPS", 5)
        monkeypatch.setattr(pulling, "MAX_GETS", 5)
        notes(a, "one")
        a.sync()
        b.sync()
        notes(a, *(f"n{each}" for each in range(20)))
        a.sync()
        assert b.sync().created == 20
        assert "getRepo" in requests(b)
        same(world)

    def test_a_value_that_is_not_that_of_its_cid_is_kept_out(self, a, b):
        notes(a, "one")
        a.sync()
        b.sync()
        notes(a, "two")
        a.sync()

        def ops(self, *args, **named):
            for page in HostRepo.ops(self, *args, **named):
                yield OpsPage(
                    [op._replace(value={**op.value, "text": "other"}) for op in page.ops],
                    page.commit,
                )

        syncer(b, Wrapped(b, ops=ops)).sync()
        assert set(found(b)) == {"one"}
        assert held(b) == {"two": INVALID}


class TestHeld:
    def test_what_somebody_deletes_there_stays_here(self, world, a, b):
        notes(a, "one", "two")
        a.sync()
        at_host(world, Delete(NOTE, "two"))
        assert a.sync().held == 1
        assert set(found(a)) == {"one", "two"}
        assert held(a) == {"two": DELETED}
        assert not a.sync().did_something, "it is not put there again"
        b.sync()
        assert set(found(b)) == {"one"}

    def test_and_comes_back_when_it_is_written_there_again(self, world, a):
        notes(a, "one")
        a.sync()
        at_host(world, Delete(NOTE, "one"))
        a.sync()
        at_host(world, Create(NOTE, "one", {"text": "again"}))
        a.sync()
        assert held(a) == {}
        assert found(a) == {"one": "again"}

    def test_a_record_against_its_lexicon_is_kept_out(self, world, a):
        at_host(world, Create(AGENT, "x", {"$type": AGENT, "name": 7}))
        notes(a, "one")
        report = a.sync()
        assert report.held == 1
        assert held(a) == {"x": INVALID}
        assert a.space.repo.get(AGENT, "x") is None
        assert not a.sync().did_something

    def test_a_record_that_the_host_refuses_does_not_stop_the_others(self, world, a):
        def apply(self, writes, encoded=None):
            if any(write.rkey == "bad" for write in writes):
                raise HostRefused("no", status=400, error="InvalidRecord")
            return HostRepo.apply(self, writes)

        notes(a, "bad", "one", "two", "three")
        report = syncer(a, Wrapped(a, apply=apply)).sync()
        assert (report.pushed, report.refused) == (3, 1)
        assert held(a) == {"bad": REFUSED}
        assert a.sync().pushed == 1, "a host may have changed its mind"
        assert held(a) == {}
        same(world)

    def test_where_all_are_refused_it_is_not_the_records(self, a):
        def apply(self, writes, encoded=None):
            raise HostRefused("no", status=400, error="InvalidRequest")

        notes(a, *(f"n{each}" for each in range(50)))
        with pytest.raises(HostRefused):
            syncer(a, Wrapped(a, apply=apply)).sync()
        assert problem_of(a) == "refused"

    def test_a_batch_that_is_too_large_goes_in_parts(self, world, a):
        sizes: list[int] = []

        def apply(self, writes, encoded=None):
            sizes.append(len(writes))
            if len(writes) > 3:
                raise HostRefused("too large", status=413, error="PayloadTooLarge")
            return HostRepo.apply(self, writes)

        notes(a, *(f"n{each}" for each in range(10)))
        assert syncer(a, Wrapped(a, apply=apply)).sync().pushed == 10
        assert sizes[0] == 10
        same(world)

    def test_what_is_written_again_meanwhile_goes_with_what_it_was_written_with(self, world, a):
        def apply(self, writes, encoded):
            if not batches:
                writes_meanwhile()
            batches.append([write.rkey for write in writes])
            return HostRepo.apply(self, writes, encoded=encoded)

        def writes_meanwhile() -> None:
            changed = [Update(NOTE, "n999", {"text": "again"}), Create(NOTE, "z", {"text": "z"})]
            a.space.repo.apply_writes(changed)

        batches: list[list[str]] = []
        for start in range(0, 1000, 200):
            notes(a, *(f"n{each:03}" for each in range(start, start + 200)))
        syncer(a, Wrapped(a, apply=apply)).sync()
        assert [batch for batch in batches if "z" in batch] == [["n999", "z"]]
        assert sum(batch.count("n999") for batch in batches) <= 2
        same(world)

    def test_so_does_the_next_one_which_was_made_before_that_was_learnt(self, world, a):
        def apply(self, writes, encoded):
            texts = list(encoded)
            size = sum(map(len, texts))
            sizes.append(size)
            if size > 60_000:
                self.limits = self.limits.after_body(size)
                raise HostRefused("too large", status=413, error="PayloadTooLarge")
            return HostRepo.apply(self, writes, encoded=texts)

        sizes: list[int] = []
        for start in (0, 150, 300):
            notes(a, *(f"{each:03}" + "x" * 400 for each in range(start, start + 150)))
        assert syncer(a, Wrapped(a, apply=apply)).sync().pushed == 450
        assert sizes[0] > 60_000
        same(world)


class TestBlobs:
    def test_they_travel_with_their_records(self, world, a, b):
        talk = Talk.new(a.space)
        talk.add(user("x" * 400_000))
        report = a.sync()
        assert report.blobs > 0
        assert requests(a).index("uploadBlob") < requests(a).index("applyWrites")
        b.sync()
        assert talk.seen_by(b.space).window == talk.window
        same(world)

    def test_equal_ones_are_given_once(self, a):
        talk = Talk.new(a.space)
        talk.add(user("x" * 400_000), user("x" * 400_000))
        assert a.sync().blobs == 1
        talk.add(user("x" * 400_000))
        assert a.sync().blobs == 0

    def test_one_that_the_host_dropped_is_given_again(self, world, a, b):
        talk = Talk.new(a.space)
        talk.add(user("x" * 400_000))
        a.sync()
        talk.add(user("x" * 400_000))
        drop_blobs(world)
        report = a.sync()
        assert (report.pushed, report.blobs) == (1, 1)
        b.sync()
        assert talk.seen_by(b.space).window == talk.window

    def test_a_record_whose_blob_is_missing_waits_for_it(self, world, a, b):
        talk = Talk.new(a.space)
        talk.users("a")
        (message,) = talk.add(user("x" * 400_000))
        a.sync()
        lost = drop_blobs(world)
        assert b.sync().held == 1
        assert held(b) == {message.rkey: NO_BLOB}
        assert talk.seen_by(b.space).window == ["a"]
        with world.setup.server.host.database.write() as connection:
            connection.execute(schema.blobs.insert(), lost)
        b.sync()
        assert held(b) == {}
        assert talk.seen_by(b.space).window == talk.window
        same(world)


class TestLoss:
    """A host that has less than it once had."""

    def test_an_older_state_is_filled_up_again(self, world, a, b):
        notes(a, "one", "two")
        a.sync()
        b.sync()
        with world.setup.server.host.database.read() as connection:
            saved = dump(connection)
        notes(a, "three")
        a.sync()
        with world.setup.server.host.database.write() as connection:
            load(connection, saved)
        assert a.sync().pushed == 1
        assert set(found(a)) == {"one", "two", "three"}
        same(world)

    def test_a_host_that_lost_all_is_not_filled_unasked(self, world, a):
        notes(a, "one")
        a.sync()
        with world.setup.server.host.database.write() as connection:
            repos.empty(connection, SPACE, MIRA)
        with pytest.raises(Conflict):
            a.syncer().sync()
        assert problem_of(a) == "emptied"
        assert found(a) == {"one": "one"}
        again = a.syncer()
        again.start_over()
        assert again.sync().pushed == 1
        assert problem_of(a) is None
        same(world)


class TestBothChanged:
    def test_the_later_title_wins_on_both(self, world, a, b):
        talk = Talk.new(a.space)
        a.sync()
        b.sync()
        rkey = talk.handle.rkey
        for machine, title, at in ((a, "early", "2030-01-01"), (b, "late", "2031-01-01")):
            state = machine.space.repo.get(CONVERSATION_STATE, rkey).value
            value = {**state, "title": title, "updatedAt": f"{at}T00:00:00.000Z"}
            machine.space.repo.apply_writes([Update(CONVERSATION_STATE, rkey, value)])
        b.sync()
        a.sync()
        same(world)
        assert a.space.repo.get(CONVERSATION_STATE, rkey).value["title"] == "late"

    def test_an_old_write_that_arrives_late_does_not_win(self, world, a):
        """As a request that the network kept back would do it."""
        talk = Talk.new(a.space)
        (message,) = talk.users("a")
        a.sync()
        old = a.space.repo.get(MESSAGE, message.rkey).value
        talk.handle.rewrite(message.rkey, user("b"))
        a.sync()
        at_host(world, Update(MESSAGE, message.rkey, old))
        a.sync()
        assert talk.window == ["b"]
        same(world)

    def test_both_went_on_with_a_conversation(self, world, a, b):
        talk = Talk.new(a.space)
        talk.users("abc")
        a.sync()
        b.sync()
        there = talk.seen_by(b.space)
        talk.users("xy")
        there.users("pq")
        a.sync()
        report = b.sync()
        assert len(report.forks) == 1
        same(world)
        windows = sorted(
            Talk(b.space.conversation(each.uri)).window for each in b.space.conversations()
        )
        assert windows == [["a", "b", "c", "p", "q"], ["a", "b", "c", "x", "y"]]
        for each in a.space.conversations():
            check(Talk(a.space.conversation(each.uri)))

    def test_the_same_record_written_on_both_is_one(self, world, a, b):
        notes(a, "one")
        notes(b, "one")
        a.sync()
        assert not b.sync().created
        same(world)


def same(world: World) -> None:
    """All machines, and the host, come to have the same."""
    world.settle()
    first, *others = [machine.records() for machine in world.machines]
    assert others == [first] * len(others)
    for machine in world.machines:
        assert machine.space.repo.set_hash().digest() == world.commit().hash
        assert [str(each) for each in machine.space.verify()] == []


def refuses(*_: Any, **__: Any) -> Any:
    raise AssertionError("this must not be asked for")


def problem_of(machine: Machine) -> str | None:
    replicas = schema.replicas.c
    with machine.space.database.read() as connection:
        return connection.execute(
            select(replicas.problem).where(replicas.repo == machine.space.repo.id)
        ).scalar_one()


def drop_blobs(world: World) -> list[dict[str, Any]]:
    """The host loses its blobs; returns them."""
    with world.setup.server.host.database.write() as connection:
        rows = [dict(row._mapping) for row in connection.execute(select(schema.blobs))]
        connection.execute(delete(schema.blobs))
    return rows


_TABLES = (schema.repos, schema.records, schema.ops, schema.blob_refs)


def dump(connection: Any) -> list[list[dict[str, Any]]]:
    return [[dict(row._mapping) for row in connection.execute(select(t))] for t in _TABLES]


def load(connection: Any, saved: list[list[dict[str, Any]]]) -> None:
    for table in reversed(_TABLES):
        connection.execute(delete(table))
    for table, rows in zip(_TABLES, saved, strict=True):
        if rows:
            connection.execute(table.insert(), rows)


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (HostRefused("", status=400, error="UserNotAuthorized"), "not-a-member"),
        (HostRefused("", status=400, error="SpaceDeleted"), "space-deleted"),
        (HostRefused("", status=429, error="RateLimitExceeded"), "rate-limited"),
        (HostRefused("", status=400, error="InvalidRequest"), "refused"),
        (Damaged(""), "damaged"),
    ],
)
def test_problems_have_names(error, name):
    assert problem(error) == name
