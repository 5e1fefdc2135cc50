import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lettaspace.conversation import jsontext
from lettaspace.page import code, diff, jsonview
from lettaspace.page.inert import inert_block
from tests.page.hostile import Page

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def test_json_is_indented_and_coloured() -> None:
    html = jsonview.render({"a": [1, True, "b"], "c": {}})
    assert html == (
        '<div class="code json" tabindex="0">{\n'
        '  <span class="j-key">&#34;a&#34;</span>: [\n'
        '    <span class="j-num">1</span>,\n'
        '    <span class="j-lit">true</span>,\n'
        '    <span class="j-str">&#34;b&#34;</span>\n'
        "  ],\n"
        '  <span class="j-key">&#34;c&#34;</span>: {}\n'
        "}</div>"
    )


def test_o22_numbers_keep_their_text() -> None:
    text = '{"input":0.0123,"output":1.0,"total":1e-7,"x":-0.0,"id":9007199254740993,"n":1E+2}'
    shown = Page(jsonview.render(jsontext.loads(text))).text
    assert shown.replace("\n", "").replace(" ", "") == text
    assert '"x": -0.0' in shown
    assert jsonview.render(jsontext.loads("NaN")).count("NaN") == 1


@settings(deadline=None)
@given(values)
def test_the_text_is_the_value(value: Any) -> None:
    page = Page(jsonview.render(value))
    assert not page.problems
    assert jsontext.dumps(jsontext.loads(page.text)) == jsontext.dumps(value)


def test_what_hides_text_is_escaped_as_json() -> None:
    text = Page(jsonview.render("\u202e\x1b\x9b\x7f\u2028\U000e0041\ud800é")).text
    assert text == '"\\u202e\\u001b\\u009b\\u007f\\u2028\\udb40\\udc41\\ud800é"'


@pytest.mark.parametrize("unit", ["a", "\\", '"', "\n", "\u202e", "é", "u0041\\"])
def test_long_strings_are_folded_and_stay_whole(unit: str) -> None:
    value = unit * 2000
    page = Page(jsonview.render([value, "short"]))
    assert page.tags.count("details") == 1
    assert json.loads(page.text) == [value, "short"]
    assert not page.problems


def test_long_keys_are_not_folded() -> None:
    assert "<details" not in jsonview.render({"k" * 2000: 1})


def test_depth_is_bounded() -> None:
    def nested(depth: int) -> Any:
        value: Any = 1
        for _ in range(depth):
            value = [value]
        return value

    assert "\n" in jsonview.render(nested(jsonview.MAX_INDENTED))
    assert Page(jsonview.render(nested(100))).text == "[" * 100 + "1" + "]" * 100
    assert "nested too deeply" in jsonview.render(nested(5000))


def test_large_values_have_no_colours() -> None:
    value = ["x" * 100] * 3000
    page = Page(jsonview.render(value))
    assert page.tags == ["div"]
    assert json.loads(page.text) == value


def _arguments(name: str, value: Any) -> dict[str, str]:
    """What stands beside each name."""
    html = str(jsonview.arguments(name, value))
    assert html.startswith('<dl class="arguments">')
    assert not Page(html).problems
    parts = html.removeprefix('<dl class="arguments">').removesuffix("</dl>").split("<dt>")
    return {
        label: content.strip().removesuffix("</dd>")
        for label, _, content in (part.partition("</dt><dd>") for part in parts[1:])
    }


def test_short_arguments_are_inline() -> None:
    assert _arguments("x", {"a": "b c", "n": 1, "t": True, "z": None, "l": []}) == {
        "a": '<code dir="auto">b c</code>',
        "n": '<code><span class="j-num">1</span></code>',
        "t": '<code><span class="j-lit">true</span></code>',
        "z": '<code><span class="j-lit">null</span></code>',
        "l": "<code>[]</code>",
    }


@pytest.mark.parametrize("text", ["", " ", "true", "12", "-1.5e3", "[1]", "{}", '"a"', " x", "x "])
def test_strings_that_look_like_something_else_have_quotes(text: str) -> None:
    shown = _arguments("x", {"a": text})["a"]
    assert Page(shown).text == json.dumps(text)


def test_texts_are_blocks() -> None:
    long = "word " * 100
    assert _arguments("x", {"a": "b\nc", "d": long}) == {
        "a": code.highlight("b\nc"),
        "d": code.highlight(long),
    }


@pytest.mark.parametrize("key", ["command", "cmd"])
def test_commands_are_shell_code(key: str) -> None:
    text = "ls | wc -l"
    assert _arguments("Bash", {key: text})[key] == code.highlight(text, "bash")


@pytest.mark.parametrize("file", ["file_path", "path", "filePath"])
def test_a_files_content_has_its_colours(file: str) -> None:
    text = "def f():\n    pass\n"
    shown = _arguments("Write", {"content": text, file: "/home/mira/a.py"})
    assert shown["content"] == code.highlight(text, "python")


def test_code_in_a_named_language() -> None:
    text = "x = 1\ny = 2"
    for name, value in (("run", {"code": text, "language": "python"}), ("Python", {"code": text})):
        assert _arguments(name, value)["code"] == code.highlight(text, "python")
    assert _arguments("run", {"code": text, "language": 7})["code"] == code.highlight(text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("old_string", "new_string"),
        ("old_str", "new_str"),
        ("old_text", "new_text"),
        ("oldText", "newText"),
        ("oldString", "newString"),
    ],
)
def test_edits_are_diffs(old: str, new: str) -> None:
    shown = _arguments("Edit", {"path": "a.py", new: "b\nc", "all": True, old: "b\nd"})
    assert list(shown) == ["path", f"{old} → {new}", "all"]
    assert shown[f"{old} → {new}"] == diff.unified("b\nd", "b\nc")


def test_half_an_edit_is_a_text() -> None:
    assert _arguments("Edit", {"old_string": "a", "new_string": 1})["old_string"] == (
        '<code dir="auto">a</code>'
    )


def test_lists_of_edits() -> None:
    edits = [{"oldText": "a", "newText": "b"}, {"oldText": "c", "newText": "d", "n": 2}]
    html = jsonview.arguments("multi", {"path": "x", "edits": edits})
    for edit in edits:
        assert diff.unified(str(edit["oldText"]), str(edit["newText"])) in html
    mixed = jsonview.arguments("multi", {"edits": [*edits, 1]})
    assert jsonview.render([*edits, 1]) in mixed


def test_patches_are_diffs() -> None:
    patch = "*** Begin Patch\n*** Add File: a\n+x\n"
    unified = "--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n"
    assert _arguments("apply_patch", {"input": patch})["input"] == diff.highlight(patch)
    assert _arguments("any", {"any": unified})["any"] == diff.highlight(unified)
    assert jsonview.arguments("apply_patch", unified) == diff.highlight(unified)


@pytest.mark.parametrize("value", [None, {}, [], [1, 2], 1, True])
def test_other_arguments_are_json(value: Any) -> None:
    assert jsonview.arguments("x", value) == jsonview.render(value)


def test_many_arguments_are_json() -> None:
    value = {str(number): number for number in range(jsonview.MAX_ARGUMENTS + 1)}
    assert jsonview.arguments("x", value) == jsonview.render(value)


@settings(deadline=None)
@given(
    st.text(), st.dictionaries(st.sampled_from(["path", "content", "old_str", "new_str"]), values)
)
def test_any_arguments_are_shown(name: str, value: Any) -> None:
    page = Page(jsonview.arguments(name, value))
    assert not page.problems
    for text in value.values():
        if isinstance(text, str) and "\n" in text and "old_str" not in value:
            assert inert_block(text) in page.text
