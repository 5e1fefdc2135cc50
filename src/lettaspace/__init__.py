"""AI agents' conversations in a permissioned space on the AT Protocol.

    from lettaspace import Space, UserMessage

    with Space.open(home) as space:
        talk = space.create_conversation(space.create_agent("Otter"))
        talk.append(UserMessage.text("List the jars."))

`docs/library.md` is the guide. Every name here is imported when it is first used.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False
"""What `typing` has, without importing it. Type checkers know the name."""

if TYPE_CHECKING:
    from lettaspace.conversation import planning as planning
    from lettaspace.conversation.formats import Call as Call
    from lettaspace.conversation.formats import Format as Format
    from lettaspace.conversation.formats import register as register_format  # noqa: F401
    from lettaspace.conversation.handle import Compaction as Compaction
    from lettaspace.conversation.handle import Conversation as Conversation
    from lettaspace.conversation.memory import MemoryDirectory as MemoryDirectory
    from lettaspace.conversation.message import Message as Message
    from lettaspace.conversation.overview import AgentInfo as AgentInfo
    from lettaspace.conversation.overview import ConversationInfo as ConversationInfo
    from lettaspace.conversation.payload import AssistantMessage as AssistantMessage
    from lettaspace.conversation.payload import CompactionMetadata as CompactionMetadata
    from lettaspace.conversation.payload import CompactionStats as CompactionStats
    from lettaspace.conversation.payload import Cost as Cost
    from lettaspace.conversation.payload import Image as Image
    from lettaspace.conversation.payload import LocalMessage as LocalMessage
    from lettaspace.conversation.payload import Metadata as Metadata
    from lettaspace.conversation.payload import OtherPart as OtherPart
    from lettaspace.conversation.payload import Part as Part
    from lettaspace.conversation.payload import Provider as Provider
    from lettaspace.conversation.payload import Text as Text
    from lettaspace.conversation.payload import Thinking as Thinking
    from lettaspace.conversation.payload import ToolCall as ToolCall
    from lettaspace.conversation.payload import ToolResult as ToolResult
    from lettaspace.conversation.payload import Usage as Usage
    from lettaspace.conversation.payload import UserMessage as UserMessage
    from lettaspace.conversation.payload import parse_message as parse_message
    from lettaspace.conversation.prompt import PromptState as PromptState
    from lettaspace.conversation.prompt import PromptStatus as PromptStatus
    from lettaspace.conversation.prompt import compile_prompt as compile_prompt
    from lettaspace.conversation.prompt import prompt_state as prompt_state
    from lettaspace.conversation.prompt import update_memory as update_memory
    from lettaspace.conversation.reading import Window as Window
    from lettaspace.conversation.space import Found as Found
    from lettaspace.conversation.space import Hit as Hit
    from lettaspace.conversation.space import Space as Space
    from lettaspace.conversation.usage import UsageReport as UsageReport
    from lettaspace.errors import Ambiguous as Ambiguous
    from lettaspace.errors import Conflict as Conflict
    from lettaspace.errors import Damaged as Damaged
    from lettaspace.errors import HostRefused as HostRefused
    from lettaspace.errors import InvalidInput as InvalidInput
    from lettaspace.errors import InvalidRecord as InvalidRecord
    from lettaspace.errors import LettaspaceError as LettaspaceError
    from lettaspace.errors import NotFound as NotFound
    from lettaspace.errors import Refused as Refused
    from lettaspace.errors import SignedOut as SignedOut
    from lettaspace.errors import StoreUnavailable as StoreUnavailable
    from lettaspace.errors import Unreachable as Unreachable

_PLACES = {
    "conversation.handle": ("Compaction", "Conversation"),
    "conversation.memory": ("MemoryDirectory",),
    "conversation.message": ("Message",),
    "conversation.overview": ("AgentInfo", "ConversationInfo"),
    "conversation.payload": (
        "AssistantMessage",
        "CompactionMetadata",
        "CompactionStats",
        "Cost",
        "Image",
        "LocalMessage",
        "Metadata",
        "OtherPart",
        "Part",
        "Provider",
        "Text",
        "Thinking",
        "ToolCall",
        "ToolResult",
        "Usage",
        "UserMessage",
        "parse_message",
    ),
    "conversation.prompt": (
        "PromptState",
        "PromptStatus",
        "compile_prompt",
        "prompt_state",
        "update_memory",
    ),
    "conversation.formats": ("Call", "Format"),
    "conversation.reading": ("Window",),
    "conversation.space": ("Found", "Hit", "Space"),
    "conversation.usage": ("UsageReport",),
    "errors": (
        "Ambiguous",
        "Conflict",
        "Damaged",
        "HostRefused",
        "InvalidInput",
        "InvalidRecord",
        "LettaspaceError",
        "NotFound",
        "Refused",
        "SignedOut",
        "StoreUnavailable",
        "Unreachable",
    ),
}
_LAZY = {
    "planning": ("conversation.planning", None),
    "register_format": ("conversation.formats", "register"),
    **{name: (place, name) for place, names in _PLACES.items() for name in names},
}
"""Where each name is found: a module, and what it is called there (None: the module)."""

__all__ = ["__version__", *_LAZY]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        place, inner = _LAZY[name]
        module = import_module(f"{__name__}.{place}")
        found = module if inner is None else getattr(module, inner)
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *_LAZY})
