"""What a conversation without a title is told by."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lettaspace.conversation.payload import AssistantMessage, Image
from lettaspace.conversation.payload import UserMessage as User
from lettaspace.conversation.preview import clipped, first_words
from lettaspace.conversation.space import Space


@pytest.fixture
def space(home: Path) -> Iterator[Space]:
    with Space.open(home) as opened:
        yield opened


@pytest.mark.parametrize("most", [49, 50, 51, 52])
def test_o20_words_are_cut_between_characters(most: int) -> None:
    astronaut = "\U0001f469\u200d\U0001f680"
    words = "a" * 48 + astronaut * 2 + " fix the kiln"
    cut = clipped(words, most)
    assert cut.encode()
    assert "\ufffd" not in cut
    assert not cut.removesuffix("…").endswith("\u200d")
    assert cut == "a" * 48 + (astronaut * min(most - 48, 2)) + {51: "…", 52: " f…"}.get(most, "…")


def test_short_words_stay() -> None:
    assert clipped("fix the kiln") == "fix the kiln"


def test_a_heap_of_marks_is_cut() -> None:
    assert len(clipped("e" + "\u0301" * 10_000, 10)) <= 10 * 32 + 1


def test_the_first_words_are_the_users(space: Space) -> None:
    talk = space.create_conversation(space.create_agent("Otter"))
    assert first_words(space, talk.uri) is None
    talk.append(AssistantMessage.text("Hello, what is it?"))
    assert first_words(space, talk.uri) is None
    talk.append(User([Image.of(b"GIF89a", "image/gif")]))
    talk.append(User.text("<system-reminder>It is Monday.</system-reminder>\n\nFix  the\nkiln"))
    talk.append(User.text("and the shelf"))
    assert first_words(space, talk.uri) == "Fix the kiln"


def test_they_stay_after_a_compaction(space: Space) -> None:
    talk = space.create_conversation(space.create_agent("Otter"))
    for text in ("Fix the kiln", "and the shelf"):
        talk.append(User.text(text))
    talk.compact(lambda _: "Both were fixed.", choose=len)
    assert first_words(space, talk.uri) == "Fix the kiln"


def test_the_copy_of_a_summary_is_nobodys_words(space: Space) -> None:
    talk = space.create_conversation(space.create_agent("Otter"))
    for text in ("Fix the kiln", "and the shelf"):
        talk.append(User.text(text))
    talk.compact(lambda _: "The kiln was fixed.", choose=lambda _: 1)
    fork = talk.fork(talk.append(User.text("Go on.")).rkey)
    summary = next(iter(space.transcript(fork.uri)))
    assert "The kiln was fixed." in str(summary.payload())
    assert first_words(space, fork.uri) == "and the shelf"
