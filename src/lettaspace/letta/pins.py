"""Pins: which agent and conversation Letta goes on with when none is named.

They stand in `~/.letta/settings.json` and in `<project>/.letta/settings.local.json`, under the
path of the storage directory of the machine. Only these entries are ever touched, and only when
that is asked for; whatever else is in the file, secrets above all, stays as it is and is not read
into a space.
"""

from pathlib import Path
from typing import Any

from lettaspace.conversation import jsontext
from lettaspace.errors import Damaged
from lettaspace.letta.directory import read_small
from lettaspace.letta.placing import replace_file

SETTINGS = Path(".letta") / "settings.json"
PROJECT_SETTINGS = Path(".letta") / "settings.local.json"


def pin(path: Path, directory: Path, agent_id: str, conversation_id: str) -> bool:
    """Has Letta go on with a conversation (both ids as the directory has them) in the settings
    file at `path`, for the storage directory; whether that took writing.

    Raises Damaged for a file that is no JSON object, and StoreUnavailable.
    """
    small = read_small(path)
    if small.raw is not None and small.value is None:
        raise Damaged(f"{path}: {small.problem}")
    settings: dict[str, Any] = dict(small.value or {})
    wanted = {"agentId": agent_id, "conversationId": conversation_id}
    servers = settings.get("sessionsByServer")
    server = f"local:{directory.absolute()}"
    servers = dict(servers) if isinstance(servers, dict) else {}
    changed = {**settings, "sessionsByServer": {**servers, server: wanted}}
    if path.name == PROJECT_SETTINGS.name:
        changed |= {"lastAgent": agent_id, "lastSession": wanted}
    if changed == settings:
        return False
    replace_file(path, (jsontext.dumps(changed, indent=2) + "\n").encode())
    return True
