"""A memory directory as people look at it: the texts of `memory.html`, `memory_file.html` and
`commit.html`."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from urllib.parse import quote

from markupsafe import Markup

from lettaspace.conversation.commits import (
    Change,
    ChangeKind,
    Commit,
    Content,
    Entry,
    EntryKind,
    FileDiff,
    Listing,
    Patch,
)
from lettaspace.conversation.memory import MemoryKind, MemoryState, has_conflict_markers
from lettaspace.page import code, diff, markdown
from lettaspace.page.inert import inert

MAX_ROWS = 2_000
"""Files in one list."""

MAX_CHANGES = 20
"""Files that are named for one commit of a log."""

MAX_SUBJECT = 300
"""Characters of a subject or a name in a list."""

MAX_DIFFS = 300
"""Files of a commit whose changes are shown."""

Hide = Callable[[str], str]
"""What becomes of a text before it is shown, so that no secret is."""

_FRONT = re.compile(r"\A---\r?\n(.*?\r?\n)?---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_VERBS = {
    ChangeKind.ADDED: "added",
    ChangeKind.MODIFIED: "changed",
    ChangeKind.DELETED: "deleted",
    ChangeKind.RENAMED: "renamed",
    ChangeKind.COPIED: "copied",
    ChangeKind.TYPE: "of another kind now",
}
_SAID = {
    MemoryKind.NO_DIRECTORY: "The memory directory is not there.",
    MemoryKind.NOT_A_REPOSITORY: "The memory directory is not a git repository, so nothing in it "
    "counts as memory.",
    MemoryKind.NO_COMMITS: "Nothing was ever committed to this memory.",
    MemoryKind.FOREIGN_OWNER: "The memory directory belongs to somebody else, so git does not "
    "read it.",
    MemoryKind.BROKEN_HEAD: "The memory's repository is damaged: what HEAD names cannot be read.",
    MemoryKind.GIT_MISSING: "git is not installed, and memory is kept in git.",
    MemoryKind.TIMEOUT: "git did not answer in time.",
}
NO_MEMORY = "This agent has no memory directory on this machine."


class Links:
    """Addresses of an agent's memory pages. Paths may hold any bytes but NUL.

    A file whose name is hidden has no page of its own: its address would tell the name.
    """

    def __init__(self, agent: str, hide: Hide = str) -> None:
        self.memory = f"/agents/{quote(agent, safe='')}/memory"
        self.hide = hide

    def log(self, page: int) -> str:
        return self.memory if page <= 1 else f"{self.memory}?page={page}"

    def commit(self, revision: str) -> str:
        return f"{self.memory}/commit/{quote(revision, safe='')}"

    def file(self, path: str, at: str, page: int = 1) -> str:
        if path_shown(path, self.hide) != path_shown(path, str):
            return self.memory
        name = quote(path, safe="/", errors="surrogateescape")
        more = f"&page={page}" if page > 1 else ""
        return f"{self.memory}/file?path={name}&at={quote(at, safe='')}{more}"


@dataclass(frozen=True, slots=True)
class ShownState:
    """What a memory is, in a sentence."""

    said: str
    readable: bool
    revision: str | None = None
    branch: str | None = None


@dataclass(frozen=True, slots=True)
class ShownChange:
    """What a commit did to a file."""

    verb: str
    path: str
    link: str
    old_path: str | None
    old_link: str | None


@dataclass(frozen=True, slots=True)
class ShownCommit:
    """A commit in a list."""

    revision: str
    short: str
    link: str
    time: str | None
    author: str
    subject: str
    merge: bool
    changes: tuple[ShownChange, ...]
    more: int
    """Changes beyond `MAX_CHANGES`."""
    countless: bool
    """So much was changed that it was not listed."""


@dataclass(frozen=True, slots=True)
class ShownFile:
    """A file in the list of files."""

    path: str
    link: str
    kind: str
    size: int | None
    last: ShownCommit | None
    """The commit that changed it last; None: it was long ago."""


@dataclass(frozen=True, slots=True)
class ShownContent:
    """A file's page: what kind of file it is, and its text where it has one."""

    kind: str
    size: int | None
    said: str
    """Why there is no text, or what is odd about it."""
    front: Markup | None
    """The front matter of a Markdown file."""
    rendered: Markup | None
    raw: Markup | None


@dataclass(frozen=True, slots=True)
class ShownDiff:
    """What happened to one file in a commit."""

    change: ShownChange
    said: str
    """In place of a difference."""
    difference: Markup | None


def state(found: MemoryState | None) -> ShownState:
    """A memory's state; None: there is no directory on this machine."""
    if found is None:
        return ShownState(NO_MEMORY, False)
    if found.revision is None:
        return ShownState(_SAID[found.kind], False)
    said = "HEAD names a commit, and no branch." if found.kind is MemoryKind.DETACHED else ""
    return ShownState(said, True, found.revision, found.branch)


