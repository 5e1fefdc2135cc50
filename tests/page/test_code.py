import re
from pathlib import Path

import pytest
from pygments.lexer import Lexer

import lettaspace
from lettaspace.page import code
from tests.page.hostile import Page

CSS = (Path(lettaspace.__file__).parent / "page" / "static" / "code.css").read_text()


def test_the_shape_of_a_block() -> None:
    assert code.highlight("x < y") == ('<pre class="code" tabindex="0"><code>x &lt; y</code></pre>')
    assert code.highlight("") == '<pre class="code" tabindex="0"><code></code></pre>'


def test_a_language_by_its_name() -> None:
    html = code.highlight("def f():", "python")
    assert '<span class="s-k">def</span>' in html
    assert html == code.highlight("def f():", "Py")


def test_a_language_by_the_files_name() -> None:
    html = code.highlight("def f():", "python")
    assert code.highlight("def f():", None, "/home/mira/a.py") == html
    assert code.highlight("def f():", "nonesuch", "C:\\work\\a.py") == html
    assert code.highlight("def f():", "python", "a.html") == html


def test_nothing_is_guessed_from_the_text() -> None:
    text = "#!/usr/bin/python\ndef f(): pass"
    for html in (
        code.highlight(text),
        code.highlight(text, "nonesuch", "no.suchfile"),
        code.highlight(text, "", ""),
        code.highlight(text, "python " * 100, "a" * 5000 + ".nonesuch"),
    ):
        assert "<span" not in html


@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
@pytest.mark.parametrize("language", [None, "python", "console", "diff", "json"])
def test_line_breaks_at_the_ends_are_kept(language: str | None, end: str) -> None:
    text = f"\n\n  x = 1{end}"
    assert Page(code.highlight(text, language)).text == text
    assert "\r" not in code.highlight("a\r\nb", language)


def test_long_texts_have_no_colours() -> None:
    line = "x = 1\n"
    assert "<span" in code.highlight(line * 100, "python")
    assert "<span" not in code.highlight(line * (code.MAX_HIGHLIGHTED // 6 + 1), "python")
    assert "<span" in code.highlight("#" * code.MAX_LINE, "python")
    assert "<span" not in code.highlight("#" * (code.MAX_LINE + 1), "python")


def test_a_lexer_that_takes_too_long_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "MAX_SECONDS", -1)
    assert code.highlight("def f(): pass", "python") == code.highlight("def f(): pass")


def test_a_lexer_that_fails_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Lexer, text: str) -> None:
        raise IndexError(text)

    monkeypatch.setattr(Lexer, "get_tokens", fail)
    assert code.highlight("x", "python") == code.highlight("x")


def test_what_a_terminal_was_told_of_colours() -> None:
    html = code.terminal("a\x1b[1;31mb\x1b[22mc\x1b[39md\x1b[94me\x1b[0mf\x1b[32mg\x1b[mh")
    assert html == (
        '<pre class="code terminal" tabindex="0"><code>a<span class="t-bold t-red">b</span>'
        '<span class="t-red">c</span>d<span class="t-bright-blue">e</span>f'
        '<span class="t-green">g</span>h</code></pre>'
    )


@pytest.mark.parametrize("sequence", ["8", "40", "30;40", "38;5;200", "38;2;0;0;0", "48;2;1;1;1"])
def test_a_terminal_hides_nothing(sequence: str) -> None:
    html = code.terminal(f"a\x1b[{sequence}mb")
    assert Page(html).text == "ab"
    assert set(re.findall("t-[a-z]+", html)) <= {"t-black"}


def test_parts_of_long_colours_are_no_colours() -> None:
    assert "t-" not in code.terminal("\x1b[38;5;31mx\x1b[0;48;2;31;32;33my\x1b[38;5mz")
    assert 't-red">x' in code.terminal("\x1b[48;5;34;31mx")
    assert 't-green">x' in code.terminal("\x1b[31;38;5;7;32mx")


def test_o21_other_sequences_are_shown() -> None:
    text = "\x1b]52;c;aGk=\x07\x1b[2J\x9b31m\x1b[1A\x1b[?25l\x1b[31"
    assert Page(code.terminal(text)).text == "␛]52;c;aGk=␇␛[2J\\x9b31m␛[1A␛[?25l␛[31"


def test_known_languages() -> None:
    assert code.knows("python")
    assert code.knows("C++")
    assert not code.knows("nonesuch")
    assert not code.knows("")


def _themes() -> dict[str, dict[str, str]]:
    """The colours under each selector that sets them."""
    blocks = re.findall(r"(:root[^{]*)\{([^}]*)\}", CSS)
    return {
        selector.strip(): dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", body))
        for selector, body in blocks
    }


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_every_text_colour_can_be_read() -> None:
    assert len(_themes()) == 3
    for selector, colours in _themes().items():
        for name, colour in colours.items():
            if name == "code-ink":
                grounds = ["code-bg", "d-add", "d-del", "d-hunk"]
            elif name.startswith(("s-", "t-")) or name == "code-soft":
                grounds = ["code-bg"]
            else:
                continue
            for ground in grounds:
                assert _contrast(colour, colours[ground]) >= 4.5, (selector, name, ground)


def test_both_ways_to_a_dark_page_have_the_same_colours() -> None:
    light, preferred, chosen = _themes().values()
    assert preferred == chosen
    assert light.keys() == chosen.keys()


def test_every_class_has_a_rule() -> None:
    for name in (*code._COLOURS, *(f"bright-{colour}" for colour in code._COLOURS), "bold"):
        assert f".t-{name} {{" in CSS
    for name in ("d-add", "d-del", "d-hunk", "d-file", "j-key", "j-str", "j-num", "j-lit"):
        assert f".{name} {{" in CSS
