"""Takes a work tree from one commit to another, so that a kill at any moment loses nothing.

Git's own index is held by its lock (`index.lock`) all the while, as git itself would, so nobody
commits half of it. What is written lies in `.git/lettaspace/`:

- `lock`, of which `index.lock` is a hard link: so a later run knows the lock for ours;
- `pending`: the two commits, from before the first file is touched until all is done;
- `index`: the index to be, which takes the place of git's at the end.

The order: files, then the branch, then the index. A later run finishes what had come as far as
the branch, and takes back what had not: each file that is as one of the two commits has it, or
is the beginning of such a one. Files that somebody else changed meanwhile stay.
"""

import os
import shutil
import stat
from collections.abc import Iterator, Mapping, Set
from enum import StrEnum
from pathlib import Path

from lettaspace.conversation.memory import MAX_SNAPSHOT
from lettaspace.errors import Damaged, StoreUnavailable
from lettaspace.letta import code
from lettaspace.letta.repository import Repository

SPARSE_HEADER = b"# Written by lettaspace: files that were left out of the work tree.\n"

_UNFINISHED = (
    "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG", "rebase-merge", "rebase-apply",
)  # fmt: skip
_GITLINK = "160000"
_NOTHING = "000000"


class Moved(StrEnum):
    """How it ended."""

    DONE = "done"
    IN_THE_WAY = "in-the-way"
    """Something that is not committed would have been overwritten; nothing was touched."""
    BUSY = "busy"
    """Somebody else's git is at work, or the branch was moved meanwhile."""


