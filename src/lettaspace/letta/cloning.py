"""Makes a memory directory where there is none, as Letta itself would have it.

It is made beside the place, in a private directory, and takes its place in one step when it is
complete. What a run that was killed left is cleared away by the next one.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from lettaspace.conversation import codec
from lettaspace.conversation.records import AGENT, LOCAL_AGENT
from lettaspace.errors import Conflict, Damaged, StoreUnavailable
from lettaspace.letta import bundles
from lettaspace.letta.checkout import Checkout
from lettaspace.letta.code import Held, held
from lettaspace.letta.memoryrecord import Stored
from lettaspace.letta.repository import APART, HEADS, SYNCED, Repository, alone

if TYPE_CHECKING:
    from lettaspace.conversation.space import Space

PREFIX = ".lettaspace-memory-"

_SHA256 = 64
_NOBODY = "Letta Agent"
"""What Letta calls an agent that has no name."""

_NO_CONFIGURATION = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


def is_free(directory: Path) -> bool:
    """Whether nothing is there, or an empty directory. Raises Conflict for anything but a
    directory."""
    if directory.is_symlink() or (directory.exists() and not directory.is_dir()):
        raise Conflict(f"{directory} is no directory")
    return not directory.exists() or not any(directory.iterdir())


def clone(space: "Space", stored: Stored, directory: Path, *, allow_code: bool) -> Held:
    """Makes the directory from what is stored; what of it is code, or a link that leads outside.

    Raises Conflict where the place was taken meanwhile, Damaged, NotFound or StoreUnavailable.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    parent = directory.parent.resolve()
    with alone(parent):
        for left in parent.glob(f"{PREFIX}*"):
            shutil.rmtree(left, ignore_errors=True)
        draft = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        try:
            found = _fill(space, stored, draft, allow_code)
            _put(draft, parent / directory.name)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return found


def _fill(space: "Space", stored: Stored, draft: Path, allow_code: bool) -> Held:
    repository = Repository(draft)
    kind = "sha256" if len(stored.head) == _SHA256 else "sha1"
    made = repository.git.run(
        "init", "--quiet", "--template=", f"--object-format={kind}", variables=_NO_CONFIGURATION
    )
    if made.code:
        raise StoreUnavailable(f"{draft.parent}: git cannot make a repository there")
    if not repository.is_branch(stored.branch):
        raise Damaged(f"the memory of {stored.agent} names no branch")
    branch = f"{HEADS}{stored.branch}"
    for key, value in configuration(space, stored.agent).items():
        repository.ask("its configuration", "config", "--local", key, value)
    for part in stored.parts:
        bundles.unpack(repository, part.open(space.repo.get_blob))
    heads = (stored.head, *stored.others)
    for head in heads:
        if not repository.is_commit(head):
            raise Damaged(f"the memory of {stored.agent} has no bundle with commit {head}")
    bundles.check_connected(repository, heads)
    repository.ask("its head", "symbolic-ref", "HEAD", branch)
    repository.point(branch, stored.head)
    repository.point(f"{SYNCED}{stored.branch}", stored.head)
    for head in stored.others:
        repository.point(f"{APART}{head}", head)
    found = held(repository, stored.head, {})
    Checkout(repository).populate(stored.head, found.without(allow_code))
    return found


def configuration(space: "Space", agent: str) -> dict[str, str]:
    """What Letta Code sets in a memory's repository. It sets the same again when it starts."""
    agent_id, name = _agent(space, agent)
    return {
        "letta.agentId": agent_id,
        "user.email": f"{agent_id}@letta.com",
        "user.name": name,
        "commit.gpgsign": "false",
    }


def _agent(space: "Space", key: str) -> tuple[str, str]:
    """Letta's id of an agent, and its name."""
    record = space.repo.get(AGENT, key)
    if record is None:
        return key, _NOBODY
    state = record.value.get("state") or {}
    data = None
    if (state.get("format"), state.get("version")) == (LOCAL_AGENT, 1):
        data = codec.decode(state["data"], space.repo.get_blob)
    agent_id = data.get("id") if isinstance(data, dict) else None
    name = _line(record.value["name"])
    return _line(agent_id) or key, name or _NOBODY


def _line(text: object) -> str:
    """A text that may stand in git's configuration; "" for any other."""
    return text.strip() if isinstance(text, str) and text.isprintable() else ""


def _put(draft: Path, directory: Path) -> None:
    """Gives the place to what was made, if there is nothing but an empty directory."""
    try:
        if os.name == "nt" and directory.exists():
            directory.rmdir()
        draft.rename(directory)
    except OSError:
        raise Conflict(f"{directory}: something came there meanwhile") from None