def files(
    listing: Listing, last: Mapping[str, Commit], revision: str, links: Links, hide: Hide
) -> list[ShownFile]:
    """The files of a commit, up to `MAX_ROWS`."""
    return [
        ShownFile(
            path_shown(entry.path, hide),
            links.file(entry.path, revision),
            _kind(entry),
            entry.size,
            commit(last[entry.path], links, hide) if entry.path in last else None,
        )
        for entry in listing.entries[:MAX_ROWS]
    ]


def commit(found: Commit, links: Links, hide: Hide, *, only: str | None = None) -> ShownCommit:
    """A commit as a line of a log; `only` is the one path whose changes are of interest."""
    changes = [each for each in found.changes or () if only is None or each.path == only]
    return ShownCommit(
        found.revision,
        found.revision[:10],
        links.commit(found.revision),
        found.time,
        _clip(hide(_shown(found.author))),
        _clip(hide(_shown(found.subject))),
        len(found.parents) > 1,
        tuple(_change(each, found, links, hide) for each in changes[:MAX_CHANGES]),
        max(0, len(changes) - MAX_CHANGES),
        found.changes is None,
    )


def content(found: Content, hide: Hide) -> ShownContent:
    """What is in a file. Links are not followed, and no file is taken for text that is none."""
    entry = found.entry
    kind = _kind(entry)
    if entry.kind is EntryKind.SUBMODULE:
        said = (
            f"Another repository is mounted here, at commit {entry.object}. Nothing of it is read."
        )
        return ShownContent(kind, None, said, None, None, None)
    if found.data is None:
        said = "It is too large to be shown."
        return ShownContent(kind, entry.size, said, None, None, None)
    if entry.kind is EntryKind.LINK:
        target = hide(_decoded(found.data))
        said = "A symbolic link. It is not followed; this is the name of its target:"
        return ShownContent(kind, entry.size, said, None, None, code.plain(target))
    if b"\0" in found.data:
        return ShownContent(kind, entry.size, "A binary file.", None, None, None)
    if not found.data:
        return ShownContent(kind, entry.size, "An empty file.", None, None, None)
    text = hide(_decoded(found.data))
    said = ""
    if has_conflict_markers(found.data):
        said = "It was committed with the markers of an unresolved conflict in it."
    if not entry.path.endswith((".md", ".markdown")):
        return ShownContent(
            kind, entry.size, said, None, None, code.highlight(text, filename=_shown(entry.path))
        )
    front = _FRONT.match(text)
    body = text[front.end() :] if front else text
    return ShownContent(
        kind,
        entry.size,
        said,
        code.highlight(front[1] or "", language="yaml") if front else None,
        markdown.render(body),
        code.plain(text),
    )


def diffs(patch: Patch, links: Links, hide: Hide) -> list[ShownDiff]:
    """What a commit changed, file by file."""
    return [
        _diff(each, patch.commit, links, hide, number < MAX_DIFFS)
        for number, each in enumerate(patch.files[:MAX_ROWS])
    ]


def message(patch: Patch, hide: Hide) -> str:
    """A commit's whole message."""
    return hide(_shown(patch.message))


def _diff(found: FileDiff, owner: Commit, links: Links, hide: Hide, wanted: bool) -> ShownDiff:
    change = _change(found.change, owner, links, hide)
    if found.binary:
        return ShownDiff(
            change, "git takes it for binary, by its content or by .gitattributes.", None
        )
    if found.hunks is None or not wanted:
        return ShownDiff(change, "The commit is too large for this difference to be shown.", None)
    if not found.hunks:
        return ShownDiff(change, "Its content is the same.", None)
    # The last line's end is no line of its own.
    lines = _shown(found.hunks.removesuffix("\n")).split("\n")
    return ShownDiff(change, "", diff.highlight("\n".join(_hidden(lines, hide))))


def _hidden(lines: Sequence[str], hide: Hide) -> Iterator[str]:
    """Lines of a difference, whose marks are not part of any secret that spans some of them."""
    for mark, run in groupby(lines, lambda line: line[:1]):
        text = hide("\n".join(line[1:] for line in run))
        yield from (mark + line for line in text.split("\n"))


def _change(found: Change, owner: Commit, links: Links, hide: Hide) -> ShownChange:
    before = owner.parents[0] if owner.parents else owner.revision
    gone = found.kind is ChangeKind.DELETED
    return ShownChange(
        _VERBS[found.kind],
        path_shown(found.path, hide),
        links.file(found.path, before if gone else owner.revision),
        path_shown(found.old_path, hide) if found.old_path is not None else None,
        links.file(found.old_path, before) if found.old_path is not None else None,
    )


def _kind(entry: Entry) -> str:
    return {EntryKind.LINK: "symbolic link", EntryKind.SUBMODULE: "submodule"}.get(entry.kind, "")


def path_shown(path: str, hide: Hide) -> str:
    """A path in one line, in which every character is visible."""
    return hide(inert(_shown(path)))


def _shown(text: str) -> str:
    """Text of git's, in which bytes that are no UTF-8 are `\\xff`."""
    return text if text.isascii() else _decoded(text.encode("utf-8", "surrogateescape"))


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _clip(text: str) -> str:
    line = inert(text)
    return line if len(line) <= MAX_SUBJECT else line[:MAX_SUBJECT] + "…"
