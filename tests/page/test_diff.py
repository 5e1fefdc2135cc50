import pytest
from hypothesis import given
from hypothesis import strategies as st

from lettaspace.page import code, diff
from tests.page.hostile import Page

DIFF = """\
diff --git a/notes.md b/notes.md
index 1111111..2222222 100644
--- a/notes.md
+++ b/notes.md
@@ -1,4 +1,4 @@ Glazes
 one
--- two
+++ 2

 three
\\ No newline at end of file
"""
COMMIT = "commit 0123456789abcdef\nAuthor: Mira <m@example.org>\nDate:   today\n\n    Two\n\n"
PATCH = "*** Begin Patch\n*** Update File: a.py\n@@ def f\n-a\n+b\n*** End Patch"


def _lines(html: str) -> list[str]:
    return Page(html).text.split("\n")


def test_lines_and_classes() -> None:
    html = diff.unified("a\nb\nc\n", "a\nB\nc\n")
    assert html == (
        '<pre class="code diff" tabindex="0"><code> a\n<span class="d-del">-b\n</span>'
        '<span class="d-add">+B\n</span> c</code></pre>'
    )


def test_the_files_name_stands_above() -> None:
    assert _lines(diff.unified("a", "b", "x.py")) == ["--- x.py", "+++ x.py", "-a", "+b"]


def test_far_changes_are_hunks() -> None:
    old = "\n".join(map(str, range(40)))
    new = old.replace("\n5\n", "\nfive\n").replace("\n30\n", "\nthirty\n")
    lines = _lines(diff.unified(old, new))
    assert [line for line in lines if line.startswith("@@")] == [
        "@@ -3,7 +3,7 @@",
        "@@ -28,7 +28,7 @@",
    ]
    assert [line for line in lines if line[0] in "+-"] == ["-5", "+five", "-30", "+thirty"]


def test_texts_that_are_the_same_are_context() -> None:
    assert _lines(diff.unified("a\nb", "a\nb")) == [" a", " b"]
    assert _lines(diff.unified("", "")) == [""]


def test_from_and_to_nothing() -> None:
    assert _lines(diff.unified("", "a\nb\n")) == ["+a", "+b"]
    assert _lines(diff.unified("a", "")) == ["-a"]


def test_a_line_break_at_the_end() -> None:
    note = "\\ No newline at end of file"
    assert _lines(diff.unified("a\n", "a")) == ["-a", "+a", note]
    assert _lines(diff.unified("a", "a\n")) == ["-a", note, "+a"]
    assert _lines(diff.unified("a", "b")) == ["-a", "+b"]


def test_line_ends_that_changed_are_seen() -> None:
    assert _lines(diff.unified("a\r\n", "a\n")) == ["-a␍", "+a"]
    assert _lines(diff.unified("a\r\nb\r\n", "a\r\nc\r\n")) == [" a", "-b", "+c"]


def test_what_looks_the_same_made_inert_is_compared_first() -> None:
    assert _lines(diff.unified("\u202e", "\\u202e")) == ["-\\u202e", "+\\u202e"]


def test_large_texts_are_not_compared() -> None:
    many = "\n".join(map(str, range(diff.MAX_LINES)))
    assert diff.unified(many, "x", "a.txt") == code.plain(many) + "\n" + code.plain("x")
    same = "\n".join("x" for _ in range(1000))
    assert diff.unified(same, same + "y") == code.plain(same) + "\n" + code.plain(same + "y")


few_lines = st.lists(st.sampled_from("abc"), min_size=1, max_size=3)


@given(few_lines, few_lines)
def test_both_texts_can_be_told_from_the_diff(old: list[str], new: list[str]) -> None:
    lines = _lines(diff.unified("\n".join(old), "\n".join(new)))
    assert [line[1:] for line in lines if line[0] in " -"] == old
    assert [line[1:] for line in lines if line[0] in " +"] == new


def test_a_diff_is_highlighted_as_it_is() -> None:
    html = diff.highlight(DIFF)
    assert Page(html).text == DIFF
    assert '<span class="d-file">--- a/notes.md\n</span>' in html
    assert '<span class="d-hunk">@@ -1,4 +1,4 @@ Glazes\n</span>' in html
    assert '<span class="d-del">--- two\n</span>' in html
    assert '<span class="d-add">+++ 2\n</span>' in html
    assert '<span class="d-file">\\ No newline at end of file\n</span>' in html


def test_hunks_of_a_wrong_length_are_highlighted_too() -> None:
    html = diff.highlight(
        "--- a\n+++ b\n@@ -1 +1 @@\n-a\n+b\n+c\n@@ -9,9 +9,9 @@\n+d\n--- e\n+++ f"
    )
    for line in ("+c\n", "+d\n"):
        assert f'<span class="d-add">{line}' in html


def test_a_patch_is_highlighted() -> None:
    html = diff.highlight(PATCH)
    assert Page(html).text == PATCH
    assert '<span class="d-hunk">@@ def f\n</span><span class="d-del">-a\n</span>' in html


@pytest.mark.parametrize(
    "text",
    [
        DIFF,
        DIFF.removesuffix("\n"),
        DIFF.replace("\n", "\r\n"),
        DIFF + DIFF,
        COMMIT + DIFF,
        DIFF + "\n" + COMMIT + DIFF,
        "--- a\n+++ b\n@@ -0,0 +1 @@\n+x\n@@ -7 +8,0 @@\n-x",
        PATCH,
    ],
)
def test_diffs_look_like_diffs(text: str) -> None:
    assert diff.looks_like_diff(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "- a\n+ b",
        "--- a\n+++ b",
        "@@ -1 +1 @@\n-a\n+b",
        DIFF.replace("+++ 2\n", ""),
        DIFF.replace(" one\n", " one\n one\n"),
        DIFF.replace(" one\n", "one\n"),
        DIFF + "and so on",
        "Here it is:\n" + DIFF,
        DIFF.replace("@@ -1,4", "@@ -x,4"),
        "*** Begin Patch\n-a",
    ],
)
def test_other_texts_do_not(text: str) -> None:
    assert not diff.looks_like_diff(text)
