"""What an import did, to be shown or printed as JSON."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from lettaspace.letta.damage import Damage, Findings

NEW = "new"
CHANGED = "changed"
UNCHANGED = "unchanged"
DIVERGED = "diverged"
PARTED = "parted"
FAILED = "failed"


@dataclass(slots=True)
class Count:
    """Records written, or found to be the same already."""

    new: int = 0
    changed: int = 0
    unchanged: int = 0

    def add(self, other: "Count") -> None:
        self.new += other.new
        self.changed += other.changed
        self.unchanged += other.unchanged

    @property
    def written(self) -> int:
        return self.new + self.changed

    def to_json(self) -> dict[str, int]:
        return {"new": self.new, "changed": self.changed, "unchanged": self.unchanged}


@dataclass(slots=True)
class ConversationReport:
    """One conversation of the directory."""

    key: str
    """`conversation:<id>` or `default:<agent id>`."""
    conversation: str = ""
    """Its TID in the space."""
    outcome: str = UNCHANGED
    read: bool = True
    """False: its files are those of the last import, so they were not read."""
    messages: Count = field(default_factory=Count)
    records: Count = field(default_factory=Count)
    """The conversation's other records."""
    findings: Findings = field(default_factory=Findings)

    @property
    def incomplete(self) -> bool:
        return self.findings.losses > 0

    @property
    def damage(self) -> list[Damage]:
        return self.findings.entries

    def to_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "conversation": self.conversation,
            "outcome": self.outcome,
            "read": self.read,
            "incomplete": self.incomplete,
            "messages": self.messages.to_json(),
            "records": self.records.to_json(),
            "damage": [damage.to_json() for damage in self.damage],
            "damageLeftOut": self.findings.left_out,
        }


@dataclass(slots=True)
class Report:
    """The whole run."""

    dry_run: bool = False
    agents: Count = field(default_factory=Count)
    conversations: list[ConversationReport] = field(default_factory=list[ConversationReport])
    findings: Findings = field(default_factory=Findings)
    """What concerns no conversation: agents' files, names."""

    @property
    def messages(self) -> Count:
        total = Count()
        for conversation in self.conversations:
            total.add(conversation.messages)
        return total

    @property
    def written(self) -> int:
        """Records created or changed, of any kind."""
        return self.agents.written + sum(
            each.messages.written + each.records.written for each in self.conversations
        )

    @property
    def incomplete(self) -> bool:
        return self.findings.losses > 0 or any(each.incomplete for each in self.conversations)

    def add(self, later: "Report") -> None:
        """Adds a later run over the same directory; its outcomes are the ones that count."""
        self.agents.new += later.agents.new
        self.agents.changed += later.agents.changed
        mine = {each.key: each for each in self.conversations}
        for each in later.conversations:
            if (before := mine.get(each.key)) is None:
                self.conversations.append(each)
                continue
            before.messages.new += each.messages.new
            before.messages.changed += each.messages.changed
            before.records.new += each.records.new
            before.records.changed += each.records.changed
            before.findings = each.findings if each.read else before.findings
            if each.outcome != UNCHANGED:
                before.outcome = each.outcome
                before.conversation = each.conversation
        self.findings = later.findings

    def lines(self) -> Iterator[str]:
        """One line per finding: conversation, row, kind, reason."""
        for key, damage in self._findings():
            yield _line(key, damage)

    def losses(self) -> Iterator[str]:
        """The same, of what was lost."""
        for key, damage in self._findings():
            if damage.is_loss:
                yield _line(key, damage)

    def _findings(self) -> Iterator[tuple[str, Damage]]:
        for damage in self.findings:
            yield "", damage
        for conversation in self.conversations:
            for damage in conversation.damage:
                yield conversation.key, damage

    def to_json(self) -> dict[str, Any]:
        outcomes: dict[str, int] = {}
        for each in self.conversations:
            outcomes[each.outcome] = outcomes.get(each.outcome, 0) + 1
        return {
            "dryRun": self.dry_run,
            "incomplete": self.incomplete,
            "agents": self.agents.to_json(),
            "outcomes": outcomes,
            "messages": self.messages.to_json(),
            "conversations": [each.to_json() for each in self.conversations],
            "damage": [damage.to_json() for damage in self.findings],
        }


def _line(key: str, damage: Damage) -> str:
    where = [key] if key else []
    if damage.row is not None:
        where.append(f"row {damage.row}")
    return f"{', '.join(where) or 'directory'}: {damage.kind}" + (
        f" ({damage.note})" if damage.note else ""
    )
