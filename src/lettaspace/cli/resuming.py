"""Going on with a conversation in Letta on this machine."""

import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lettaspace.cli.app import App
from lettaspace.cli.lettadir import bring_both_ways, goes_both_ways, memory_lines, restored_lines
from lettaspace.cli.text import field
from lettaspace.errors import Conflict, NotFound, SignedOut, StoreUnavailable, Unreachable

if TYPE_CHECKING:
    from lettaspace.conversation.space import Space
    from lettaspace.letta.brought import Brought


def hosts_news(app: App, space: "Space") -> None:
    """Fetches what other machines wrote, where somebody is signed in. Offline, or signed out,
    it goes on with what is here, and says so."""
    from lettaspace.cli.following import complain
    from lettaspace.cli.remote import link_to
    from lettaspace.remote.account import Account
    from lettaspace.remote.exchanging import exchange

    account = Account.load(app.home)
    if account is None or not goes_both_ways(space, account):
        return
    try:
        with link_to(space, account) as (link, progress):
            exchange(link, progress, push=False)
    except (Unreachable, SignedOut) as error:
        complain(f"{error}; going on with what is here")


class Resuming:
    """One conversation, brought into Letta's directory, and how Letta is started with it."""

    def __init__(self, space: "Space", directory: Path, cwd: Path) -> None:
        self.space = space
        self.directory = directory
        self.cwd = cwd
        self.conversation = self.key = self.agent = self.title = ""
        self.stored_cwd: str | None = None
        self.lines: list[str] = []

    def bring(self, name: str, *, allow_code: bool) -> None:
        """Restores what is needed. Raises NotFound or Ambiguous for the name, Conflict where
        Letta is at work in it, or it cannot be written."""
        from lettaspace.cli.naming import conversation_key
        from lettaspace.letta.agentmemories import AgentMemories
        from lettaspace.letta.brought import Outcome
        from lettaspace.letta.restoring import restore

        tid = conversation_key(self.space, name)
        both_ways = goes_both_ways(self.space, _account(self.space))
        if both_ways and (self.directory / "conversations").is_dir():
            done = bring_both_ways(self.space, self.directory, allow_code=allow_code)
            self.lines += [line for each in done.memories for line in memory_lines(each)]
        memories = AgentMemories(self.space, self.directory, allow_code=allow_code, store=False)
        report = restore(self.space, self.directory, conversations=[tid], memory=memories)
        self.lines += restored_lines(report, self.directory)
        self.lines += [line for each in memories.changes for line in memory_lines(each)]
        brought = next((each for each in report.conversations if each.name == tid), None)
        if brought is None:
            raise NotFound(f"conversation {tid} has no place in {self.directory}")
        if brought.outcome in (Outcome.BUSY, Outcome.LEFT, Outcome.DIVERGED):
            raise Conflict(_why(brought, tid))
        self.conversation, self.key = tid, brought.key
        self._look(tid)

    def _look(self, tid: str) -> None:
        from lettaspace.conversation.records import CONVERSATION, rkey_of
        from lettaspace.letta.export import letta_agent_id

        info = self.space.conversation_info(tid)
        self.title, self.stored_cwd = info.title or "", info.cwd
        with self.space.repo.snapshot() as view:
            record = view.get(CONVERSATION, tid)
            owner = rkey_of(record.value["agent"]) if record is not None else ""
            self.agent = letta_agent_id(view, owner, self.space.repo.get_blob) or ""

    @property
    def conversation_id(self) -> str:
        """What Letta calls the conversation here."""
        kind, _, name = self.key.partition(":")
        return name if kind == "conversation" else "default"

    @property
    def command(self) -> list[str]:
        """The conversation is named, so nothing that Letta remembers counts."""
        found = ["letta", "--backend", "local", "--conversation", self.conversation_id]
        return [*found, "--agent", self.agent] if self.conversation_id == "default" else found

    @property
    def environment(self) -> dict[str, str]:
        """What has to be set for it: where the directory is not Letta's own."""
        from lettaspace.letta.directory import default_directory

        if self.directory.absolute() == default_directory().absolute():
            return {}
        return {"LETTA_LOCAL_BACKEND_DIR": str(self.directory.absolute())}

    def pin(self) -> None:
        """Has Letta go on with it in the working directory by itself. That it was continued
        there is a fact of this machine: what is stored stays."""
        from lettaspace.letta.pins import PROJECT_SETTINGS, pin

        pin(self.cwd / PROJECT_SETTINGS, self.directory, self.agent, self.conversation_id)

    def remarks(self) -> Iterator[str]:
        """What there is to be known before."""
        from lettaspace.conversation.projects import same

        yield from self.lines
        if self.stored_cwd and same(self.stored_cwd) != same(str(self.cwd)):
            there = "" if Path(self.stored_cwd).is_dir() else ", which is not on this machine"
            yield (
                f"It was begun in {field(self.stored_cwd)}{there}; "
                f"it goes on in {field(str(self.cwd))}."
            )

    def shell(self) -> str:
        """The command, for a shell."""
        parts = [f"{name}={shlex.quote(value)}" for name, value in self.environment.items()]
        words = field(" ".join([*parts, *map(shlex.quote, self.command)]))
        return (
            words
            if self.cwd == Path.cwd()
            else f"cd {field(shlex.quote(str(self.cwd)))} && {words}"
        )

    def run(self) -> None:
        """Becomes Letta. Raises NotFound where it is not installed, StoreUnavailable."""
        program = shutil.which(self.command[0])
        if program is None:
            raise NotFound("letta is not installed here: pip install letta")
        try:
            os.chdir(self.cwd)
            os.execve(program, self.command, {**os.environ, **self.environment})  # noqa: S606
        except OSError as error:
            raise StoreUnavailable(f"cannot start {program}: {error.strerror}") from error

    def to_json(self) -> dict[str, Any]:
        return {
            "conversation": self.conversation,
            "key": self.key,
            "agent": self.agent,
            "directory": str(self.directory),
            "storedCwd": self.stored_cwd,
            "cwd": str(self.cwd),
            "command": self.command,
            "environment": self.environment,
            "remarks": list(self.lines),
        }


def _account(space: "Space") -> Any:
    from lettaspace.remote.account import Account

    return Account.load(space.home)


def _why(brought: "Brought", tid: str) -> str:
    if str(brought.outcome) == "diverged":
        return f"{tid}: it went on here and elsewhere; `lettaspace sync` parts the two"
    return f"{tid}: {brought.note}"
