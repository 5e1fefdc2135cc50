"""Public failures as small inputs, restored, and read by the real Letta Code: each conversation is
opened by it, its model is given what was said, and what was restored stays byte for byte."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lettaspace.conversation.space import Space
from lettaspace.letta.agentmemories import AgentMemories
from lettaspace.letta.importer import import_directory
from lettaspace.letta.reconciling import reconcile
from lettaspace.letta.restoring import restore
from lettaspace.remote.branches import diverge
from tests.conversation.memories import git
from tests.lab.driver import LettaHome, png
from tests.lab.lab import Lab
from tests.lab.scenarios import encoded
from tests.lab.store import conversation_dir, in_context_ids, load_window, read_rows, text_of
from tests.letta.build import Store, at, b1, call, message, result, row, rows, session, text
from tests.letta.conftest import OpenSpace
from tests.letta.helpers import digest
from tests.letta.sides import AT_ONCE, append
from tests.remote.apart import Host, Machine

Json = dict[str, Any]


@dataclass
class Machines:
    """A writes; B is given what the space has. `agent` is one that the real Letta made."""

    lab: Lab
    a: Path
    home: LettaHome
    space: Space
    agent: str

    @property
    def b(self) -> Path:
        return self.home.storage

    def talk(self, number: int, made: Sequence[Json], **more: Any) -> str:
        """A conversation at A; its key."""
        key = f"conversation:local-conv-{number}"
        messages = [_owned(each, self.agent, number) for each in made]
        Store(self.a).conversation(messages, key=key, agent=self.agent, created=at(-number), **more)
        return key

    def bring(self) -> None:
        import_directory(self.space, self.a)
        memory = AgentMemories(self.space, self.b, store=False)
        restore(self.space, self.b, memory=memory, rest=AT_ONCE)

    def opened(self, key: str, *said: str) -> list[Json]:
        """Letta goes on with a conversation at B, and its model is given these texts; what it
        loaded."""
        rows_file = conversation_dir(self.b, key) / "messages.jsonl"
        before = rows_file.read_bytes()
        loaded = load_window(read_rows(self.b, key), in_context_ids(self.b, key))
        mark = self.home.provider.mark()
        self.home.ask("And now?", conversation=key.partition(":")[2])
        sent = self.home.provider.requests[mark].body["messages"]
        for each in (*said, "And now?"):
            assert any(each in str(one.get("content")) for one in sent), each
        assert rows_file.read_bytes().startswith(before)
        after = read_rows(self.b, key)
        assert [each["message"]["role"] for each in after[-2:]] == ["user", "assistant"]
        return loaded


def _owned(made: Json, agent: str, number: int) -> Json:
    if "message" not in made:
        return made
    owner = {"agent_id": agent, "conversation_id": f"local-conv-{number}"}
    inner = made["message"]
    return {**made, "message": {**inner, "metadata": {**inner["metadata"], **owner}}}


@pytest.fixture
def machines(
    letta_lab: Lab, open_space: OpenSpace, tmp_path: Path, request: pytest.FixtureRequest
) -> Machines:
    name = request.node.name.removeprefix("test_").partition("[")[0]
    first = letta_lab.copy("deterministic", f"cases_a_{name}")
    home = letta_lab.home(f"cases/b_{name}")
    (agent,) = [
        str(value["id"])
        for value in map(_json, (first.storage / "agents").glob("*.json"))
        if not value.get("hidden")
    ]
    return Machines(letta_lab, first.storage, home, open_space("a"), agent)


def _json(path: Path) -> Json:
    from lettaspace.conversation import jsontext

    value: Json = jsontext.loads(path.read_bytes())
    return value


def test_o33_o34_o41_o42_o43_what_was_said_is_what_letta_reads(machines: Machines) -> None:
    steps = [
        message(1, "user", "go"),
        message(2, "assistant", [text("one"), call("c1", "ls", {})], stopReason="toolUse"),
        result(3, "c1", "r1"),
        message(4, "assistant", [text("two"), call("c2", "ls", {})], stopReason="toolUse"),
        result(5, "c2", "r2"),
        message(6, "assistant", "three"),
    ]
    thoughts: list[Json] = [
        {"type": "thinking", "thinking": " t ", "thinkingSignature": "s=="},
        {"type": "thinking", "thinking": "", "thinkingSignature": "s2"},
        {"type": "thinking", "thinking": "none"},
        {"type": "thinking", "thinking": "x", "extra": {"b": 1, "a": [1.0]}},
        text("thought over"),
    ]
    picture = {"type": "image", "mimeType": "image/png", "data": encoded(png(2, 2, (9, 9, 9)))}
    exact = [
        *b1(),
        message(5, "user", [text("See?"), picture]),
        message(6, "assistant", thoughts),
    ]
    o42 = machines.talk(42, rows(steps, cwd="/home-of-a/plum"))
    o41 = machines.talk(41, rows(exact, cwd="/nowhere/otter"))
    machines.bring()
    for key, made, cwd in ((o42, steps, "/home-of-a/plum"), (o41, exact, "/nowhere/otter")):
        given = [each["message"] for each in read_rows(machines.a, key)[1:]]
        assert [each["message"] for each in read_rows(machines.b, key)[1:]] == given
        assert len(given) == len(made)
        # The directory of the other machine is not here; it stays said, and keeps nobody out.
        assert read_rows(machines.b, key)[0]["cwd"] == cwd
    machines.opened(o42, "go", "one", "r1", "two", "r2", "three")
    loaded = machines.opened(o41, "Two jars: plum and fig.", "See?", "thought over")
    assert [each["role"] for each in loaded][-2:] == ["user", "assistant"]
    # A second trip says the same of it, row for row.
    before = machines.space.repo.set_hash().state
    assert import_directory(machines.space, machines.a).written == 0
    assert machines.space.repo.set_hash().state == before


def test_o49_o50_o61_o62_what_was_kept_opens(machines: Machines) -> None:
    """One that is old, one whose rows are of two kinds, one that is cut off at B."""
    legacy = message(2, "assistant", "by an older Letta")
    legacy["parts"] = legacy.pop("content")
    mixed = [
        session(),
        legacy,
        *rows([message(3, "user", "new"), message(4, "assistant", "ok")])[1:],
    ]
    old = machines.talk(61, rows(b1()))
    odd = machines.talk(50, mixed, window=["ui-msg-3", "ui-msg-4"])
    many = [
        message(number, "user" if number % 2 else "assistant", f"line {number}")
        for number in range(1, 52)
    ]
    long = machines.talk(62, rows(many))
    for path in conversation_dir(machines.a, old).iterdir():
        os.utime(path, (1_000_000_000, 1_000_000_000))
    before = digest(machines.a)
    # An import that was stopped after one goes on with the others.
    machines.bring()
    assert digest(machines.a) == before
    rows_file = conversation_dir(machines.b, long) / "messages.jsonl"
    whole = rows_file.read_bytes()
    cut = b"".join(whole.splitlines(keepends=True)[:10])
    rows_file.write_bytes(cut)
    report = restore(machines.space, machines.b, rest=AT_ONCE)
    assert not report.left
    assert rows_file.read_bytes().startswith(cut)
    loaded = machines.opened(long, "line 1", "line 9", "line 51")
    assert [text_of(each) for each in loaded] == [f"line {number}" for number in range(1, 52)]
    machines.opened(old, "List the jars.", "plum")
    machines.opened(odd, "new", "ok")


def test_o27_o31_o32_two_machines_count_alike(machines: Machines, open_space: OpenSpace) -> None:
    host, other = Host(), Machine(open_space("b"))
    mine = Machine(machines.space)
    jars = machines.talk(92, rows(b1()))
    # At B its own Letta began another talk under the same name.
    boats = [message(1, "user", "About boats."), message(2, "assistant", "Three of them.")]
    there = Store(machines.b)
    agent = "agent-local-boats"
    first = _json(next((machines.a / "agents").glob("*.json")))
    there.agent(agent, **{name: first[name] for name in ("system", "model", "model_settings")})
    owned = [_owned(each, agent, 92) for each in rows(boats)]
    there.conversation(owned, key=jars, agent=agent, created=at(-500))
    own = digest(conversation_dir(machines.b, jars))
    for _ in range(2):
        for machine, path in ((mine, machines.a), (other, machines.b)):
            machine.sync(host)
            reconcile(machine.space, path, part=diverge, rest=AT_ONCE)
            machine.sync(host)
    assert digest(conversation_dir(machines.b, jars)) == own
    moved = f"{jars}~m2"
    kept = digest(conversation_dir(machines.b, jars))
    machines.opened(moved, "List the jars.", "plum")
    assert digest(conversation_dir(machines.b, jars)) == kept, "the named conversation wins"
    assert {each.letta["id"] for each in mine.space.conversations() if each.messages} >= {
        "local-conv-92"
    }
    append(machines.a, [row(message(5, "user", "more"), "0000000a", "e4")], jars)
    for machine, path in ((mine, machines.a), (other, machines.b), (mine, machines.a)):
        machine.sync(host)
        reconcile(machine.space, path, part=diverge, rest=AT_ONCE)
        machine.sync(host)
    again = reconcile(mine.space, machines.a, part=diverge, rest=AT_ONCE)
    assert (again.written, again.imported.messages.new) == (0, 0)


def test_o59_memories_that_went_apart_stay_where_they_are(machines: Machines) -> None:
    key = machines.talk(59, rows(b1()))
    machines.bring()
    reconcile(machines.space, machines.a, part=diverge, rest=AT_ONCE)
    here = machines.a / "memfs" / machines.agent / "memory"
    report = reconcile(machines.space, machines.b, part=diverge, rest=AT_ONCE)
    there = machines.b / "memfs" / machines.agent / "memory"
    assert there.is_dir(), report.to_json()["memories"]
    persona = "---\nname: persona\ndescription: p\n---\n"
    for place, word in ((here, "Cold."), (there, "Dry.")):
        (place / "persona.md").write_text(persona + word + "\n")
        git(place, "add", "-A")
        git(place, "commit", "-q", "-m", word)
    reconcile(machines.space, machines.a, part=diverge, rest=AT_ONCE)
    head = git(there, "rev-parse", "HEAD")
    report = reconcile(machines.space, machines.b, part=diverge, rest=AT_ONCE)
    (memory,) = report.memories
    assert not memory.ok
    assert memory.conflicts == ("persona.md",)
    assert git(there, "rev-parse", "HEAD") == head
    assert git(there, "status", "--porcelain") == ""
    machines.opened(key, "List the jars.", "Dry.")
