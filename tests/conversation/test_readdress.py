"""References move to another address, and nothing else does."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from lettaspace import Space
from lettaspace.conversation.readdress import FORK, FORK_REFS, URIS, Readdress
from lettaspace.conversation.records import (
    CONVERSATION,
    CONVERSATION_STATE,
    MESSAGE,
    NAMESPACE,
    Address,
    default_space,
)
from lettaspace.export.archive import Archive, open_archive, write_archive
from lettaspace.letta.writer import record_cid
from lettaspace.space.car import RepoBlock
from lettaspace.space.writes import Update, Value
from tests.conformance.kit import user
from tests.export.spaces import fill

NEW = "did:web:new.example"
THERE = Address(default_space(NEW), NEW)


def all_of(archive: Archive) -> dict[tuple[str, str], RepoBlock]:
    return {(each.collection, each.rkey): each for each in archive.records(lambda _c, _r: True)}


def test_every_reference_of_our_lexicons_is_known() -> None:
    """Whatever a lexicon calls an at-uri is rewritten, unless the whole lexicon is only shared
    objects, of which strong references are the one that has any."""
    found: dict[str, set[str]] = {}
    strong: set[tuple[str, ...]] = set()
    folder = files("lettaspace") / "lexicons" / Path(*NAMESPACE.split(".")).as_posix()
    documents = {
        each.name: json.loads(each.read_text("utf-8"))
        for each in folder.iterdir()
        if each.name.endswith(".json")
    }
    shared = documents["defs.json"]["defs"]

    def walk(node: Any, path: tuple[str, ...], note: Any) -> None:
        if node.get("format") == "at-uri":
            note(path)
        target = str(node.get("ref", "")).rpartition("#")[2]
        if target == "strongRef":
            strong.add(path)
        elif target in shared:
            walk(shared[target], path, note)
        for name, child in node.get("properties", {}).items():
            walk(child, (*path, name), note)
        if "items" in node:
            walk(node["items"], (*path, "[]"), note)

    for document in documents.values():
        for name, definition in document["defs"].items():
            if document["id"].endswith(".defs"):
                continue
            collection = document["id"] if name == "main" else f"{document['id']}#{name}"
            fields = found.setdefault(collection, set())
            walk(
                definition.get("record", definition),
                (collection,),
                lambda path, fields=fields: fields.add(".".join(path[1:])),
            )
    assert {name: fields for name, fields in found.items() if fields} == {
        name: set(fields) for name, fields in URIS.items()
    }
    assert strong == {(CONVERSATION, FORK, field) for field in FORK_REFS}
    assert len(documents) >= 8


@pytest.fixture
def archive(home: Path, tmp_path: Path) -> Any:
    with Space.open(home) as space:
        fill(space)
        write_archive(space, tmp_path / "space.car")
    with open_archive(tmp_path / "space.car") as opened:
        yield opened


def leave(value: Value) -> Value:
    """What is not to change."""
    refs = {"conversation", "agent", FORK} if value["$type"].startswith(NAMESPACE) else set()
    return {name: field for name, field in value.items() if name not in refs}


def test_references_move_and_payloads_stay(archive: Archive) -> None:
    old = f"{archive.address.space}/{archive.address.author}/"
    new = f"{THERE.space}/{THERE.author}/"
    readdress = Readdress(archive, THERE)
    assert readdress.needed
    for (collection, _), record in all_of(archive).items():
        before = json.dumps(record.value, default=repr)
        moved = readdress(collection, record.value)
        assert json.dumps(record.value, default=repr) == before
        assert leave(moved) == leave(record.value)
        assert moved.keys() == record.value.keys()
        for field in URIS.get(collection, ()):
            assert moved[field] == record.value[field].replace(old, new)
            assert moved[field].startswith(new)
        if collection not in URIS:
            assert moved == record.value


def test_strong_references_name_what_they_named(archive: Archive) -> None:
    readdress = Readdress(archive, THERE)
    moved = {key: readdress(key[0], each.value) for key, each in all_of(archive).items()}
    cids = {THERE.uri(*key): str(record_cid(key[0], value)) for key, value in moved.items()}
    forks = [value for value in moved.values() if FORK in value]
    assert len(forks) == 2
    for fork in forks:
        for field in FORK_REFS:
            assert cids[fork[FORK][field]["uri"]] == fork[FORK][field]["cid"]


def test_at_its_own_address_nothing_moves(archive: Archive) -> None:
    readdress = Readdress(archive, archive.address)
    assert not readdress.needed
    for (collection, _), record in all_of(archive).items():
        assert readdress(collection, record.value) is record.value


def test_what_names_somebody_else_or_an_older_version_stays(home: Path, tmp_path: Path) -> None:
    with Space.open(home) as space:
        last = fill(space)
        fork = space.repo.get(CONVERSATION, last.rkey)
        assert fork is not None
        message = fork.value[FORK]["message"]
        point = message["uri"].rpartition("/")[2]
        stored = space.repo.get(MESSAGE, point)
        assert stored is not None
        space.repo.apply_writes([Update(MESSAGE, point, {**stored.value, "status": "compacted"})])
        theirs = THERE.conversation("3lalalalala22")
        state = space.repo.get(CONVERSATION_STATE, last.rkey)
        assert state is not None
        space.repo.apply_writes(
            [Update(CONVERSATION_STATE, last.rkey, {**state.value, "conversation": theirs})]
        )
        write_archive(space, tmp_path / "space.car")
    with open_archive(tmp_path / "space.car") as archive:
        third = Address(default_space("did:web:third.example"), "did:web:third.example")
        readdress = Readdress(archive, third)
        moved = readdress(CONVERSATION, fork.value)[FORK]
        assert moved["message"] == {"uri": third.uri(MESSAGE, point), "cid": message["cid"]}
        assert moved["conversation"]["cid"] != fork.value[FORK]["conversation"]["cid"]
        (kept,) = archive.records(lambda c, r: (c, r) == (CONVERSATION_STATE, last.rkey))
        assert readdress(CONVERSATION_STATE, kept.value)["conversation"] == theirs


def test_a_long_line_of_forks(home: Path, tmp_path: Path) -> None:
    with Space.open(home) as space:
        talk = space.create_conversation(space.create_agent("Otter"))
        talk.append(user("one"))
        for _ in range(30):
            talk = talk.fork()
        write_archive(space, tmp_path / "space.car")
    with open_archive(tmp_path / "space.car") as archive:
        readdress = Readdress(archive, THERE)
        cids: dict[str, str] = {}
        for (collection, rkey), record in sorted(all_of(archive).items()):
            if collection == CONVERSATION:
                value = readdress(collection, record.value)
                cids[THERE.conversation(rkey)] = str(record_cid(collection, value))
                if FORK in value:
                    ref = value[FORK]["conversation"]
                    assert cids[ref["uri"]] == ref["cid"]
    assert len(cids) == 31
