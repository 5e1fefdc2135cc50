"""Compiled prompts: compiling in place, staleness, updates, size; and as the real Letta does."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lettaspace.conversation.codec import encode
from lettaspace.conversation.memory import MemoryDirectory, MemoryKind
from lettaspace.conversation.prompt import (
    MAX_BYTES,
    PromptStatus,
    compile_prompt,
    prompt_state,
    update_memory,
)
from lettaspace.conversation.promptparts import shown_messages, template_hash
from lettaspace.conversation.records import (
    AGENT,
    COMPILED_PROMPT,
    CONVERSATION_STATE,
    LOCAL_AGENT,
    envelope,
)
from lettaspace.conversation.space import Space
from lettaspace.errors import Damaged, InvalidInput, InvalidRecord, NotFound
from lettaspace.letta.importer import import_directory
from lettaspace.space.writes import Create, Update
from tests.conversation.memories import CONVERSATION as LETTA_ID
from tests.conversation.memories import Prompts, commit, git, init, running_letta
from tests.conversation.talk import Talk, call, text
from tests.lab.lab import Lab

AT = datetime(2026, 5, 3, 9, 5, 1, 250_999, tzinfo=UTC)
TEMPLATE = "You keep the jars.\n\n{CORE_MEMORY}\n"
FILES = {"MEMORY.md": b"# Index\n", "persona.md": b"---\ndescription: me\n---\nWarm.\n"}
CORE = "<persona>\n<description>me</description>\nWarm.\n</persona>\n\n<memory>\n# Index\n</memory>"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = init(tmp_path / "memory")
    commit(path, FILES)
    return path


@pytest.fixture
def memory(path: Path) -> MemoryDirectory:
    return MemoryDirectory(path)


@pytest.fixture
def talk(space: Space) -> Talk:
    talk = Talk(space)
    set_agent(talk, system=TEMPLATE)
    return talk


def set_agent(talk: Talk, **fields: Any) -> None:
    value = {"name": "Otter", **fields}
    talk.space.repo.apply_writes([Update(AGENT, "agent-otter", value)])


def digest(space: Space) -> tuple[str | None, bytes]:
    return space.repo.rev(), bytes(space.repo.set_hash().state)


def test_the_record(talk: Talk, memory: MemoryDirectory, path: Path) -> None:
    record = compile_prompt(talk.space, talk.uri, memory=memory, now=AT)
    assert record.rkey == talk.rkey
    assert record.value == {
        "$type": COMPILED_PROMPT,
        "agent": talk.agent,
        "conversation": talk.uri,
        "content": f"You keep the jars.\n\n{CORE}\n",
        "coreMemory": CORE,
        "compiledAt": "2026-05-03T09:05:01.250Z",
        "rawSystemHash": hashlib.sha256(TEMPLATE.encode()).hexdigest(),
        "memfsRevision": git(path, "rev-parse", "HEAD"),
    }
    assert talk.space.prompt(talk.rkey) == record
    assert list(talk.space.verify()) == []


def test_recompiling_keeps_the_key_and_changes_the_cid(talk: Talk, memory: MemoryDirectory) -> None:
    first = compile_prompt(talk.space, talk.uri, memory=memory, now=AT)
    second = compile_prompt(talk.space, talk.rkey, memory=memory, now=AT + timedelta(seconds=1))
    assert second.rkey == first.rkey == talk.rkey
    assert second.cid != first.cid
    assert list(talk.space.repo.records(COMPILED_PROMPT)) == [second]
    before = digest(talk.space)
    assert compile_prompt(talk.space, talk.uri, memory=memory, now=datetime.fromisoformat(
        second.value["compiledAt"])) == second  # fmt: skip
    assert digest(talk.space) == before


def test_now_is_the_default(talk: Talk, memory: MemoryDirectory) -> None:
    record = compile_prompt(talk.space, talk.uri, memory=memory)
    at = datetime.fromisoformat(record.value["compiledAt"])
    assert abs(datetime.now(UTC) - at) < timedelta(minutes=1)
    with pytest.raises(InvalidInput, match="timezone"):
        compile_prompt(talk.space, talk.uri, memory=memory, now=AT.replace(tzinfo=None))


@pytest.mark.parametrize(
    "template",
    [
        "Bare",
        "Bare \n\n",
        "",
        "{CORE_MEMORY}{CORE_MEMORY}",
        "crlf\r\n{CORE_MEMORY}",
        "é 語 🧪\u2028",
    ],
)
@pytest.mark.parametrize("body", [b"plain", b"$& $$ $` $'", b"{CORE_MEMORY}", b"\\1 \\g<0>"])
def test_core_memory_always_stands_in_content(
    talk: Talk, path: Path, template: str, body: bytes
) -> None:
    commit(path, {**FILES, "x.md": body})
    memory = MemoryDirectory(path)
    value = compile_prompt(talk.space, talk.uri, template=template, memory=memory, now=AT).value
    assert value["coreMemory"] in value["content"]
    assert body.decode() in value["coreMemory"]
    assert value["rawSystemHash"] == hashlib.sha256(template.encode()).hexdigest()
    assert not prompt_state(talk.space, talk.uri, template=template, memory=memory).updated


def test_the_template_of_an_agent_with_a_long_one(talk: Talk, memory: MemoryDirectory) -> None:
    long = "é" * 60_000
    encoded = encode({"id": "agent-letta", "system": long})
    state = envelope(LOCAL_AGENT, 1, encoded.value)
    value = {"name": "Otter", "state": state}
    talk.space.repo.apply_writes([Update(AGENT, "agent-otter", value)], blobs=encoded.blobs)
    record = compile_prompt(talk.space, talk.uri, memory=memory, now=AT)
    assert record.value["content"] == f"{long}\n\n{CORE}"
    assert record.value["rawSystemHash"] == hashlib.sha256(long.encode()).hexdigest()


def test_what_is_missing_is_said(talk: Talk, memory: MemoryDirectory, space: Space) -> None:
    set_agent(talk)
    with pytest.raises(NotFound, match="has no template"):
        compile_prompt(space, talk.uri, memory=memory)
    with pytest.raises(NotFound, match="no conversation 3lalalalala33"):
        compile_prompt(space, "3lalalalala33", memory=memory, template="x")
    with pytest.raises(NotFound, match="no compiled prompt"):
        update_memory(space, talk.uri, memory)
    with pytest.raises(InvalidRecord, match="half a character"):
        compile_prompt(space, talk.uri, memory=memory, template="x\ud83c")
    assert space.prompt(talk.rkey) is None


def no_commits(path: Path) -> None:
    shutil.rmtree(path)
    init(path)


def broken(path: Path) -> None:
    (path / ".git/HEAD").write_text("1" * 40 + "\n")


def no_tree(path: Path) -> None:
    tree = git(path, "rev-parse", "HEAD^{tree}")
    (path / ".git/objects" / tree[:2] / tree[2:]).unlink()


@pytest.mark.parametrize(
    ("harm", "error"),
    [(shutil.rmtree, NotFound), (no_commits, NotFound), (broken, Damaged), (no_tree, Damaged)],
)
def test_unreadable_memory_is_never_an_empty_one(
    talk: Talk, memory: MemoryDirectory, path: Path, harm: Callable[[Path], object], error: type
) -> None:
    record = compile_prompt(talk.space, talk.uri, memory=memory, now=AT)
    harm(path)
    before = digest(talk.space)
    with pytest.raises(error):
        compile_prompt(talk.space, talk.uri, memory=memory)
    with pytest.raises(error):
        update_memory(talk.space, talk.uri, memory)
    state = prompt_state(talk.space, talk.uri, memory=memory)
    assert state.status == PromptStatus.UNKNOWN
    assert str(path) in state.reason
    assert state.memory_changed is None
    assert digest(talk.space) == before
    assert talk.space.prompt(talk.rkey) == record


def test_an_agent_without_memory(talk: Talk) -> None:
    talk.add("one", 1)
    record = compile_prompt(talk.space, talk.uri, memory=None, now=AT)
    assert "memfsRevision" not in record.value
    assert record.value["coreMemory"] == (
        "<memory_metadata>\n- AGENT_ID: agent-otter\n- CONVERSATION_ID: 3lalalalala22\n"
        "- System prompt last recompiled: 2026-05-03 09:05:01 AM UTC+0000\n"
        "- 1 previous messages between you and the user are stored in recall memory\n"
        "</memory_metadata>"
    )


# O14: limits count bytes.


@pytest.mark.parametrize(
    ("template", "fits"), [("a" * 200_000, True), ("é" * 100_001, False), ("語" * 66_667, False)]
)
def test_o14_prompts_are_limited_in_bytes(
    talk: Talk, path: Path, template: str, fits: bool
) -> None:
    commit(path, {"MEMORY.md": b""})
    memory = MemoryDirectory(path)
    old = compile_prompt(talk.space, talk.uri, memory=memory, template="old", now=AT)
    core = old.value["coreMemory"]
    # The core memory belongs to the prompt, so the template is shorter by as much.
    given = "{CORE_MEMORY}" + template[len(core) :] if fits else template
    before = digest(talk.space)
    if fits:
        record = compile_prompt(talk.space, talk.uri, memory=memory, template=given, now=AT)
        assert len(record.value["content"].encode()) == MAX_BYTES
        more = f"{given}a"
    else:
        more, record = given, old
    if fits:
        before = digest(talk.space)
    with pytest.raises(InvalidRecord, match=r"too large: content has 2000\d\d bytes of 200000"):
        compile_prompt(talk.space, talk.uri, memory=memory, template=more, now=AT)
    assert talk.space.prompt(talk.rkey) == record
    assert digest(talk.space) == before


def test_o14_core_memory_is_limited_too(talk: Talk, path: Path) -> None:
    memory = MemoryDirectory(path)
    old = compile_prompt(talk.space, talk.uri, memory=memory, now=AT)
    commit(path, {"MEMORY.md": "語".encode() * 66_667})
    for attempt in (
        lambda: compile_prompt(talk.space, talk.uri, memory=memory),
        lambda: update_memory(talk.space, talk.uri, memory),
    ):
        with pytest.raises(InvalidRecord, match="too large"):
            attempt()
    assert talk.space.prompt(talk.rkey) == old
    assert prompt_state(talk.space, talk.uri, memory=memory).status == "memory-changed"


def test_o14_an_imported_oversize_prompt_is_seen(talk: Talk, memory: MemoryDirectory) -> None:
    values = {"content": "x" * 200_001, "coreMemory": "x", "rawSystemHash": template_hash(TEMPLATE)}
    encoded = encode({**values, "memfsRevision": memory.state().revision})
    state = {
        "conversation": talk.uri,
        "updatedAt": "2026-05-03T09:05:01.250Z",
        "oversizePrompt": envelope("letta.compiledPrompt", 1, encoded.value),
    }
    write = Create(CONVERSATION_STATE, talk.rkey, state)
    talk.space.repo.apply_writes([write], blobs=encoded.blobs)
    found = prompt_state(talk.space, talk.uri, memory=memory)
    assert (found.status, found.oversize, found.updated) == (PromptStatus.FRESH, True, False)
    compile_prompt(talk.space, talk.uri, memory=memory)
    assert not prompt_state(talk.space, talk.uri, memory=memory).oversize


# O60: the matrix of staleness.

STATUSES = {
    ("same", "same"): PromptStatus.FRESH,
    ("changed", "same"): PromptStatus.TEMPLATE_CHANGED,
    ("same", "moved"): PromptStatus.MEMORY_CHANGED,
    ("changed", "moved"): PromptStatus.BOTH,
    ("same", "identical"): PromptStatus.FRESH,
    ("changed", "identical"): PromptStatus.TEMPLATE_CHANGED,
    ("same", "absent"): PromptStatus.UNKNOWN,
    ("changed", "absent"): PromptStatus.UNKNOWN,
}


@pytest.mark.parametrize("dirty", [False, True])
@pytest.mark.parametrize(("template", "revision"), STATUSES)
@pytest.mark.parametrize("layout", ["v2", "v1"])
def test_o60_states(
    talk: Talk, path: Path, layout: str, template: str, revision: str, dirty: bool
) -> None:
    files = FILES if layout == "v2" else {"system/persona.md": b"Warm.", "notes/x.md": b"x"}
    commit(path, files)
    memory = MemoryDirectory(path)
    stored = compile_prompt(talk.space, talk.uri, memory=memory, now=AT)
    if revision == "absent":
        value = {key: each for key, each in stored.value.items() if key != "memfsRevision"}
        talk.space.repo.apply_writes([Update(COMPILED_PROMPT, talk.rkey, value)])
    if revision == "moved":
        page = "persona.md" if layout == "v2" else "system/persona.md"
        commit(path, {**files, page: b"Cold."})
    if revision == "identical":
        commit(path, {**files, "picture.png": b"in no prompt"})
    if dirty:
        (path / "MEMORY.md").write_bytes(b"not committed")
        (path / "new.md").write_bytes(b"not committed")
    if template == "changed":
        set_agent(talk, system=f"{TEMPLATE} ")  # one byte
    before = digest(talk.space)

    state = prompt_state(talk.space, talk.uri, memory=memory)

    assert state.status == STATUSES[template, revision]
    assert state.template_changed is (template == "changed")
    assert state.memory_changed is (None if revision == "absent" else revision == "moved")
    assert state.revision_moved is (
        None if revision == "absent" else revision in ("moved", "identical")
    )
    assert state.text_same is (revision == "identical")
    assert state.uncommitted == (("MEMORY.md", "new.md") if dirty else ())
    assert state.conflicts == ()
    assert not state.updated
    assert bool(state.reason) is (revision == "absent")
    # Checking wrote nothing.
    assert digest(talk.space) == before

    again = compile_prompt(talk.space, talk.uri, memory=memory, now=AT + timedelta(seconds=1))
    assert again.rkey == stored.rkey
    assert again.cid != stored.cid
    after = prompt_state(talk.space, talk.uri, memory=memory)
    assert (after.status, after.text_same) == (PromptStatus.FRESH, False)
    assert after.uncommitted == state.uncommitted


def test_o60_missing(talk: Talk, memory: MemoryDirectory, path: Path) -> None:
    (path / "new.md").write_bytes(b"x")
    state = prompt_state(talk.space, talk.uri, memory=memory)
    assert (state.status, state.uncommitted) == (PromptStatus.MISSING, ("new.md",))
    with pytest.raises(NotFound):
        prompt_state(talk.space, "3lalalalala33", memory=memory)


@pytest.mark.parametrize(
    "template", [TEMPLATE.replace("\n", "\r\n"), TEMPLATE.rstrip(), TEMPLATE + "\ufeff", "e\u0301"]
)
def test_o60_hashing_is_over_exact_bytes(
    talk: Talk, memory: MemoryDirectory, template: str
) -> None:
    compile_prompt(talk.space, talk.uri, memory=memory)
    changed = prompt_state(talk.space, talk.uri, memory=memory, template=template)
    assert changed.status == PromptStatus.TEMPLATE_CHANGED
    compile_prompt(talk.space, talk.uri, memory=memory, template="\u00e9")
    composed = prompt_state(talk.space, talk.uri, memory=memory, template="e\u0301")
    assert composed.status == PromptStatus.TEMPLATE_CHANGED


def test_o60_without_memory_the_template_alone_is_judged(
    talk: Talk, memory: MemoryDirectory
) -> None:
    compile_prompt(talk.space, talk.uri, memory=memory)
    state = prompt_state(talk.space, talk.uri)
    assert (state.status, state.memory_changed, state.memory) == (PromptStatus.FRESH, None, None)
    changed = prompt_state(talk.space, talk.uri, template="other")
    assert changed.status == PromptStatus.TEMPLATE_CHANGED
    set_agent(talk)
    unknown = prompt_state(talk.space, talk.uri, memory=memory)
    assert (unknown.status, unknown.template_changed) == (PromptStatus.UNKNOWN, None)
    assert "no template" in unknown.reason


def test_o60_a_detached_head_is_compared_and_said(
    talk: Talk, memory: MemoryDirectory, path: Path
) -> None:
    compile_prompt(talk.space, talk.uri, memory=memory)
    git(path, "checkout", "-q", "--detach")
    state = prompt_state(talk.space, talk.uri, memory=memory)
    assert state.status == PromptStatus.FRESH
    assert state.memory is not None
    assert state.memory.kind == MemoryKind.DETACHED


def test_o59_conflicts_are_named_and_the_commit_is_what_counts(
    talk: Talk, memory: MemoryDirectory, path: Path
) -> None:
    record = compile_prompt(talk.space, talk.uri, memory=memory, now=AT)
    head = git(path, "rev-parse", "HEAD")
    (path / "persona.md").write_bytes(b"<<<<<<< HEAD\nWarm.\n=======\nCold.\n>>>>>>> other\n")
    state = prompt_state(talk.space, talk.uri, memory=memory)
    assert (state.status, state.conflicts) == (PromptStatus.FRESH, ("persona.md",))
    again = compile_prompt(talk.space, talk.uri, memory=memory, now=AT)
    assert again == record
    assert git(path, "rev-parse", "HEAD") == head
    # Once somebody has committed them, they are part of memory, and still named.
    git(path, "commit", "-q", "-a", "-m", "markers")
    state = prompt_state(talk.space, talk.uri, memory=memory)
    assert (state.status, state.conflicts) == (PromptStatus.MEMORY_CHANGED, ("persona.md",))


# Updates in the middle of a conversation.


def test_update(talk: Talk, memory: MemoryDirectory, path: Path) -> None:
    first = compile_prompt(talk.space, talk.uri, memory=memory, now=AT)
    revision = commit(path, {**FILES, "persona.md": b"Cold.\n\n"})
    assert prompt_state(talk.space, talk.uri, memory=memory).status == PromptStatus.MEMORY_CHANGED

    update = update_memory(talk.space, talk.uri, memory, now=AT + timedelta(hours=1))

    core = "<persona>\nCold.\n</persona>\n\n<memory>\n# Index\n</memory>"
    new = {"coreMemory": core, "memfsRevision": revision, "compiledAt": "2026-05-03T10:05:01.250Z"}
    assert update.record.value == {**first.value, **new}
    assert update.record == talk.space.prompt(talk.rkey)
    assert update.record.cid != first.cid
    assert not update.text_same
    assert update.text is not None
    assert update.text.startswith("<memory_update>\n")
    assert update.text.endswith(f"\n\n{core}\n</memory_update>")
    assert f"at revision {revision}." in update.text

    state = prompt_state(talk.space, talk.uri, memory=memory)
    assert (state.status, state.updated) == (PromptStatus.FRESH, True)
    before = digest(talk.space)
    again = update_memory(talk.space, talk.uri, memory)
    assert (again.record, again.text, again.text_same) == (update.record, None, True)
    assert digest(talk.space) == before

    anew = compile_prompt(talk.space, talk.uri, memory=memory)
    assert core in anew.value["content"]
    assert not prompt_state(talk.space, talk.uri, memory=memory).updated


def test_update_to_the_same_text(talk: Talk, memory: MemoryDirectory, path: Path) -> None:
    first = compile_prompt(talk.space, talk.uri, memory=memory, now=AT)
    revision = commit(path, {**FILES, "picture.png": b"x"})
    update = update_memory(talk.space, talk.uri, memory, now=AT + timedelta(seconds=1))
    assert update.text_same
    assert update.text is not None
    later = {"memfsRevision": revision, "compiledAt": "2026-05-03T09:05:02.250Z"}
    assert update.record.value == {**first.value, **later}
    assert not prompt_state(talk.space, talk.uri, memory=memory).updated


# How many messages Letta counts.


@pytest.mark.parametrize(
    ("parts", "count"),
    [
        ([text("a")], 1),
        ([text("a"), text("b")], 1),
        ([{"type": "thinking", "thinking": "t"}, text("a"), call("1"), call("2")], 4),
        ([text("a"), call("1"), text("b")], 3),
        ([{"type": "thinking", "thinking": ""}, text("a")], 1),
        ([text("a"), {"type": "thinking", "thinking": ""}, text("b")], 2),
        ([text("a"), {"type": "image", "data": "", "mimeType": "x/y"}, text("b")], 1),
    ],
)
def test_shown_messages(talk: Talk, parts: list[dict[str, Any]], count: int) -> None:
    talk.add("u", 1)
    talk.add("a", 2, role="assistant", content=parts)
    assert shown_messages(talk.space.active(talk.uri)) == count + 1


# The real Letta Code.


def imported(space: Space, prompts_storage: Path) -> tuple[str, str]:
    """Brings a storage directory in; the TID and URI of its first conversation."""
    report = import_directory(space, prompts_storage)
    assert not report.incomplete
    found = space.conversation(LETTA_ID)
    return found.rkey, found.uri


LAYOUTS = {
    "v2": {**FILES, "facts/MEMORY.md": b"facts", "human.md": b"---\ndescription: h\n---\nTeal."},
    "v1": {
        "system/persona.md": b"---\ndescription: me\n---\nWarm.\n",
        "system/human.md": b"---\ndescription: h\n---\nTeal.\nFig.\n",
        "notes/one.md": b"---\ndescription: n\n---\nx",
    },
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_compiling_an_imported_conversation_gives_lettas_record(
    letta_lab: Lab, space: Space, layout: str
) -> None:
    """A history with thinking, text and tool calls, compiled anew by Letta, then by us."""
    home = letta_lab.copy("tool", f"prompt-{layout}")
    (agent,) = (path.name for path in (home.storage / "memfs").iterdir())
    with home.app_server() as server:
        prompts = Prompts(home, server, agent)
        commit(prompts.memory, LAYOUTS[layout])
        written = prompts.compile()
    rkey, uri = imported(space, home.storage)
    theirs = space.prompt(rkey)
    assert theirs is not None
    assert {key: theirs.value[key] for key in written} == written
    memory = MemoryDirectory(home.storage / "memfs" / agent / "memory")
    state = prompt_state(space, uri, memory=memory)
    assert (state.status, state.updated) == (PromptStatus.FRESH, False)
    ours = compile_prompt(
        space, uri, memory=memory, now=datetime.fromisoformat(written["compiledAt"])
    )
    assert ours == theirs


def test_updating_an_imported_conversation_gives_lettas_record(
    letta_lab: Lab, space: Space, tmp_path: Path
) -> None:
    """The scenario in which the model itself commits to memory, followed commit by commit."""
    storage = letta_lab("memory")
    rkey, uri = imported(space, storage)
    theirs = space.prompt(rkey)
    assert theirs is not None
    (directory,) = (storage / "memfs").iterdir()
    path = tmp_path / "memory"
    git(tmp_path, "clone", "-q", str(directory / "memory"), str(path))
    memory = MemoryDirectory(path)
    state = prompt_state(space, uri, memory=memory)
    assert (state.status, state.updated) == (PromptStatus.FRESH, True)

    git(path, "reset", "-q", "--hard", "HEAD~1")
    compiled = compile_prompt(space, uri, memory=memory)
    assert compiled.value["content"] == theirs.value["content"]
    assert prompt_state(space, uri, memory=memory).status == PromptStatus.FRESH
    git(path, "reset", "-q", "--hard", "origin/HEAD")
    assert prompt_state(space, uri, memory=memory).status == PromptStatus.MEMORY_CHANGED
    at = theirs.value["compiledAt"]
    update = update_memory(space, uri, memory, now=datetime.fromisoformat(at))
    assert update.record.value["compiledAt"] > compiled.value["compiledAt"]
    assert {**update.record.value, "compiledAt": at} == theirs.value
    assert update.text is not None
    sent = [json.dumps(request.body) for request in letta_lab.provider.requests]
    assert any(json.dumps(update.text)[1:-1] in body for body in sent)


def test_lettas_own_dollars_are_no_update(letta_lab: Lab, space: Space) -> None:
    with running_letta(letta_lab, "dollars") as prompts:
        commit(prompts.memory, {"MEMORY.md": b"costs $$5"})
        written = prompts.compile()
    assert written["coreMemory"] not in written["content"]
    _, uri = imported(space, prompts.home.storage)
    memory = MemoryDirectory(prompts.memory)
    state = prompt_state(space, uri, memory=memory)
    assert (state.status, state.updated) == (PromptStatus.FRESH, False)
    ours = compile_prompt(space, uri, memory=memory).value
    assert ours["coreMemory"] == written["coreMemory"]
    assert ours["coreMemory"] in ours["content"]


def test_a_conversation_compiles_checks_and_updates_its_own_prompt(
    talk: Talk, memory: MemoryDirectory, path: Path
) -> None:
    handle = talk.space.conversation(talk.rkey)
    assert handle.prompt() is None
    assert handle.prompt_state(memory).status is PromptStatus.MISSING
    made = handle.compile_prompt(memory)
    assert handle.prompt() == made
    assert handle.prompt_state(memory).status is PromptStatus.FRESH
    commit(path, {"MEMORY.md": b"other", "facts.md": b"The user likes teal."})
    assert handle.prompt_state(memory).status is PromptStatus.MEMORY_CHANGED
    assert "teal" in handle.update_memory(memory).text
    assert handle.prompt_state(memory).updated
