"""The real Letta Code goes on in a directory that was restored, on a machine with other paths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lettaspace.conversation.records import MEMORY
from lettaspace.conversation.space import Space
from lettaspace.letta.differing import differences
from lettaspace.letta.importer import import_directory
from lettaspace.letta.memories import restore as restore_memory
from lettaspace.letta.memories import store as store_memory
from lettaspace.letta.pins import PROJECT_SETTINGS, SETTINGS, pin
from lettaspace.letta.reconciling import reconcile
from lettaspace.letta.restoring import restore
from lettaspace.remote.branches import diverge
from tests.lab.driver import LettaHome
from tests.lab.lab import SCENARIOS, Lab
from tests.lab.provider import Reply
from tests.lab.scenarios import CONVERSATION, bash, read
from tests.lab.store import (
    conversation_dir,
    conversation_keys,
    in_context_ids,
    load_window,
    read_messages,
    read_rows,
    text_of,
)
from tests.letta.conftest import OpenSpace
from tests.letta.helpers import digest
from tests.letta.killing import killed_writing
from tests.letta.sides import AT_ONCE
from tests.remote.apart import Host, Machine

Json = dict[str, Any]

KEY = f"conversation:{CONVERSATION}"


class Real:
    """A machine: Letta's home, and a space."""

    def __init__(self, home: LettaHome, space: Space) -> None:
        self.home = home
        self.machine = Machine(space)
        self.root = home.storage

    @property
    def space(self) -> Space:
        return self.machine.space

    def memory(self, agent: str, path: Path) -> object:
        known = self.space.repo.get(MEMORY, agent)
        return None if known is None else restore_memory(self.space, agent, path)

    def store_memories(self) -> None:
        for path in (self.root / "memfs").glob("*/memory"):
            store_memory(self.space, path.parent.name, path)

    def reconcile(self) -> None:
        reconcile(self.space, self.root, part=diverge, rest=AT_ONCE)

    def sync(self, host: Host) -> None:
        self.machine.sync(host)
        self.reconcile()
        self.machine.sync(host)

    def asked(self, prompt: str, conversation: str = CONVERSATION) -> Json:
        """A turn; what the model received for it first."""
        mark = self.home.provider.mark()
        self.home.ask(prompt, conversation=conversation)
        body: Json = self.home.provider.requests[mark].body
        return body

    def loaded(self, key: str) -> list[Json]:
        """The messages that Letta opens a conversation with."""
        return load_window(read_rows(self.root, key), in_context_ids(self.root, key))


def started(lab: Lab, name: str) -> LettaHome:
    """Tools, thinking, a picture, a memory edit, a compaction with a tail."""
    home = lab.home(name)
    edit = (
        'cd "$MEMORY_DIR" && printf -- "---\\nname: facts\\ndescription: f\\n---\\nteal\\n"'
        " > facts.md && git add -A && git commit -qm teal"
    )
    go = lab.script(
        name,
        Reply("Looking.", thinking="In the note?", calls=(bash("cat note.txt"),)),
        Reply(calls=(read(home, "picture.png"), bash(edit))),
        Reply("Two jars, one picture."),
    )
    with home.session() as session:
        for prompt in ("first", "second", f"look {go}"):
            session.ask(prompt)
    with home.app_server() as server:
        server.compact(CONVERSATION, "sliding_window", 0.3)
    return home


def test_the_other_machine_goes_on(letta_lab: Lab, open_space: OpenSpace, tmp_path: Path) -> None:
    """o41, o42, o43 with the real thing: the model at B is given what it would be given at A."""
    host = Host()
    a = Real(started(letta_lab, "restore_a"), open_space("a"))
    b = Real(letta_lab.home("elsewhere/restore_b"), open_space("b"))
    before = digest(a.root / "conversations"), digest(a.root / "agents")
    a.sync(host)
    assert (digest(a.root / "conversations"), digest(a.root / "agents")) == before
    b.machine.sync(host)
    report = restore(b.space, b.root, memory=b.memory, rest=AT_ONCE)
    assert not report.left
    again = digest(b.root)
    restore(b.space, b.root, memory=b.memory, rest=AT_ONCE)
    assert digest(b.root) == again
    hash_before = b.space.repo.set_hash().state
    b.reconcile()
    assert b.space.repo.set_hash().state == hash_before

    # What the model is sent at A is what it is sent at B, but for what is said now.
    at_b = b.asked("Go on.")
    b.sync(host)
    a.sync(host)
    assert a.loaded(KEY) == b.loaded(KEY)
    at_a = a.asked("And on.")
    assert at_b["messages"][0] == at_a["messages"][0]
    count = len(at_b["messages"])
    assert at_a["messages"][: count - 1] == at_b["messages"][:-1]
    assert at_a["tools"] == at_b["tools"]
    assert len(read_messages(b.root, KEY)) == len(read_messages(a.root, KEY)) - 2

    # Both go on, each without knowing of the other.
    b.asked("Only at B.")
    a.sync(host)
    b.sync(host)
    a.sync(host)
    assert len(a.space.conversations()) == len(b.space.conversations())
    assert differences(a.space, a.root) == differences(b.space, b.root) == []
    windows = [
        sorted(
            [text_of(each) for each in side.loaded(key)]
            for key in conversation_keys(side.root)
            if key != KEY.replace("conversation", "default")
        )
        for side in (a, b)
    ]
    assert windows[0] == windows[1]
    for side, mine, other in ((a, "And on.", "Only at B."), (b, "Only at B.", "And on.")):
        assert any(mine in text_of(each) for each in side.loaded(KEY))
        (key,) = (
            key
            for key in conversation_keys(side.root)
            if any(other in text_of(each) for each in side.loaded(key))
        )
        assert key != KEY
        body = side.asked("Resumed.", key.partition(":")[2])
        assert any(other in str(each["content"]) for each in body["messages"])
        assert not any(mine in str(each["content"]) for each in body["messages"])


