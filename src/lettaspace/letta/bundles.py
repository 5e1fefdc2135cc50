"""Git bundles: the history of a memory directory as bytes, and back into a repository.

A bundle is a header (signature, prerequisites, heads, an empty line) and a pack; see git's
gitformat-bundle(5), versions 2 and 3. Each of ours has one head. What a bundle holds is checked
as strictly as git can (`index-pack --strict`) before any of it is in a repository: `git fetch`
itself does so from version 2.46 on only.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lettaspace.conversation.memory import REVISION
from lettaspace.errors import Damaged, InvalidInput
from lettaspace.letta.repository import Repository

MEDIA_TYPE = "application/x-git-bundle"

MAX_BYTES = 512 << 20
"""The largest bundle that is made."""

_SIGNATURES = (b"# v2 git bundle", b"# v3 git bundle")
_MAX_HEADER = 1 << 20
_SHA256 = 64


@dataclass(frozen=True, slots=True)
class Bundle:
    """One head, the commits it takes for granted, and the file."""

    head: str
    prerequisites: tuple[str, ...]
    data: bytes


def create(repository: Repository, head: str, known: Sequence[str], branch: str) -> Bundle:
    """All that leads to `head` without what leads to one of `known`. `branch` is what the
    bundle calls the head. Raises Damaged, or InvalidInput where it would be too large."""
    without = [f"^{each}" for each in known]
    listed = repository.ask("the history", "rev-list", "--boundary", head, *without, "--")
    prerequisites = tuple(line[1:] for line in listed.split() if line.startswith("-"))
    revisions = "".join(f"{each}\n" for each in (head, *without)).encode()
    pack = repository.bytes(
        "the history", "pack-objects", "--revs", "--thin", "--stdout", "--delta-base-offset", "-q",
        given=revisions,
    )  # fmt: skip
    lines = ["# v2 git bundle"]
    if len(head) == _SHA256:
        lines = ["# v3 git bundle", "@object-format=sha256"]
    lines += [f"-{each} " for each in prerequisites]
    lines += [f"{head} refs/heads/{branch}", "", ""]
    data = "\n".join(lines).encode("utf-8", "surrogateescape") + pack
    if len(data) > MAX_BYTES:
        raise InvalidInput(f"{repository.path}: the history takes more than {MAX_BYTES} bytes")
    return Bundle(head, prerequisites, data)


def split(data: bytes) -> tuple[Bundle, bytes]:
    """What the header says, and the pack. Raises Damaged unless it is a bundle with one head."""
    end = data.find(b"\n\n", 0, _MAX_HEADER)
    header = data[:end].split(b"\n") if end >= 0 else []
    if not header or header[0] not in _SIGNATURES:
        raise Damaged("a git bundle has no header that can be read")
    heads, prerequisites = [], []
    for line in header[1:]:
        if line.startswith(b"@"):
            # A filter would mean that something was left out.
            if not line.startswith(b"@object-format="):
                raise Damaged("a git bundle demands what is not known here")
        elif line.startswith(b"-"):
            prerequisites.append(_revision(line[1:]))
        else:
            heads.append(_revision(line))
    if len(heads) != 1:
        raise Damaged(f"a git bundle has {len(heads)} heads, not one")
    return Bundle(heads[0], tuple(prerequisites), data), data[end + 2 :]


def unpack(repository: Repository, data: bytes) -> str:
    """Puts what a bundle holds into a repository, where nothing names it yet; its head.

    Raises Damaged for what is no bundle, for objects that git would not take from a stranger,
    and where something that it needs is missing.
    """
    bundle, pack = split(data)
    done = repository.git.run(
        "index-pack", "--stdin", "--fix-thin", "--strict", given=pack, settings=repository.settings
    )
    if done.code or not repository.is_commit(bundle.head):
        raise Damaged(f"the bundle of commit {bundle.head} is not one that git takes")
    return bundle.head


def check_connected(repository: Repository, heads: Iterable[str]) -> None:
    """Raises Damaged unless everything that leads to these commits is there."""
    done = repository.git.run(
        "rev-list", "--objects", "--quiet", "--stdin", "--not", "--all",
        given="".join(f"{each}\n" for each in heads).encode(),
        settings=repository.settings,
    )  # fmt: skip
    if done.code:
        raise Damaged("the bundles do not give the whole history")


def _revision(line: bytes) -> str:
    text = line.partition(b" ")[0].decode("ascii", "replace")
    if REVISION.fullmatch(text) is None:
        raise Damaged("a git bundle has a malformed header")
    return text
