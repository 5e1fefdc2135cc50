"""O20 and O21 as functions: text made inert, isolated, clipped."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lettaspace.atproto import graphemes
from lettaspace.cli.text import clip, counted, field, inert_lines, isolated, width
from lettaspace.page.inert import inert

ASTRONAUT = "👩‍🚀"


def test_control_characters_are_shown() -> None:
    assert inert("\x1b]52;c;aGk=\x07") == "␛]52;c;aGk=␇"
    assert inert("a\x00b\tc\nd\re\x7f") == "a␀b␉c␊d␍e␡"
    assert inert("\x9b2J\x85") == "\\x9b2J\\x85"


def test_characters_that_reorder_or_hide_are_shown() -> None:
    assert inert("\u202etxt.exe\u2069") == "\\u202etxt.exe\\u2069"
    assert inert("a\u2028b\u200bc\ufeffd\u2066e\u00ad") == "a\\u2028b\\u200bc\\ufeffd\\u2066e\\xad"
    assert inert("\U000e0041\U000e007f") == "\\U000e0041\\U000e007f"


def test_lone_surrogates_are_shown() -> None:
    assert inert("tag \ud83c end") == "tag \\ud83c end"


def test_what_people_write_stays() -> None:
    for text in ("plain", "naïve 釉薬 😀", ASTRONAUT, "می‌خواهم", "🏳️‍🌈", "e\u0301"):
        assert inert(text) == text


@given(st.text(st.characters(codec=None)))
def test_nothing_inert_is_a_control_character(text: str) -> None:
    for character in inert(text):
        assert unicodedata.category(character) not in ("Cc", "Cs", "Zl", "Zp")
        assert unicodedata.bidirectional(character) not in (
            "LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI",
        )  # fmt: skip


@given(st.text(st.characters(codec=None)))
def test_lines_are_inert_but_for_tabs(text: str) -> None:
    for line in inert_lines(text):
        bare = line.removeprefix("\u2068").removesuffix("\u2069")
        assert inert(bare.replace("\t", " ")) == bare.replace("\t", " ")


def test_lines_end_where_lines_end() -> None:
    assert inert_lines("a\r\nb\nc\rd\u2028e") == ["a", "b", "c␍d\\u2028e"]


def test_right_to_left_text_is_isolated() -> None:
    assert isolated("שלום hello") == "\u2068שלום hello\u2069"
    assert isolated("مرحبا") == "\u2068مرحبا\u2069"
    assert isolated("hello 釉薬") == "hello 釉薬"


def test_an_isolate_cannot_be_closed_from_inside() -> None:
    shown = field("א\u2069\u202eb")
    assert shown.count("\u2068") == shown.count("\u2069") == 1
    assert shown.endswith("\u2069")
    assert "\u202e" not in shown


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("abc", 3),
        ("釉薬", 4),
        (ASTRONAUT, 2),
        ("e\u0301", 1),
        ("🇩🇪", 2),
        ("☕", 2),
        ("❤️", 2),
        ("", 0),
    ],
)
def test_width(text: str, columns: int) -> None:
    assert width(text) == columns


@pytest.mark.parametrize("limit", [49, 50, 51, 52])
def test_o20_a_title_is_never_cut_within_an_emoji(limit: int) -> None:
    text = "a" * 48 + ASTRONAUT * 2 + " fix the kiln"
    title = clip(text, limit)
    title.encode()
    assert "\ufffd" not in title
    assert not title.removesuffix("…").endswith("\u200d")
    assert width(title) <= limit
    assert title.removesuffix("…") in [
        "a" * 48,
        "a" * 48 + ASTRONAUT,
        "a" * 48 + ASTRONAUT * 2,
    ]


def test_text_that_fits_is_not_cut() -> None:
    assert clip("abc", 3) == "abc"
    assert clip("釉薬", 4) == "釉薬"
    assert clip("釉薬", 3) == "釉…"
    assert clip("abcd", 3) == "ab…"


def test_heaps_of_marks_are_cut() -> None:
    heap = "a" + "\u0301" * 100_000
    assert len(clip(heap, 10)) < 200


@given(st.text(), st.integers(1, 30))
def test_clipping_keeps_whole_clusters_from_the_start(text: str, columns: int) -> None:
    text = inert(text)
    kept = clip(text, columns)
    assert width(kept) <= columns
    start = kept.removesuffix("…") if kept != text else text
    assert text.startswith(start)
    if start and len(start) < len(text):
        next_one = text[len(start)]
        assert next_one in "\u200d\u200c" or graphemes.count(start + next_one) > graphemes.count(
            start
        )


def test_counts_read_well() -> None:
    assert [counted(number, "agent") for number in (0, 1, 2)] == ["0 agents", "1 agent", "2 agents"]