def test_o27_the_named_conversation_wins(letta_lab: Lab, open_space: OpenSpace) -> None:
    """And o34: the directory that it began in is another one, and stays as it was said."""
    home = letta_lab.home("pins_a")
    for prompt in ("about walruses", "about puffins"):
        agent = home.ask(prompt).agent_id
    a = Real(home, open_space("a"))
    a.store_memories()
    import_directory(a.space, a.root)
    b = Real(letta_lab.home("pins_b"), a.space)
    restore(a.space, b.root, memory=b.memory, rest=AT_ONCE)
    for path in (b.home.path / SETTINGS, b.home.work / PROJECT_SETTINGS):
        pin(path, b.root, agent, "local-conv-2")
    key = "conversation:local-conv-2"
    before = digest(conversation_dir(b.root, key))
    count = len(read_messages(b.root, KEY))
    assert "puffins" not in str(b.asked("three")["messages"])
    assert digest(conversation_dir(b.root, key)) == before
    assert len(read_messages(b.root, KEY)) == count + 2
    assert read_rows(b.root, KEY)[0]["cwd"] == str(home.work)


def test_letta_opens_what_a_kill_left(letta_lab: Lab, open_space: OpenSpace) -> None:
    """Rows are there, and are not listed yet; Letta goes on, and nothing is lost."""
    home = letta_lab.copy("turns", "killed_a")
    a = Real(home, open_space("a"))
    a.reconcile()
    uri = next(info.uri for info in a.space.conversations() if info.messages)
    talk = a.space.conversation(uri)
    talk.append({"role": "user", "content": [{"type": "text", "text": "by the library"}]})
    files = conversation_dir(a.root, KEY)
    rows = (files / "messages.jsonl").read_bytes()
    where, path = a.space.home, a.root
    a.space.close()

    def work() -> None:
        with Space.open(where) as space:
            reconcile(space, path, part=diverge, rest=AT_ONCE)

    step = 0
    while (files / "messages.jsonl").read_bytes() == rows:
        assert killed_writing(work, step)
        step += 1
    body = a.asked("Go on.")
    assert "by the library" not in str(body["messages"])
    with Space.open(where) as space:
        reconcile(space, path, part=diverge, rest=AT_ONCE)
        assert differences(space, path) == []
        said = [
            [text_of(each.payload()) for each in space.transcript(info.uri)]
            for info in space.conversations()
            if info.messages
        ]
    assert sorted(len(each) for each in said) == [11, 12]
    assert any("by the library" in each for each in said)
    assert any("Go on." in text for each in said for text in each)
    assert (files / "messages.jsonl").read_bytes().startswith(rows)


@pytest.mark.parametrize("name", SCENARIOS)
def test_round_trip(letta_lab: Lab, open_space: OpenSpace, tmp_path: Path, name: str) -> None:
    root = letta_lab(name)
    space = open_space("a")
    import_directory(space, root)
    state = space.repo.set_hash().state
    agents = [record.rkey for record in space.repo.records("xyz.quasigod.lab.letta.agent")]
    out = tmp_path / "out"
    report = restore(space, out, agents=agents, rest=AT_ONCE)
    assert not report.left
    assert conversation_keys(out) == conversation_keys(root)
    for key in conversation_keys(root):
        windows = [
            load_window(read_rows(each, key), in_context_ids(each, key)) for each in (root, out)
        ]
        assert windows[0] == windows[1]
    before = digest(out)
    assert restore(space, out, agents=agents).written == 0
    assert digest(out) == before
    assert import_directory(space, out).written == 0
    assert reconcile(space, out, part=diverge, rest=AT_ONCE).written == 0
    assert space.repo.set_hash().state == state
    assert digest(out) == before
    # As somebody reads it who was told nothing of it.
    out.rename(tmp_path / "moved")
    assert import_directory(space, tmp_path / "moved").written == 0
    assert space.repo.set_hash().state == state
