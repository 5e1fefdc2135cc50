"""The history of a memory directory: its commits, what each changed, and files as they were.

from lettaspace.conversation.history import History
from lettaspace.conversation.memory import MemoryDirectory

memory = MemoryDirectory(path)
history = History(memory)
for commit in history.log(memory.state().require()).commits:
    print(commit.time, commit.subject, [change.path for change in commit.changes or ()])

Everything here is data of somebody else's: paths, names and texts may hold any character but
NUL, and bytes that are no UTF-8 are there as surrogate escapes. Only git's plumbing is asked,
which takes no orders from a repository's configuration, and never for more than is bounded.

Every method raises NotFound for a commit or file that is not there, Damaged for what git cannot
read, and StoreUnavailable where git gives no answer.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise

from lettaspace.conversation.commits import (
    Change,
    ChangeKind,
    Commit,
    Content,
    Entry,
    EntryKind,
    FileDiff,
    Listing,
    Log,
    Patch,
)
from lettaspace.conversation.git import Answer
from lettaspace.conversation.memory import REVISION, MemoryDirectory, said
from lettaspace.errors import Damaged, NotFound

PAGE = 50
"""Commits in one page of a log."""

MAX_FILE = 1 << 20
"""The most bytes of a file that are read."""

MAX_PATCH = 2 << 20
"""The most bytes of a commit's patch that are read."""

MAX_LIST = 8 << 20
"""The most bytes of a listing that are read."""

DEPTH = 1_000
"""So many commits are looked through for the last change of each file."""

_FIELDS = 6
_MAX_SKIP = 2**31 - 1  # git counts in a C int
_DIFF = ("diff-tree", "-r", "-M", "-l400", "--no-ext-diff", "--no-textconv", "--no-color")
_RAW = (*_DIFF, "--raw", "-z", "--no-abbrev", "--root")
_SECTION = re.compile(r"^diff --git ", re.MULTILINE)
_HUNK = re.compile(r"^@@ ", re.MULTILINE)


class History:
    """Reads the history of a memory directory. Revisions are full commit ids."""

    def __init__(self, memory: MemoryDirectory) -> None:
        self.path = memory.path
        self._git = memory.git

    def files(self, revision: str) -> Listing:
        """What there is in a commit, up to `MAX_LIST`."""
        with said():
            self._check(revision)
            listing = self._read(
                "the files", "ls-tree", "-r", "-z", "-l", "--full-tree", revision, limit=MAX_LIST
            )
        return Listing(tuple(map(_entry, _tokens(listing))), listing.cut)

    def file(self, revision: str, path: str) -> Content:
        """One file of a commit. A directory is none."""
        # The path is looked for in the list, so that git takes it for no pattern.
        found = next((each for each in self.files(revision).entries if each.path == path), None)
        if found is None:
            raise NotFound(f"commit {revision} has no file {ascii(path)[:200]}")
        if found.kind is EntryKind.SUBMODULE or (found.size or 0) > MAX_FILE:
            return Content(found, None)
        with said():
            (data,) = self._git.blobs([found.object], MAX_FILE)
        if data is None:
            raise Damaged(f"{self.path}: object {found.object} cannot be read")
        return Content(found, data)

    def log(
        self, revision: str, *, path: str | None = None, skip: int = 0, count: int = PAGE
    ) -> Log:
        """A page of the commits that lead to one, itself included; with `path` only those that
        changed that file, under that name."""
        with said():
            self._check(revision)
            commits = self._commits(revision, path=path, skip=skip, count=count + 1)
            kept = commits.found[:count]
            shallow = self._git.run("rev-parse", "--is-shallow-repository").out.strip() == "true"
            changes = self._changes([each.revision for each in kept])
        return Log(
            tuple(replace(each, changes=changes.get(each.revision)) for each in kept),
            commits.cut or len(commits.found) > count,
            shallow,
        )

    def last_changes(self, revision: str) -> dict[str, Commit]:
        """By path, the last commit that changed it, if it is among the last `DEPTH`."""
        with said():
            self._check(revision)
            commits = self._commits(revision, count=DEPTH).found
            changes = self._changes([each.revision for each in commits], merges="combined")
        found: dict[str, Commit] = {}
        for commit in commits:
            for change in changes.get(commit.revision) or ():
                found.setdefault(change.path, commit)
        return found

    def commit(self, revision: str) -> Patch:
        """One commit, with what it changed."""
        with said():
            self._check(revision)
            commit = next(iter(self._commits(revision, count=1).found), None)
            if commit is None:
                raise Damaged(f"{self.path}: commit {revision} is too large")
            message = self._read(
                "the message", "rev-list", "--max-count=1", "--encoding=UTF-8",
                "--format=%B", revision, "--", limit=MAX_PATCH,
            )  # fmt: skip
            pair = (commit.parents[0], revision) if commit.parents else (revision,)
            changes = self._changes([revision]).get(revision)
            patch = self._read(
                "the changes", *_DIFF, "-p", "--root", "--no-commit-id", "--src-prefix=a/",
                "--dst-prefix=b/", "--submodule=short", *pair, "--", limit=MAX_PATCH,
            )  # fmt: skip
        return Patch(
            replace(commit, changes=changes),
            message.out.partition("\n")[2].strip("\n"),
            tuple(_file_diffs(changes or (), patch)),
            patch.cut or changes is None,
        )

    def _check(self, revision: str) -> None:
        """Raises NotFound unless there is a commit of exactly that id."""
        if REVISION.fullmatch(revision) is not None:
            named = f"{revision}^{{commit}}"
            if self._git.run("rev-parse", "--verify", "--quiet", named).out.strip() == revision:
                return
        raise NotFound(f"there is no commit {ascii(revision)[1:81]}")

    def _read(self, what: str, *arguments: str, limit: int, given: str = "") -> Answer:
        answer = self._git.read(*arguments, limit=limit, given=given)
        if answer.code:
            raise Damaged(f"{self.path}: git cannot read {what}")
        return answer

    def _commits(
        self, revision: str, *, path: str | None = None, skip: int = 0, count: int
    ) -> "_Commits":
        answer = self._read(
            "the history", "rev-list", f"--max-count={count}", f"--skip={min(skip, _MAX_SKIP)}",
            "--encoding=UTF-8", "--format=%x00%H%x00%P%x00%at%x00%an%x00%s%x00",
            revision, "--", *([path] if path is not None else []), limit=MAX_LIST,
        )  # fmt: skip
        # Between the fields of two commits stands a line of rev-list's own.
        fields = answer.out.split("\0")[1:]
        whole = range(0, len(fields) - len(fields) % _FIELDS, _FIELDS)
        return _Commits([_commit(fields[start : start + _FIELDS]) for start in whole], answer.cut)

    def _changes(
        self, revisions: Sequence[str], *, merges: str = "first-parent"
    ) -> dict[str, tuple[Change, ...] | None]:
        """By commit, what it changed. The one at which `MAX_LIST` was reached has None, those
        after it are missing."""
        answer = self._read(
            "the changes", *_RAW, f"--diff-merges={merges}", "--always", "--stdin",
            given="".join(f"{each}\n" for each in revisions), limit=MAX_LIST,
        )  # fmt: skip
        found: dict[str, list[Change]] = {}
        changes: list[Change] = []
        current = ""
        tokens = iter(_tokens(answer))
        for token in tokens:
            if token.startswith(":"):
                changes.extend(_change(token, tokens))
            else:
                current, changes = token, []
                found[current] = changes
        every: dict[str, tuple[Change, ...] | None] = {
            revision: tuple(each) for revision, each in found.items()
        }
        if answer.cut and current:
            every[current] = None
        return every


