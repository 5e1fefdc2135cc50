"""What of Letta's directory is not as the space has it: `letta status`, and a dry run of `sync`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lettaspace.cli.output import Output

if TYPE_CHECKING:
    from lettaspace.conversation.space import Space
    from lettaspace.letta.differing import AgentDifference, Difference
    from lettaspace.letta.memorylooking import MemoryDifference

REASONS = {
    "directory": "went on here",
    "space": "went on elsewhere",
    "both": "both went on",
    "notHere": "not here yet",
    "deleted": "deleted here",
    "damaged": "cannot be read",
    "unrelated": "two beginnings",
}
"""Why something is not the same on both sides."""


@dataclass(frozen=True, slots=True)
class Differences:
    """All that differs."""

    conversations: "list[Difference]"
    agents: "list[AgentDifference]"
    memories: "list[MemoryDifference]"
    titles: dict[str, str | None]
    """Of all conversations of the space, by TID."""

    @classmethod
    def between(cls, space: "Space", directory: Path) -> "Differences":
        """Raises NotFound if the directory is none of Letta's, StoreUnavailable."""
        from lettaspace.letta.differing import agent_differences, differences
        from lettaspace.letta.memorylooking import memory_differences

        return cls(
            differences(space, directory),
            agent_differences(space, directory),
            memory_differences(space, directory),
            {each.rkey: each.title for each in space.conversations()},
        )

    def __bool__(self) -> bool:
        return bool(self.conversations or self.agents or self.memories)

    def to_json(self) -> dict[str, Any]:
        return {
            "conversations": [each.to_json() for each in self.conversations],
            "agents": [each.to_json() for each in self.agents],
            "memories": [each.to_json() for each in self.memories],
        }

    def tell(self, out: Output) -> None:
        """A line for each; HERE and THERE count messages that only one of the two has."""
        rows: list[tuple[str | int, ...]] = []
        for talk in self.conversations:
            title = self.titles.get(talk.conversation) or talk.note or "-"
            key = talk.key or talk.conversation
            rows.append((key, REASONS[talk.reason], talk.here, talk.there, title))
        for agent in self.agents:
            rows.append((agent.key, REASONS[agent.reason], "", "", agent.name))
        for memory in self.memories:
            about = ", ".join(memory.conflicts or memory.uncommitted) or memory.note
            why = REASONS[memory.reason] if memory.reason else "uncommitted"
            rows.append((f"memory:{memory.agent}", why, "", "", about))
        out.table(["WHAT", "WHY", "HERE", "THERE", ""], rows)
