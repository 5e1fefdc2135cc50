"""Where the agents' memory directories lie: `memfs/<agent id>/memory`, with the id as it is.

Letta puts the id into the path. Here it is never part of one: a directory is looked for among
those that are listed, by the record key that its name would have, so that no id leads elsewhere.
"""

import os
from pathlib import Path

from lettaspace.conversation.memory import MemoryDirectory
from lettaspace.letta.build import agent_key
from lettaspace.letta.directory import entries

MEMFS = "memfs"
MEMORY = "memory"


def memory_path(directory: Path, agent: str) -> Path | None:
    """The memory directory of an agent, by record key, in Letta's directory; None: there is none.

    Symbolic links are not followed. It need not be a repository. Raises StoreUnavailable where
    the directory cannot be listed.
    """
    for entry in entries(directory / MEMFS):
        if agent_key(entry.name) == agent and entry.is_dir(follow_symlinks=False):
            path = os.path.join(entry.path, MEMORY)  # noqa: PTH118, as what follows
            # Unlike pathlib's, these do not raise for what one may not look into.
            found = os.path.isdir(path) and not os.path.islink(path)  # noqa: PTH112, PTH114
            return Path(path) if found else None
    return None


def memory_directory(directory: Path | None, agent: str) -> MemoryDirectory | None:
    """The memory of an agent, by record key, or None where it is not in Letta's directory.

    Raises as `memory_path`, and InvalidInput for a path that git could not be kept inside of.
    """
    path = memory_path(directory, agent) if directory is not None else None
    return MemoryDirectory(path) if path is not None else None
