"""Grapheme clusters: what people would count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lettaspace.atproto.graphemes import count


@pytest.mark.parametrize(
    ("text", "clusters"),
    [
        ("", 0),
        ("abc", 3),
        ("a\r\nb", 3),
        ("\r\n\r\n", 2),
        ("é\r\n", 2),
        ("é\n\r", 3),
        ("é", 1),
        ("e\u0301", 1),
        ("e\u0301\u0302x", 2),
        ("語語", 2),
        ("🧪", 1),
        ("👍🏽", 1),
        ("👩‍👩‍👧‍👦", 1),
        ("👩‍👩‍👧‍👦👩", 2),
        ("❤️", 1),
        ("❤️‍🔥", 1),
        ("🏳️‍🌈", 1),
        ("👩\u200da", 2),
        ("a\u200d👩", 2),
        ("🇩🇪", 1),
        ("🇩🇪🇫🇷", 2),
        ("🇩🇪🇫", 2),
        ("a🇩🇪", 2),
        ("🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", 1),
        ("각", 1),
        ("\u1100\u1161\u11a8", 1),
        ("\uac00\u11a8", 1),
        ("\uac01\u1161", 2),
        ("\u11a8\u1161", 2),
        ("\u1161\uac00", 2),
        ("\u0301a", 2),
        ("\u2028\u0301", 2),
        ("நி", 1),
        ("ｶﾞ", 1),
        ("1️⃣", 1),
        ("\u0600\u0301", 2),
        ("🙂\u200d↔️", 1),
        ("🇩\u200d👩", 2),
        ("👩\u200d🇩", 2),
        ("🇩\u0301🇪", 2),
        ("\ufeffx", 2),
        ("x\u200c\uff9e", 1),
        ("👩 \u200d👩", 3),
        ("©️", 1),
    ],
)
def test_counts(text, clusters):
    assert count(text) == clusters


@given(st.text(max_size=30))
def test_there_are_never_more_than_code_points(text):
    assert (0 if not text else 1) <= count(text) <= len(text) or not text


@given(st.text(max_size=10), st.text(max_size=10))
def test_a_line_end_parts_what_stands_around_it(one, other):
    joined = count(one + "\n" + other)
    cr = one.endswith("\r")
    assert joined == count(one) + count(other) + (0 if cr else 1)
