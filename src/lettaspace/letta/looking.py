"""What of the directory and of the space is as it was when both last said the same."""

from collections.abc import Iterator

from lettaspace.conversation.records import (
    AGENT,
    COMPILED_PROMPT,
    CONVERSATION,
    CONVERSATION_STATE,
    MESSAGE,
    rkey_of,
)
from lettaspace.conversation.space import Space
from lettaspace.letta import synced, tracking
from lettaspace.letta.build import agent_key
from lettaspace.letta.directory import ConversationDir
from lettaspace.letta.importer import Importer
from lettaspace.letta.restoring import Restoring
from lettaspace.space.view import View

_OF_CONVERSATIONS = (CONVERSATION, CONVERSATION_STATE, COMPILED_PROMPT)


class Changes:
    """The names of what was written in the space since the directory was compared with it."""

    def __init__(self, space: Space, since: str | None) -> None:
        self.conversations: set[str] = set()
        self.agents: set[str] = set()
        self.head = space.repo.rev()
        if since == self.head:
            return
        if since is None:
            self.conversations = {each.rkey for each in space.repo.records(CONVERSATION)}
            self.agents = {each.rkey for each in space.repo.records(AGENT)}
            return
        prefix = space.address.conversation("")
        messages: set[str] = set()
        for op in space.repo.ops(since):
            if op.collection in _OF_CONVERSATIONS:
                self.conversations.add(op.rkey)
            elif op.collection == AGENT:
                self.agents.add(op.rkey)
            elif op.collection == MESSAGE:
                messages.add(op.rkey)
        with space.repo.snapshot() as view:
            for rkey in messages:
                record = view.get(MESSAGE, rkey)
                if record is not None:
                    uri = str(record.value["conversation"])
                    self.conversations.add(uri.removeprefix(prefix))


class Looking:
    """What both need to know: what of the directory is as it was."""

    def __init__(self, space: Space, importer: Importer, restoring: Restoring) -> None:
        self.space = space
        self.importer = importer
        self.restoring = restoring
        self.changes = Changes(space, synced.rev(space, importer.name))
        self._hidden: dict[str, bool] = {}

    def is_same(self, each: ConversationDir) -> bool:
        """Whether neither the files nor the records of a conversation have changed."""
        known = self.importer.synced.get(each.key)
        if known is None or known.mark != tracking.mark(each):
            return False
        if known.name not in self.changes.conversations:
            return True
        with self.space.repo.snapshot() as view:
            return known.revs == self.revs(view, known.name)

    def revs(self, view: View, tid: str) -> str:
        return synced.conversation_revs(view, self.space.address.conversation(tid), tid)

    def is_hidden(self, agent: str) -> bool:
        """Whether an agent's conversations are not brought here: it is hidden, or somebody
        deleted it from the directory."""
        if agent not in self._hidden:
            record = self.space.repo.get(AGENT, agent)
            here = {agent_key(each.id) for each in self.importer.listing.agents}
            was_here = any(
                key.startswith(synced.AGENT) and each.name == agent
                for key, each in self.importer.synced.items()
            )
            hidden = record is not None and bool(record.value.get("hidden"))
            self._hidden[agent] = hidden or (was_here and agent not in here)
        return self._hidden[agent]

    def missing(self, tids: set[str]) -> Iterator[str]:
        """Those of some conversations that the directory does not have, and is to have."""
        here = {each.key for each in self.importer.listing.conversations}
        for tid in sorted(tids):
            record = self.space.repo.get(CONVERSATION, tid)
            if record is None or self.restoring.keys.get(tid) in here:
                continue
            if not self.is_hidden(rkey_of(record.value["agent"])):
                yield tid