class Checkout:
    """The work tree of a repository that has one, and its index."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._git = repository.git
        self.directory = repository.directory()
        self._own = self.directory / "lettaspace"
        self._lock = self._own / "lock"
        self._pending = self._own / "pending"
        self._new_index = self._own / "index"
        self._index = self.directory / "index"
        self._index_lock = self.directory / "index.lock"
        self._sparse = self.directory / "info" / "sparse-checkout"
        self._settings = {**repository.settings, **self._git.filters_off()}

    def is_busy(self) -> bool:
        """Whether somebody's git is at work, or in the middle of something."""
        names = ("index.lock", *_UNFINISHED)
        return any(os.path.lexists(self.directory / name) for name in names)

    def changed(self) -> list[str]:
        """Tracked paths that differ from the commit, in the index or in the work tree."""
        done = self._git.run(
            "status", "--porcelain=v1", "-z", "--untracked-files=no", "--no-renames",
            "--ignore-submodules=all", settings=self._settings,
        )  # fmt: skip
        if done.code:
            raise Damaged(f"{self._repository.path}: git cannot tell the state of the work tree")
        return [entry[3:] for entry in done.out.split("\0")[:-1]]

    def entries(self) -> tuple[dict[str, tuple[str, str]], set[str]]:
        """What the index has: mode and object by path of the files in the work tree, and the
        paths of those that are left out of it."""
        listed = self._repository.ask("its index", "ls-files", "-s", "-t", "-z")
        present, absent = {}, set()
        for entry in listed.split("\0")[:-1]:
            head, _, path = entry.partition("\t")
            tag, mode, name, _ = head.split(" ")
            if tag == "S":
                absent.add(path)
            else:
                present[path] = (mode, name)
        return present, absent

    @property
    def is_own_sparse(self) -> bool:
        """Whether files were left out of the work tree by us."""
        return (self._sparse_file() or b"").startswith(SPARSE_HEADER)

    @property
    def is_foreign_sparse(self) -> bool:
        """Whether somebody chose by himself which files are in the work tree."""
        if self.is_own_sparse:
            return False
        wanted = ("config", "--type=bool", "--get", "core.sparseCheckout")
        return self._git.run(*wanted, settings=self._settings).out.strip() == "true"

    def move(self, old: str, new: str, left_out: Set[str], why: str) -> Moved:
        """From `old`, where the branch has to stand, to `new`, without the files `left_out`."""
        self.recover()
        self._own.mkdir()
        self._lock.touch()
        try:
            os.link(self._lock, self._index_lock)
        except FileExistsError:
            return Moved.BUSY
        except OSError as error:
            raise StoreUnavailable(f"{self._index_lock}: {error.strerror}") from None
        try:
            return self._move(old, new, left_out, why)
        finally:
            # Whatever happened: what is not done is taken back.
            self.recover()

    def recover(self) -> None:
        """Ends what an earlier run of ours began; does nothing where there is none."""
        if self._pending.exists():
            old, _, new = self._pending.read_text("ascii").strip().partition(" ")
            if self._head() == new:
                if self._new_index.exists():
                    self._new_index.replace(self._index)
            elif self._is_own_lock():
                self._take_back(old, new)
            self._pending.unlink()
        if self._is_own_lock():
            self._index_lock.unlink()
        shutil.rmtree(self._own, ignore_errors=True)

    def populate(self, commit: str, left_out: Set[str]) -> None:
        """Fills the work tree of a repository that nobody else knows of yet."""
        self._choose(left_out)
        done = self._git.run("read-tree", "-m", "-u", commit, settings=self._settings)
        if done.code:
            raise Damaged(f"git does not put the files of commit {commit} into a work tree")

    def _move(self, old: str, new: str, left_out: Set[str], why: str) -> Moved:
        if self._head() != old:
            return Moved.BUSY
        if self.changed():
            return Moved.IN_THE_WAY
        shutil.copyfile(self._index, self._new_index)
        chosen = self._sparse_file()
        self._choose(left_out)
        self._index_run("update-index", "-q", "--refresh")
        if self._index_run("read-tree", "-n", "-m", "-u", old, new):
            self._choose_again(chosen)
            return Moved.IN_THE_WAY
        self._write(self._pending, f"{old} {new}\n".encode())
        if self._index_run("read-tree", "-m", "-u", old, new):
            self._choose_again(chosen)
            return Moved.IN_THE_WAY
        if new != old:
            moved = self._git.run(
                "update-ref", "-m", f"lettaspace: {why}", "HEAD", new, old,
                settings=self._settings,
            )  # fmt: skip
            if moved.code:
                self._choose_again(chosen)
                return Moved.BUSY
        self._new_index.replace(self._index)
        if not left_out:
            self._choose_again(None)
        return Moved.DONE

    def _head(self) -> str:
        return self._repository.ask("its head", "rev-parse", "HEAD").strip()

    def _index_run(self, *arguments: str) -> int:
        """A command on the index to be; how it ended."""
        own = {"GIT_INDEX_FILE": str(self._new_index)}
        return self._git.run(*arguments, settings=self._settings, variables=own).code

    # What is left out

    def _choose(self, left_out: Set[str]) -> None:
        """Says to git which files are not to be in the work tree; what is there stays for now."""
        if left_out or self.is_own_sparse:
            self._sparse.parent.mkdir(exist_ok=True)
            self._write(self._sparse, SPARSE_HEADER + code.patterns(left_out))
            wanted = ("config", "--worktree", "core.sparseCheckout", "true")
            self._repository.ask("its configuration", *wanted)

    def _choose_again(self, chosen: bytes | None) -> None:
        """What was said before; None: nothing."""
        if not self.is_own_sparse:
            return
        if chosen is not None and chosen.startswith(SPARSE_HEADER):
            self._write(self._sparse, chosen)
            return
        unset = ("config", "--worktree", "--unset-all", "core.sparseCheckout")
        self._git.run(*unset, settings=self._settings)
        self._sparse.unlink()

    def _sparse_file(self) -> bytes | None:
        try:
            return self._sparse.read_bytes()
        except OSError:
            return None

    # Taking back

    def _is_own_lock(self) -> bool:
        try:
            return os.path.samestat(os.lstat(self._lock), os.lstat(self._index_lock))
        except OSError:
            return False

    def _take_back(self, old: str, new: str) -> None:
        """Makes each file again what `old` has, if it became what it is by our doing."""
        differing = self._differing(old, new)
        wanted = [name for pair in differing.values() for name in pair if name is not None]
        contents = self._contents(wanted)
        again = []
        for path, (before, after) in differing.items():
            found = self._read(path)
            first = contents.get(before) if before else None
            second = contents.get(after) if after else None
            if found == first or not _is_ours(found, first, second):
                continue
            if before is not None:
                again.append(path)
            elif found is not None:
                self._remove(path)
        if again:
            self._git.run(
                "checkout-index", "--force", "-z", "--stdin",
                given="".join(f"{path}\0" for path in again).encode("utf-8", "surrogateescape"),
                settings=self._settings,
            )  # fmt: skip

    def _differing(self, old: str, new: str) -> dict[str, tuple[str | None, str | None]]:
        """By path, the objects that the two commits have there."""
        listed = self._repository.ask(
            "its files", "diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", old, new
        )
        tokens = iter(listed.split("\0")[:-1])
        found = {}
        for head in tokens:
            before, after, first, second, _ = head.lstrip(":").split(" ")
            path = next(tokens)
            if _GITLINK not in (before, after):
                found[path] = (
                    None if before == _NOTHING else first,
                    None if after == _NOTHING else second,
                )
        return found

    def _contents(self, names: list[str]) -> dict[str, bytes]:
        every: Iterator[bytes | None] = self._git.blobs(names, MAX_SNAPSHOT)
        found: Mapping[str, bytes | None] = dict(zip(names, every, strict=False))
        return {name: data for name, data in found.items() if data is not None}

    def _place(self, path: str) -> Path | None:
        """Where a path is, unless a link leads there."""
        place = self._repository.path / path
        parent = os.path.realpath(place.parent)
        return place if parent == str(place.parent) else None

    def _read(self, path: str) -> bytes | None:
        """A file or the target of a link in the work tree; None: there is neither."""
        place = self._place(path)
        try:
            if place is None:
                return None
            mode = place.lstat().st_mode
            if stat.S_ISLNK(mode):
                return os.fsencode(place.readlink())
            return place.read_bytes() if stat.S_ISREG(mode) else None
        except OSError:
            return None

    def _remove(self, path: str) -> None:
        place = self._place(path)
        if place is None:
            return
        place.unlink()
        for parent in place.parents:
            if parent == self._repository.path or any(parent.iterdir()):
                return
            parent.rmdir()

    @staticmethod
    def _write(path: Path, data: bytes) -> None:
        """All of a file, or nothing of it."""
        draft = path.with_name(f"{path.name}.lettaspace")
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)


def _is_ours(found: bytes | None, first: bytes | None, second: bytes | None) -> bool:
    """Whether a file is what git leaves when it is killed while it makes `first` `second`."""
    if found is None:
        return True
    return any(whole is not None and whole.startswith(found) for whole in (first, second))
