"""The page of a conversation's compiled prompt."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lettaspace.conversation.memory import MemoryDirectory
from lettaspace.conversation.promptview import prompt_view
from lettaspace.conversation.records import AGENT, CONVERSATION, CONVERSATION_STATE, rkey_of
from lettaspace.errors import LettaspaceError, NotFound
from lettaspace.letta.memfs import memory_directory
from lettaspace.page.memory import Links
from lettaspace.page.prompt import present

if TYPE_CHECKING:
    from lettaspace.conversation.space import Space


def prompt_page(
    space: "Space",
    directory: Path | None,
    conversation: str,
    *,
    redact: Callable[[str], str] | None = None,
) -> dict[str, Any]:
    """The context of `prompt.html`. `directory` is Letta's, if it is on this machine; the
    conversation is named by TID. Raises NotFound."""
    talk = space.repo.get(CONVERSATION, conversation)
    if talk is None:
        raise NotFound(f"there is no conversation {conversation}")
    agent = rkey_of(str(talk.value["agent"]))
    memory = _memory(directory, agent)
    view = prompt_view(space, conversation, memory, redact=redact)
    state = space.repo.get(CONVERSATION_STATE, conversation)
    record = space.repo.get(AGENT, agent)
    hide = redact or str
    links = Links(agent)
    prompt = present(view)
    known = memory is not None and view.state.memory is not None and view.state.memory.revision
    return {
        "section": "conversations",
        "conversation": conversation,
        "title": hide(str(state.value.get("title") or "") if state is not None else ""),
        "agent": agent,
        "agent_name": hide(str(record.value.get("name") or agent) if record else agent),
        "prompt": prompt,
        "memory_link": links.memory,
        "revision_link": links.commit(prompt.revision) if known and prompt.revision else None,
    }


def _memory(directory: Path | None, agent: str) -> MemoryDirectory | None:
    try:
        return memory_directory(directory, agent)
    except LettaspaceError:
        return None  # what Letta's directory is like is said on other pages
