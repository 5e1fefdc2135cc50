"""When to compact, and how much of a window: what `Conversation.compact` may be told to choose.

    if not planning.fits(talk.window(), budget=100_000):
        talk.compact(summarize, planning.sliding_window(0.3, budget=100_000))

A `Choose` is given the window and says how many messages from its start are to be summarised.
`compact` moves the cut to an earlier place where it would part a tool call from its results.

Sizes are tokens, estimated: nobody but the model's provider can count them. A caller who
knows better hands in an `Estimate` of its own.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lettaspace.conversation.compaction import Choose
from lettaspace.conversation.leaves import BLOB_JSON
from lettaspace.conversation.message import Message
from lettaspace.conversation.pairing import calls
from lettaspace.conversation.reading import Window
from lettaspace.conversation.text import pieces
from lettaspace.errors import InvalidInput

Estimate = Callable[[Message], int]
"""How many tokens a message costs in a request."""

BYTES_PER_TOKEN = 4
"""English prose and code have about so many with today's models; other scripts fewer
characters, but of more bytes each."""

IMAGE_TOKENS = 1_600
"""What a large image costs, whatever its file's size: providers scale it down to that."""

MESSAGE_TOKENS = 4
"""For the role, and what separates one message from the next."""

_NOT_SENT = frozenset({"summary", "errorMessage"})
"""Texts that are stored beside the content, not in it."""


def estimate_tokens(message: Message) -> int:
    """The bytes of its texts divided by 4, 1,600 for each image, and 4.

    Texts are what is said, thinking, tool names, and the arguments' keys and values. Raises
    Damaged or NotFound if a part cannot be opened.
    """
    value = message.value
    data = message.data
    if _sealed(data) or _sealed(data.get("content")):
        # Only opened it shows which of its strings are images.
        data = message.payload(images=False)
        value = {**value, "message": {**value["message"], "data": data}}
    texts = sum(
        len(text.encode(errors="surrogatepass"))
        for kind, text in pieces(value, message.open_blob)
        if kind not in _NOT_SENT
    )
    images = sum(1 for _ in _images(data))
    return MESSAGE_TOKENS + math.ceil(texts / BYTES_PER_TOKEN) + images * IMAGE_TOKENS


def fits(
    window: Window | Sequence[Message], budget: int, estimate: Estimate = estimate_tokens
) -> bool:
    """Whether what the model is given of a window is at most `budget` tokens.

    The system prompt, the tools and the answer need room, too: leave it out of the budget.
    """
    messages = window.messages if isinstance(window, Window) else window
    return sum(_sizes(messages, estimate)) <= budget


def everything(messages: Sequence[Message]) -> int:
    """All of the window; but a last message that holds tool calls is kept.

    Source: Letta Code's compaction mode `all`.
    """
    return len(messages) - 1 if messages and calls(messages[-1]) else len(messages)


def sliding_window(
    percentage: float = 0.3, budget: int | None = None, estimate: Estimate = estimate_tokens
) -> Choose:
    """As little as possible from the start of the window, but at least `percentage` of its
    messages; with a `budget`, until what is kept is at most `1 - percentage` of it in tokens.

    What is kept begins with an assistant message, since a summary is the user's. Where there
    is no such place, it is `everything`. Raises InvalidInput unless 0 < percentage <= 1 and
    0 < budget.

    Source: Letta Code's compaction mode `sliding_window`; it makes its steps by tenths.
    """
    if not 0 < percentage <= 1:
        raise InvalidInput("percentage is not above 0 and at most 1")
    if budget is not None and budget <= 0:
        raise InvalidInput("budget is not above 0")
    room = math.inf if budget is None else (1 - percentage) * budget

    def choose(messages: Sequence[Message]) -> int:
        least = max(1, math.ceil(percentage * len(messages)))
        sizes = [0] * len(messages) if budget is None else _sizes(messages, estimate)
        kept = sum(sizes)
        for at, message in enumerate(messages):
            if at >= least and kept <= room and message.role == "assistant" and not message.flags:
                return at
            kept -= sizes[at]
        return everything(messages)

    return choose


def _sizes(messages: Sequence[Message], estimate: Estimate) -> list[int]:
    """What is flagged stands in the window, but no model is given it."""
    return [0 if message.flags else estimate(message) for message in messages]


def _sealed(value: Any) -> bool:
    return isinstance(value, dict) and value.get("$type") == BLOB_JSON


def _images(value: Any) -> Iterator[Any]:
    """The images in a payload, of whatever format: objects that say so by their `type`."""
    if isinstance(value, dict):
        if value.get("type") == "image":
            yield value
        else:
            for item in value.values():
                yield from _images(item)
    elif isinstance(value, list):
        for item in value:
            yield from _images(item)
