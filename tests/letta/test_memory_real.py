"""The real Letta Code on two machines, and its memory between them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from lettaspace.atproto.data import blob_refs
from lettaspace.conversation.records import MEMORY
from lettaspace.conversation.space import Space
from lettaspace.letta.importer import import_directory
from lettaspace.letta.memories import Outcome, restore, store
from lettaspace.space.writes import Create, Update
from tests.conversation.memories import git
from tests.lab.driver import LettaHome
from tests.lab.lab import Lab
from tests.lab.provider import Call, Reply
from tests.lab.store import conversation_dir
from tests.letta.conftest import OpenSpace

PAGE = "---\\nname: {0}\\ndescription: {0}\\n---\\n{1}\\n"
MOD = (
    "import {writeFileSync} from 'node:fs';\\n"
    "writeFileSync(process.env.HOME + '/ran.txt', 'ran');\\n"
    "export default function activate() {}\\n"
)


def remember(lab: Lab, home: LettaHome, files: dict[str, str], *flags: str) -> str:
    """The model writes files into its memory and commits them, with Letta's own hooks; the
    agent's id."""
    writes = [
        f'mkdir -p $(dirname {file}) && printf -- "{text}" > {file}' for file, text in files.items()
    ]
    command = " && ".join(['cd "$MEMORY_DIR"', *writes, "git add -A", "git commit -qm more"])
    call = Call("Bash", {"command": command, "description": "remember"})
    go = lab.script(f"memory-{home.path.name}", Reply(calls=(call,)), Reply("Remembered."))
    return home.ask(f"remember {go}", *flags).agent_id


def compiled(home: LettaHome, agent: str) -> tuple[str, str]:
    """The system prompt of a new conversation as the model got it, and core memory in it."""
    mark = home.provider.mark()
    answer = home.ask("Who are you?", "--agent", agent)
    (system, *_) = home.provider.requests[mark].body["messages"]
    key = f"conversation:{answer.conversation_id}"
    record = json.loads(
        (conversation_dir(home.storage, key) / "system-prompt.json").read_text("utf-8")
    )
    assert record["coreMemory"] in record["content"]
    return str(system["content"]), str(record["coreMemory"])


def hand_over(source: Space, target: Space) -> None:
    """The record and its blobs, as a sync brings them."""
    for record in source.repo.records(MEMORY):
        blobs = {cid: source.repo.get_blob(cid) for cid in blob_refs(record.value)}
        is_there = target.repo.get(MEMORY, record.rkey) is not None
        write = (Update if is_there else Create)(MEMORY, record.rkey, record.value)
        target.repo.apply_writes([write], blobs=blobs)


def memory(home: LettaHome, agent: str) -> Path:
    return home.storage / "memfs" / agent / "memory"


def test_memory_goes_to_another_machine_and_back(letta_lab: Lab, open_space: OpenSpace) -> None:
    one, other = letta_lab.home("memory-one"), letta_lab.home("far/away/memory-other")
    here, there = open_space("one"), open_space("other")
    ember = PAGE.format("facts", "The kiln is called Ember.")
    agent = remember(letta_lab, one, {"facts.md": ember, "mods/hello.js": MOD})
    prompt, core = compiled(one, agent)
    assert "The kiln is called Ember." in core
    assert (one.path / "ran.txt").exists(), "Letta runs what lies in mods/"
    import_directory(here, one.storage)
    assert store(here, agent, memory(one, agent)).outcome is Outcome.STORED

    # The other machine has the agent's file, and everything else of its memory by restoring.
    shutil.copytree(one.storage / "agents", other.storage / "agents")
    import_directory(there, one.storage)
    hand_over(here, there)
    report = restore(there, agent, memory(other, agent))
    assert (report.outcome, report.left_out) == (Outcome.RESTORED, ("mods/hello.js",))
    before = git(memory(one, agent), "config", "--local", "-l")
    assert compiled(other, agent) == (prompt, core)
    assert not (other.path / "ran.txt").exists(), "nobody allowed it"
    after = git(memory(other, agent), "config", "--local", "-l").splitlines()
    assert [line for line in after if "sparsecheckout" not in line] == before.splitlines()
    assert git(memory(other, agent), "remote") == ""

    # It goes on there, under hooks that Letta has put in again, and the code stays as it was.
    cinder = PAGE.format("facts", "The kiln is called Cinder.")
    remember(letta_lab, other, {"facts.md": cinder}, "--agent", agent)
    assert (memory(other, agent) / ".git/hooks/pre-commit").exists()
    assert git(memory(other, agent), "status", "--porcelain") == ""
    prompt, core = compiled(other, agent)
    assert "Cinder" in core
    assert restore(there, agent, memory(other, agent)).outcome is Outcome.CURRENT
    assert store(there, agent, memory(other, agent)).outcome is Outcome.STORED

    hand_over(there, here)
    assert restore(here, agent, memory(one, agent)).outcome is Outcome.FORWARDED
    assert (memory(one, agent) / "mods/hello.js").exists()
    assert compiled(one, agent) == (prompt, core)
