"""A mod of Letta Code that has a finished turn synced at once.

Letta runs what lies in `~/.letta/mods` and tells it of events. `turn_end` is told in a terminal,
in headless runs and by the app server alike, which no hook of settings.json is (measured with
0.34.12). The mod starts a program that runs on by itself: Letta waits for nothing, and a program
that is missing is no error.
"""

from collections.abc import Sequence
from pathlib import Path

from lettaspace.conversation.jsontext import dumps
from lettaspace.errors import Conflict, StoreUnavailable
from lettaspace.letta.placing import replace_file

NAME = "lettaspace.mjs"
"""The mod's file."""

_MARK = (
    "// Written by `lettaspace letta hook install`; `lettaspace letta hook uninstall` removes it."
)

_MOD = """\
%(mark)s
import { spawn } from "node:child_process";

const command = %(command)s;

function sync() {
  try {
    const child = spawn(command[0], command.slice(1), { detached: true, stdio: "ignore" });
    child.on("error", () => {});
    child.unref();
  } catch {
    // Letta goes on without it.
  }
}

export default function activate(letta) {
  const off = [];
  for (const name of ["turn_end", "conversation_close"]) {
    try {
      off.push(letta.events.on(name, sync));
    } catch {
      // This Letta does not know the event.
    }
  }
  return () => off.forEach((each) => typeof each === "function" && each());
}
"""


def mods_directory() -> Path:
    """Where Letta looks for mods."""
    return Path.home() / ".letta" / "mods"


def text(command: Sequence[str]) -> bytes:
    """The mod that starts a command."""
    return (_MOD % {"mark": _MARK, "command": dumps(list(command), ascii=True)}).encode()


def is_installed(mods: Path) -> bool:
    """Whether the mod is there. Raises StoreUnavailable, and Conflict for a file of that name
    that is not ours."""
    found = _read(mods / NAME)
    if found is not None and not found.startswith(_MARK.encode()):
        raise Conflict(f"{mods / NAME} was not written by lettaspace; it is left alone")
    return found is not None


def install(mods: Path, command: Sequence[str]) -> bool:
    """Puts the mod there; whether that took writing. Raises as `is_installed`."""
    is_installed(mods)
    wanted = text(command)
    if _read(mods / NAME) == wanted:
        return False
    replace_file(mods / NAME, wanted)
    return True


def uninstall(mods: Path) -> bool:
    """Takes the mod away; whether it was there. Raises as `is_installed`."""
    if not is_installed(mods):
        return False
    try:
        (mods / NAME).unlink(missing_ok=True)
    except OSError as error:
        raise StoreUnavailable(f"cannot remove {mods / NAME}: {error.strerror}") from error
    return True


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreUnavailable(f"cannot read {path}: {error.strerror}") from error
