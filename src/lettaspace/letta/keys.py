"""Which key a conversation of the space has in one of Letta's directories.

It is the one that it has where it comes from, unless another one has that here.
"""

from itertools import count

from lettaspace.conversation.index import find_conversation_id
from lettaspace.conversation.space import Space
from lettaspace.letta import synced
from lettaspace.letta.bringing import Bringing
from lettaspace.letta.directory import (
    CONVERSATION,
    MESSAGES,
    ConversationDir,
    encode_name,
    is_name,
    read_small,
)
from lettaspace.letta.export import files_in
from lettaspace.letta.importer import Importer
from lettaspace.letta.report import ConversationReport


class Keys:
    """The keys in a directory, of conversations that are there, were there, or are to be."""

    def __init__(self, space: Space, importer: Importer, bringing: Bringing) -> None:
        self.space = space
        self.importer = importer
        self.bringing = bringing
        self._keys: dict[str, str] | None = None

    def get(self, tid: str) -> str | None:
        """The key of a conversation (its TID) that is there, or was till somebody deleted it."""
        return self._known().get(tid)

    def note(self, tid: str, key: str) -> None:
        """Notes that a conversation is there now."""
        self._known()[tid] = key

    def refresh(self) -> None:
        """Has what is known of the keys looked up again."""
        self._keys = None

    def place(self, tid: str) -> tuple[ConversationDir | None, bool]:
        """Where a conversation is, or is to be, and whether it is there. None for an empty one
        whose place another one has."""
        if (key := self.get(tid)) is not None:
            found = self._at(key)
            if found.path.exists() or self._is_free(key, tid):
                return found, found.path.exists()
        with self.space.repo.snapshot() as view:
            own = files_in(self.space, view, tid)
            uri = self.space.address.conversation(tid)
            is_empty = find_conversation_id(view.connection, uri) is None
        if not is_name(own.key):
            own.key = f"conversation:{tid}"
        kind, _, name = own.key.partition(":")
        for number in count(1):
            if number == 1:
                key = own.key
            elif kind == "default":
                key = f"conversation:default~m{number}"
            else:
                key = f"conversation:{name}~m{number}"
                key = key if is_name(key) else f"conversation:{tid}~m{number}"
            found = self._at(key)
            if not found.path.exists():
                if self._is_free(key, tid):
                    return found, False
            elif self._is_taken(found, tid):
                if is_empty:
                    return None, False
            else:
                return found, True
        raise AssertionError("the numbers end")

    def _known(self) -> dict[str, str]:
        if self._keys is None:
            self._keys = {}
            present = {each.key for each in self.importer.listing.conversations}
            known = {key: each.conversation for key, each in self.importer.known.items()}
            known |= {
                key: each.name
                for key, each in self.importer.synced.items()
                if synced.is_conversation(key)
            }
            # Those that are there come last, and count.
            for key in sorted(known, key=lambda key: key in present):
                self._keys[known[key]] = key
        return self._keys

    def _at(self, key: str) -> ConversationDir:
        return ConversationDir(key, self.importer.directory / "conversations" / encode_name(key))

    def _is_free(self, key: str, tid: str) -> bool:
        """Whether no other conversation has a key, or had it till somebody deleted it."""
        known = self.importer.synced.get(key)
        owner = known.name if known is not None else None
        if owner is None and key in self.importer.known:
            owner = self.importer.known[key].conversation
        return owner in (None, tid)

    def _is_taken(self, directory: ConversationDir, tid: str) -> bool:
        """Whether a directory is another conversation. One of the same agent in which nothing
        was said, as Letta makes them, gives way."""
        if not self._is_free(directory.key, tid):
            return True
        entry = ConversationReport(directory.key)
        prepared = self.importer.prepare(directory, entry, patient=False)
        if prepared is None:
            return True
        if prepared.tid == tid:
            return False
        if not _is_blank(directory):
            return True
        if not self.bringing.dry:
            self.bringing.adopt(directory, tid)
        return False


def _is_blank(directory: ConversationDir) -> bool:
    """Whether it is an agent's default conversation in which nothing was said."""
    if directory.default_agent is None or (directory.path / MESSAGES).exists():
        return False
    return read_small(directory.path / CONVERSATION).value is not None
