"""The pages of an agent's memory: its files and log, a file, a commit."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from lettaspace.conversation.history import PAGE, History
from lettaspace.conversation.memory import MemoryDirectory, WorkTree
from lettaspace.conversation.records import AGENT
from lettaspace.errors import LettaspaceError, NotFound
from lettaspace.letta.memfs import memory_directory
from lettaspace.page import memory as page
from lettaspace.page.prompt import Paths

if TYPE_CHECKING:
    from lettaspace.conversation.space import Space

Redact = Callable[[str], str] | None


def memory_page(
    space: "Space", directory: Path | None, agent: str, *, number: int = 1, redact: Redact = None
) -> dict[str, Any]:
    """The context of `memory.html`, with the log's page `number`. The agent is named by its
    record key. A memory that is not there, or cannot be read, is said on the page; NotFound is
    raised for an agent of whom nothing is known."""
    problems: list[str] = []
    memory = None
    try:
        memory = memory_directory(directory, agent)
    except LettaspaceError as error:
        problems.append(str(error))
    name = _name(space, agent, memory, redact)
    hide = redact or str
    links = page.Links(agent, hide)
    found = memory.state() if memory is not None else None
    context = {
        "section": "agents",
        "agent": agent,
        "agent_name": name,
        "state": page.state(found),
        "path": str(memory.path) if memory is not None else None,
        "files": [],
        "more_files": 0,
        "uncommitted": Paths.of(()),
        "conflicts": Paths.of(()),
        "problems": problems,
        "commits": [],
        "newer": None,
        "older": None,
        "shallow": False,
    }
    if memory is None or found is None or found.revision is None:
        return context
    history = History(memory)
    try:
        log = history.log(found.revision, skip=_skip(number), count=PAGE)
        context |= {
            "commits": [page.commit(each, links, hide) for each in log.commits],
            "newer": links.log(number - 1) if number > 1 else None,
            "older": links.log(number + 1) if log.more else None,
            "shallow": log.shallow,
        }
        listing = history.files(found.revision)
        last = history.last_changes(found.revision)
        context["files"] = page.files(listing, last, found.revision, links, hide)
        context["more_files"] = max(0, len(listing.entries) - page.MAX_ROWS)
        conflicts = tuple(memory.read(found.revision, wanted=_is_text).conflicts)
        tree = memory.work_tree()
        context |= _tree(tree, conflicts, hide)
    except LettaspaceError as error:
        problems.append(str(error))
    return context


def file_page(
    space: "Space",
    directory: Path | None,
    agent: str,
    path: str,
    at: str | None = None,
    *,
    number: int = 1,
    redact: Redact = None,
) -> dict[str, Any]:
    """The context of `memory_file.html`: a file as it is in the commit `at` (HEAD's unless
    given), with the page `number` of its history. Raises NotFound, and what reading raises."""
    memory = _memory(directory, agent)
    name = _name(space, agent, memory, redact)
    hide = redact or str
    links = page.Links(agent, hide)
    revision = at or memory.state().require()
    history = History(memory)
    content = history.file(revision, path)
    log = history.log(revision, path=path, skip=_skip(number), count=PAGE)
    return {
        "section": "agents",
        "agent": agent,
        "agent_name": name,
        "memory_link": links.memory,
        "path": page.path_shown(path, hide),
        "revision": revision,
        "revision_link": links.commit(revision),
        "content": page.content(content, hide),
        "commits": [page.commit(each, links, hide, only=path) for each in log.commits],
        "newer": links.file(path, revision, number - 1) if number > 1 else None,
        "older": links.file(path, revision, number + 1) if log.more else None,
        "shallow": log.shallow,
    }


def commit_page(
    space: "Space", directory: Path | None, agent: str, revision: str, *, redact: Redact = None
) -> dict[str, Any]:
    """The context of `commit.html`. Raises NotFound, and what reading raises."""
    memory = _memory(directory, agent)
    name = _name(space, agent, memory, redact)
    hide = redact or str
    links = page.Links(agent, hide)
    patch = History(memory).commit(revision)
    return {
        "section": "agents",
        "agent": agent,
        "agent_name": name,
        "memory_link": links.memory,
        "commit": page.commit(patch.commit, links, hide),
        "message": page.message(patch, hide),
        "parents": [(each, links.commit(each)) for each in patch.commit.parents],
        "diffs": page.diffs(patch, links, hide),
        "more_diffs": max(0, len(patch.files) - page.MAX_ROWS),
        "cut": patch.cut,
    }


def asked_path(query: bytes) -> str:
    """The parameter `path` of a query string, with any bytes that a file's name may have.

    Raises NotFound where there is none.
    """
    values = parse_qs(query.decode("ascii", "replace"), errors="surrogateescape").get("path")
    if not values:
        raise NotFound("no file was named")
    return values[0]


def _memory(directory: Path | None, agent: str) -> MemoryDirectory:
    memory = memory_directory(directory, agent)
    if memory is None:
        raise NotFound("this agent has no memory directory on this machine")
    return memory


def _name(space: "Space", agent: str, memory: MemoryDirectory | None, redact: Redact) -> str:
    record = space.repo.get(AGENT, agent)
    if record is None and memory is None:
        raise NotFound(f"there is no agent {agent}")
    name = str(record.value.get("name") or agent) if record is not None else agent
    return redact(name) if redact is not None else name


def _skip(number: int) -> int:
    return (max(1, number) - 1) * PAGE


def _tree(tree: WorkTree, committed: Sequence[str], hide: page.Hide) -> dict[str, Any]:
    def shown(paths: Sequence[str]) -> Paths:
        return Paths.of(tuple(page.path_shown(each, hide) for each in paths))

    return {
        "uncommitted": shown(tree.uncommitted),
        "conflicts": shown(tuple(dict.fromkeys((*tree.conflicts, *committed)))),
    }


def _is_text(path: str) -> bool:
    return path.endswith(".md")