@dataclass(frozen=True, slots=True)
class _Commits:
    found: list[Commit]
    cut: bool


def _tokens(answer: Answer) -> list[str]:
    """What NUL ends. What a limit cut off is no whole token."""
    return answer.out.split("\0")[:-1]


def _commit(fields: Sequence[str]) -> Commit:
    revision, parents, seconds, author, subject, _ = fields
    return Commit(revision, tuple(parents.split()), _time(seconds), author, subject)


def _time(seconds: str) -> str | None:
    try:
        moment = datetime.fromtimestamp(int(seconds), UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _kind(mode: str) -> EntryKind:
    return {"120000": EntryKind.LINK, "160000": EntryKind.SUBMODULE}.get(mode, EntryKind.FILE)


def _entry(token: str) -> Entry:
    head, _, path = token.partition("\t")
    mode, _, name, size = head.split()
    return Entry(path, _kind(mode), name, int(size) if size.isdecimal() else None)


def _change(token: str, tokens: Iterator[str]) -> Iterator[Change]:
    """A change of git's raw format; its paths are the next tokens."""
    modes = token.lstrip(":").split(" ")
    parents = len(token) - len(token.lstrip(":"))
    letter = modes[-1][:1]
    try:
        path = next(tokens)
        old_path = None
        if parents == 1 and letter in ("R", "C"):
            old_path, path = path, next(tokens)
    except StopIteration:
        return
    mode = modes[0] if letter == "D" else modes[parents]
    if letter in tuple(ChangeKind):
        yield Change(ChangeKind(letter), path, old_path, _kind(mode))


def _file_diffs(changes: Sequence[Change], patch: Answer) -> Iterator[FileDiff]:
    """The patch by file: git lists the changes in the same order."""
    bounds = [*(found.start() for found in _SECTION.finditer(patch.out)), len(patch.out)]
    sections = [patch.out[start:end] for start, end in pairwise(bounds)]
    if patch.cut:
        sections = sections[:-1]
    at = 0
    for change in changes:
        # A file of another kind is one that went and one that came.
        own = sections[at : at + (2 if change.kind is ChangeKind.TYPE else 1)]
        at += len(own)
        if not own:
            yield FileDiff(change, None)
            continue
        found = [_HUNK.search(section) for section in own]
        hunks = [section[hunk.start() :] for section, hunk in zip(own, found, strict=True) if hunk]
        binary = not hunks and any(section.endswith(" differ\n") for section in own)
        yield FileDiff(change, None if binary else "".join(hunks), binary)
