"""The mark of a conversation that went on in two places."""

from lettaspace.conversation.records import CONVERSATION_STATE
from lettaspace.conversation.space import Space
from lettaspace.letta.importer import import_directory
from lettaspace.space.writes import Delete, Update
from tests.letta.build import Store, at, b1, message, row
from tests.letta.build import rows as make_rows

THEIRS = [*b1(), message(5, "user", "theirs")]


def diverged(space: Space, store: Store) -> bool:
    import_directory(space, store.path)
    (info,) = space.conversations()
    return info.diverged


def ours(store: Store) -> None:
    made = [*make_rows(b1()), row(message(5, "user", "ours", created=at(99)), "f5", "e4")]
    store.conversation(made)


def test_it_stands_until_the_files_have_everything_again(space: Space, store: Store) -> None:
    store.conversation(make_rows(THEIRS))
    assert not diverged(space, store)
    unmarked = space.repo.get(CONVERSATION_STATE, space.conversations()[0].rkey)
    ours(store)
    assert diverged(space, store)
    rev = space.repo.rev()
    assert diverged(space, store)
    assert space.repo.rev() == rev
    store.conversation(make_rows(THEIRS))
    assert not diverged(space, store)
    assert space.repo.get(CONVERSATION_STATE, space.conversations()[0].rkey) == unmarked


def test_it_goes_when_the_files_only_lack_what_is_stored(space: Space, store: Store) -> None:
    store.conversation(make_rows(THEIRS))
    import_directory(space, store.path)
    ours(store)
    assert diverged(space, store)
    store.conversation(make_rows(b1()))
    assert not diverged(space, store)


def test_a_dry_run_sets_no_mark(space: Space, store: Store) -> None:
    store.conversation(make_rows(THEIRS))
    import_directory(space, store.path)
    ours(store)
    rev = space.repo.rev()
    report = import_directory(space, store.path, dry_run=True)
    assert report.conversations[0].outcome == "diverged"
    assert space.repo.rev() == rev


def test_other_damage_stays_beside_it(space: Space, store: Store) -> None:
    store.conversation(make_rows(THEIRS))
    import_directory(space, store.path)
    rkey = space.conversations()[0].rkey
    state = space.repo.get(CONVERSATION_STATE, rkey)
    assert state is not None
    damage = [{"kind": "tornRow", "row": number} for number in range(1, 101)]
    space.repo.apply_writes([Update(CONVERSATION_STATE, rkey, {**state.value, "damage": damage})])
    ours(store)
    assert diverged(space, store)
    kinds = [each["kind"] for each in space.conversations()[0].damage]
    assert kinds == ["diverged", *["tornRow"] * 99]


def test_a_conversation_without_a_state_is_marked_too(space: Space, store: Store) -> None:
    store.conversation(make_rows(THEIRS))
    import_directory(space, store.path)
    rkey = space.conversations()[0].rkey
    space.repo.apply_writes([Delete(CONVERSATION_STATE, rkey)])
    ours(store)
    assert diverged(space, store)
