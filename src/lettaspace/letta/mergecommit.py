"""Merges two commits of a memory without a work tree, so that none is ever in conflict.

The merge of the same two commits is the same commit on every machine of one user, as far as
their git agrees: its time is the later one of its parents, its first parent the older one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from lettaspace.conversation.memory import REVISION
from lettaspace.errors import Damaged
from lettaspace.letta.repository import Repository

MESSAGE = "Merge the memory of two machines"

_TOO_OLD = 129
"""How git ends that does not know an option."""


@dataclass(frozen=True, slots=True)
class Merged:
    """A merge, or why there is none."""

    commit: str | None
    conflicts: tuple[str, ...] = ()
    """Paths that git cannot merge."""
    identity: str = ""
    """In whose name it was committed."""
    message: str = ""


def merge(repository: Repository, one: str, other: str) -> Merged:
    """The commit that has both in its history, where git merges them cleanly. Nothing names it
    yet. Raises Damaged for what git cannot read."""
    git = repository.git
    done = git.run(
        "merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", one, other,
        settings={**repository.settings, **git.merging_off()},
    )  # fmt: skip
    tree, *paths = done.out.split("\0")[:-1] or [""]
    if done.code == _TOO_OLD:
        return Merged(None, message="both went on; to merge them takes git 2.38 or newer")
    if done.code not in (0, 1) or REVISION.fullmatch(tree) is None:
        raise Damaged(f"{repository.path}: git cannot merge {one} and {other}")
    if done.code:
        return Merged(None, tuple(dict.fromkeys(paths)), message="both changed the same lines")
    name, email = _identity(repository)
    commit = _commit(repository, tree, _by_age(repository, (one, other)), name, email, MESSAGE)
    return Merged(commit, identity=f"{name} <{email}>")


def tie(repository: Repository, commits: Sequence[str]) -> str:
    """A commit that does nothing but have all of these in its history."""
    ordered = _by_age(repository, commits)
    tree = repository.ask("its history", "rev-parse", f"{ordered[-1]}^{{tree}}").strip()
    said = "Keep histories that went apart"
    return _commit(repository, tree, ordered, "lettaspace", "lettaspace@localhost", said)


def _commit(
    repository: Repository, tree: str, parents: Sequence[str], name: str, email: str, message: str
) -> str:
    date = f"@{max(_times(repository, parents).values())} +0000"
    variables = {
        f"GIT_{role}_{what}": value
        for role in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", name), ("EMAIL", email), ("DATE", date))
    }
    named = [part for parent in parents for part in ("-p", parent)]
    return repository.ask(
        "a merge", "commit-tree", tree, *named, "-m", message, variables=variables
    ).strip()


def _by_age(repository: Repository, commits: Sequence[str]) -> list[str]:
    times = _times(repository, commits)
    return sorted(commits, key=lambda commit: (times[commit], commit))


def _times(repository: Repository, commits: Sequence[str]) -> dict[str, int]:
    """When commits were made, in seconds."""
    listed = repository.ask(
        "its history", "rev-list", "--no-walk=unsorted", "--timestamp", *commits
    )
    lines = [line.split(" ") for line in listed.splitlines()]
    return {commit: max(0, int(seconds)) for seconds, commit in lines}


def _identity(repository: Repository) -> tuple[str, str]:
    """Whose name a merge is in: the user's, where git knows one for all repositories, else the
    one that Letta gave this repository."""
    for scope in ("--global", "--system", "--local"):
        name, email = (_setting(repository, scope, f"user.{key}") for key in ("name", "email"))
        if name and email:
            return name, email
    return "lettaspace", "lettaspace@localhost"


def _setting(repository: Repository, scope: str, key: str) -> str:
    return repository.git.run("config", scope, "--get", key).out.strip()
