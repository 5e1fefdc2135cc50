"""What a conversation without a title is told by: the first words that its user said."""

import re
from typing import TYPE_CHECKING

from lettaspace.atproto import graphemes
from lettaspace.conversation.paging import First
from lettaspace.conversation.text import pieces
from lettaspace.errors import Damaged, InvalidInput, NotFound

if TYPE_CHECKING:
    from lettaspace.conversation.space import Space

LENGTH = 80
"""Characters, as people count them."""

ASIDE = re.compile(r"<(system-reminder|memory_update|system-alert)>\s*(.*?)\s*</\1>", re.DOTALL)
"""What a harness tells the model beside what the user said: which kind, and the words."""

_LOOKED_AT = 8
"""Messages from the first one on."""

_ENOUGH = 4_000
"""Characters of a text that are looked at."""


def first_words(space: "Space", conversation: str) -> str | None:
    """What a user said first in a conversation (its URI), on one line; None where nobody did
    among its first messages. It may be long: see `clipped`."""
    try:
        page = space.page(conversation, view="transcript", anchor=First(), limit=_LOOKED_AT)
    except Damaged:  # a record whose bytes are broken; `verify` names it
        return None
    for message in page.messages:
        if message.role != "user" or message.compacted_message_ids is not None:
            continue
        try:
            found = list(pieces(message.value, message.open_blob))
        except (Damaged, InvalidInput, NotFound):
            continue
        if any(where == "summary" for where, _ in found):
            continue  # in a fork, a summary's copy is an ordinary message
        said = "\n".join(text for where, text in found if where == "text")
        words = " ".join(ASIDE.sub(" ", said)[:_ENOUGH].split())
        if words:
            return words
    return None


def clipped(words: str, most: int = LENGTH) -> str:
    """The words, cut between what people see as characters, with an ellipsis if they are."""
    short = graphemes.clip(words, most)
    return words if len(short) == len(words) else short.rstrip("\u200d\u200c ") + "…"
