"""A compiled prompt as it is looked at."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lettaspace.conversation import promptview
from lettaspace.conversation.codec import encode
from lettaspace.conversation.memory import MemoryDirectory
from lettaspace.conversation.prompt import (
    MAX_BYTES,
    PromptStatus,
    compile_prompt,
    preview_prompt,
    update_memory,
)
from lettaspace.conversation.promptparts import template_hash
from lettaspace.conversation.promptview import PromptView, Segment, prompt_view
from lettaspace.conversation.records import COMPILED_PROMPT, CONVERSATION_STATE, envelope
from lettaspace.conversation.space import Space
from lettaspace.errors import InvalidRecord, NotFound
from lettaspace.space.writes import Create, Update
from tests.conversation.memories import commit, git, init
from tests.conversation.talk import Talk
from tests.conversation.test_prompt import AT, CORE, FILES, TEMPLATE, digest, set_agent


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


def look(talk: Talk, memory: MemoryDirectory | None, **more: Any) -> PromptView:
    """A view, which wrote nothing."""
    before = digest(talk.space)
    view = prompt_view(talk.space, talk.rkey, memory, **more)
    assert digest(talk.space) == before
    assert "".join(each.text for each in view.segments) == view.content
    return view


def test_a_preview_is_what_compiling_would_store(talk: Talk, memory: MemoryDirectory) -> None:
    before = digest(talk.space)
    value = preview_prompt(talk.space, talk.uri, memory=memory, now=AT)
    assert digest(talk.space) == before
    assert talk.space.prompt(talk.rkey) is None
    assert compile_prompt(talk.space, talk.uri, memory=memory, now=AT).value == value


def test_a_preview_fails_as_compiling_does(talk: Talk, memory: MemoryDirectory, path: Path) -> None:
    with pytest.raises(NotFound, match="no conversation"):
        preview_prompt(talk.space, "3lalalalala33", memory=memory)
    commit(path, {"MEMORY.md": b"x" * (MAX_BYTES + 1)})
    with pytest.raises(InvalidRecord, match="too large"):
        preview_prompt(talk.space, talk.uri, memory=memory)


def test_fresh(talk: Talk, memory: MemoryDirectory) -> None:
    record = compile_prompt(talk.space, talk.uri, memory=memory, now=AT)
    view = look(talk, memory)
    assert view.state.status is PromptStatus.FRESH
    assert view.segments == (
        Segment("You keep the jars.\n\n", False),
        Segment(CORE, True),
        Segment("\n", False),
    )
    assert view.marked
    assert (view.rkey, view.conversation, view.agent) == (talk.rkey, talk.uri, talk.agent)
    assert view.fields == record.value
    assert view.cid == str(record.cid)
    assert talk.space.record(view.uri or "") == record
    assert view.sizes == {
        "content": len(view.content.encode()),
        "coreMemory": len(CORE.encode()),
    }
    assert view.difference is not None
    assert view.difference.lines == ()
    assert not view.metadata_only


def test_memory_changed(talk: Talk, memory: MemoryDirectory, path: Path) -> None:
    compile_prompt(talk.space, talk.uri, memory=memory, now=AT)
    commit(path, {**FILES, "persona.md": b"---\ndescription: me\n---\nCold.\n"})
    (path / "new.md").write_bytes(b"not committed")
    view = look(talk, memory)
    assert view.state.status is PromptStatus.MEMORY_CHANGED
    assert view.state.uncommitted == ("new.md",)
    assert view.difference is not None
    assert view.difference.unified() == "\n".join(
        ["@@ -2,7 +2,7 @@", " ", " <persona>", " <description>me</description>", "-Warm.",
         "+Cold.", " </persona>", " ", " <memory>"]
    )  # fmt: skip


def test_template_changed(talk: Talk, memory: MemoryDirectory) -> None:
    compile_prompt(talk.space, talk.uri, memory=memory, now=AT)
    set_agent(talk, system="You keep the figs.\n\n{CORE_MEMORY}\n")
    view = look(talk, memory)
    assert view.state.status is PromptStatus.TEMPLATE_CHANGED
    assert view.difference is not None
    assert (view.difference.added, view.difference.removed) == (1, 1)
    assert "+You keep the figs." in view.difference.unified()


def test_updated_has_no_mark(talk: Talk, memory: MemoryDirectory, path: Path) -> None:
    compile_prompt(talk.space, talk.uri, memory=memory, now=AT)
    commit(path, {**FILES, "persona.md": b"Cold."})
    update_memory(talk.space, talk.uri, memory, now=AT + timedelta(hours=1))
    view = look(talk, memory)
    assert (view.state.status, view.state.updated) == (PromptStatus.FRESH, True)
    assert not view.marked
    assert "Cold." in view.core_memory
    assert "Warm." in view.content
    assert view.difference is not None
    assert "+Cold." in view.difference.unified()


def test_missing(talk: Talk, memory: MemoryDirectory) -> None:
    view = look(talk, memory)
    assert view.state.status is PromptStatus.MISSING
    assert (view.fields, view.segments, view.uri, view.cid) == (None, (), None, None)
    assert view.difference is not None
    assert "+You keep the jars." in view.difference.unified()
    elsewhere = look(talk, None)
    assert elsewhere.difference is None
    assert "not on this machine" in elsewhere.problem
    with pytest.raises(NotFound):
        prompt_view(talk.space, "3lalalalala33", memory)


def test_memory_that_is_elsewhere_is_not_taken_for_none(
    talk: Talk, memory: MemoryDirectory
) -> None:
    compile_prompt(talk.space, talk.uri, memory=memory, now=AT)
    view = look(talk, None)
    assert (view.difference, view.problem) == (None, "the agent's memory is not on this machine")
    compile_prompt(talk.space, talk.uri, memory=None, now=AT)
    assert look(talk, None).difference is not None


def test_why_it_cannot_be_compiled(talk: Talk, memory: MemoryDirectory, path: Path) -> None:
    compile_prompt(talk.space, talk.uri, memory=memory, now=AT)
    set_agent(talk)
    view = look(talk, memory)
    assert view.difference is None
    assert "has no template" in view.problem
    assert "no template" in view.state.reason
    set_agent(talk, system=TEMPLATE)
    (path / ".git/HEAD").write_text("1" * 40 + "\n")
    view = look(talk, memory)
    assert view.state.status is PromptStatus.UNKNOWN
    assert view.difference is None
    assert "HEAD" in view.problem


def test_oversize(talk: Talk, memory: MemoryDirectory) -> None:
    large = f"{'é' * MAX_BYTES}\n\n{CORE}"
    values = {"content": large, "coreMemory": CORE, "rawSystemHash": template_hash(TEMPLATE)}
    encoded = encode({**values, "memfsRevision": memory.state().revision})
    state = {
        "conversation": talk.uri,
        "updatedAt": "2026-05-03T09:05:01.250Z",
        "oversizePrompt": envelope("letta.compiledPrompt", 1, encoded.value),
    }
    write = Create(CONVERSATION_STATE, talk.rkey, state)
    talk.space.repo.apply_writes([write], blobs=encoded.blobs)
    view = look(talk, memory)
    assert (view.state.oversize, view.uri, view.cid) == (True, None, None)
    assert view.sizes["content"] == len(large.encode()) > MAX_BYTES
    assert [each.core for each in view.segments] == [False, True]
    assert view.difference is not None


def test_the_metadata_of_the_moment_is_told_apart(
    talk: Talk, memory: MemoryDirectory, path: Path
) -> None:
    commit(path, {"system/persona.md": b"Warm."})
    compile_prompt(talk.space, talk.uri, memory=memory, now=AT)
    view = look(talk, memory)
    assert view.state.status is PromptStatus.FRESH
    assert view.metadata_only
    assert view.difference is not None
    assert (view.difference.added, view.difference.removed) == (1, 1)
    commit(path, {"system/persona.md": b"Cold."})
    assert not look(talk, memory).metadata_only


def stored(talk: Talk, memory: MemoryDirectory, content: str, core: str) -> None:
    record = compile_prompt(talk.space, talk.uri, memory=memory, now=AT)
    value = {**record.value, "content": content, "coreMemory": core}
    talk.space.repo.apply_writes([Update(COMPILED_PROMPT, talk.rkey, value)])


@pytest.mark.parametrize(
    ("content", "core", "marks"),
    [
        ("aXbXc", "X", [False, True, False, True, False]),
        ("XX", "X", [True, True]),
        ("X", "X", [True]),
        ("abc", "X", [False]),
        ("abc", "", [False]),
        ("", "", []),
        ("XYXYX", "XYX", [True, False]),
    ],
)
def test_every_place_is_marked(
    talk: Talk, memory: MemoryDirectory, content: str, core: str, marks: list[bool]
) -> None:
    stored(talk, memory, content, core)
    assert [each.core for each in look(talk, memory).segments] == marks


def test_marks_are_bounded(
    talk: Talk, memory: MemoryDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(promptview, "MAX_MARKS", 3)
    stored(talk, memory, "X" * 10, "X")
    view = look(talk, memory)
    assert [each.core for each in view.segments] == [True, True, True, False]
    assert view.segments[-1].text == "X" * 7


def test_secrets_are_hidden_everywhere(talk: Talk, memory: MemoryDirectory, path: Path) -> None:
    commit(path, {**FILES, "persona.md": b"The word is hunter2."})
    compile_prompt(talk.space, talk.uri, memory=memory, now=AT)
    commit(path, {**FILES, "persona.md": b"The word is still hunter2."})
    view = look(talk, memory, redact=lambda text: text.replace("hunter2", "[hidden]"))
    assert view.difference is not None
    assert "still [hidden]." in view.difference.unified()
    assert view.marked
    assert "hunter2" not in repr(view)
    assert git(path, "grep", "hunter2") != ""
