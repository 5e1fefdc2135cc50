import pytest

from lettaspace.page import code, links, markdown
from tests.page.hostile import Page

A = '<a href="{}" rel="noopener noreferrer nofollow" target="_blank">{}</a>'


def _paragraph(text: str) -> str:
    html = str(markdown.render(text))
    return html.removeprefix('<p dir="auto">').removesuffix("</p>\n")


def test_blocks() -> None:
    text = "# One\n\nTwo *three* **four** ~~five~~ `six`\n\n> seven\n\n---\n\n7. eight\n"
    assert markdown.render(text) == (
        '<h3 dir="auto">One</h3>\n'
        '<p dir="auto">Two <em>three</em> <strong>four</strong> <s>five</s> <code>six</code></p>\n'
        '<blockquote><p dir="auto">seven</p>\n</blockquote>\n'
        "<hr>\n"
        '<ol start="7"><li dir="auto">eight</li>\n</ol>\n'
    )


def test_headings_start_at_the_third_level() -> None:
    text = "\n".join("#" * level + " x" for level in range(1, 7))
    assert Page(markdown.render(text)).tags == ["h3", "h4", "h5", "h6", "h6", "h6"]


def test_tables() -> None:
    assert markdown.render("| a | b |\n|---|--:|\n| 1 | 2 |\n| 3 |") == (
        '<div class="scroll" tabindex="0"><table><thead><tr><th dir="auto">a</th>'
        '<th dir="auto" class="right">b</th></tr>\n</thead>\n'
        '<tbody><tr><td dir="auto">1</td><td dir="auto" class="right">2</td></tr>\n'
        '<tr><td dir="auto">3</td><td dir="auto" class="right"></td></tr>\n'
        "</tbody>\n</table></div>\n"
    )


def test_a_table_with_more_cells_than_its_head_hides_none() -> None:
    text = "| a |\n|---|\n| 1 | hidden |"
    assert markdown.render("x\n\n" + text) == f'<p dir="auto">x</p>\n{code.plain(text)}\n'
    assert "<table" in markdown.render("| a |\n|---|\n| 1 \\| 2 |")


def test_task_lists() -> None:
    assert markdown.render("- [ ] a\n- [x] b\n- [y] c") == (
        '<ul><li dir="auto">☐ a</li>\n<li dir="auto">☑ b</li>\n<li dir="auto">[y] c</li>\n</ul>\n'
    )
    assert "[ ] a" in markdown.render("[ ] a")


def test_code_blocks_are_coloured() -> None:
    text = "def f():\n    pass\n"
    assert markdown.render(f"```python\n{text}```") == code.highlight(text, "python") + "\n"
    assert markdown.render("    x = 1\n") == code.highlight("x = 1\n") + "\n"


def test_words_beside_the_language_are_shown() -> None:
    assert markdown.render("~~~python a.py\nx") == (
        f'<p class="note" dir="auto">python a.py</p>\n{code.highlight("x", "python")}\n'
    )
    assert ">nonesuch</p>" in markdown.render("```nonesuch\nx\n```")


def test_html_is_text() -> None:
    assert _paragraph("<b>x</b> &lt;") == "&lt;b&gt;x&lt;/b&gt; &lt;"


def test_line_breaks() -> None:
    assert _paragraph("a\nb  \nc\\\nd") == "a\nb<br>\nc<br>\nd"


def test_links() -> None:
    for address in ("https://a.example", "http://a.example:8080/x?y=1&z#q", "https://[::1]/"):
        shown = address.replace("&", "&amp;")
        assert _paragraph(f"[x]({address})") == A.format(shown, "x")
        assert _paragraph(f"<{address}>") == A.format(shown, shown)
    assert _paragraph("[x](mailto:a@b.example)") == A.format("mailto:a@b.example", "x")
    assert ' title="t &#34;' in _paragraph("[x](https://a.example 't \"')")


def test_addresses_are_encoded() -> None:
    assert _paragraph("[x](https://a.example/é)") == A.format("https://a.example/%C3%A9", "x")
    assert "https://xn--mnchen-3ya.example" in _paragraph("[x](https://münchen.example)")


def test_bare_addresses_are_links() -> None:
    assert _paragraph("(https://a.example/b_(c)), and") == (
        "(" + A.format("https://a.example/b_(c)", "https://a.example/b_(c)") + "), and"
    )
    assert "<a" not in _paragraph("www.a.example a.example ftp://a.example xhttps://a.example")


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("javascript:alert(1)", "javascript:alert(1)"),
        ("java&#9;script:x", "java␉script:x"),
        ("&#106;avascript:x", "javascript:x"),
        ("data:text/html,x", "data:text/html,x"),
        ("file:///etc/passwd", "file:///etc/passwd"),
        ("//evil.example", "//evil.example"),
        ("/logout", "/logout"),
        ("#x", "#x"),
        ("https:evil.example", "https:evil.example"),
        ("https:///evil.example", "https:///evil.example"),
        ("https://bank.example@evil.example", "https://bank.example@evil.example"),
        ("https://bank.example\u200b.evil.example", "https://bank.example\\u200b.evil.example"),
        ("&#x202e;https://a.example", "\\u202ehttps://a.example"),
    ],
)
def test_other_targets_are_text(source: str, target: str) -> None:
    assert Page(markdown.render(f"[x]({source})")).text.strip() == f"x ({target})"
    assert Page(markdown.render(f"[x][1]\n\n[1]: {source}")).text.startswith(f"x ({target})")
    assert "<a" not in markdown.render(f"[x]({source}) ![x]({source})")


@pytest.mark.parametrize(
    "text",
    [
        "https://bank.example",
        "HTTPS://BANK.EXAMPLE/x",
        "bank.example",
        "your bank.example account",
        "bank．example",
        "bank。example",
        "http://localhost",
        "https://bank.example@evil.example",
        "**bank**.example",
        "`bank.example`",
        "a@bank.example",
        "",
    ],
)
def test_a_text_that_names_another_host_has_the_target_beside_it(text: str) -> None:
    page = Page(markdown.render(f"[{text}](https://evil.example/x)"))
    assert page.text.strip().endswith("(https://evil.example/x)")
    assert page.hrefs == ["https://evil.example/x"]


@pytest.mark.parametrize("text", ["evil.example", "https://www.evil.example/y", "the page", "1.5"])
def test_others_have_not(text: str) -> None:
    page = Page(markdown.render(f"[{text}](https://evil.example/x)"))
    assert page.text.strip() == text


def test_a_confusable_host_is_shown_as_it_is() -> None:
    page = Page(markdown.render("[https://apple.com](https://аррӏе.com)"))
    assert page.text.strip() == "https://apple.com (https://xn--80ak6aa92e.com)"


def test_images_are_links() -> None:
    assert _paragraph('![a *b*](https://a.example/p.png "t")') == (
        'image: <a href="https://a.example/p.png" rel="noopener noreferrer nofollow" '
        'target="_blank" title="t">a b</a>'
    )
    assert _paragraph("![](p.png)") == 'image: no description <span class="target">(p.png)</span>'
    page = Page(markdown.render("[![a](https://a.example/p.png)](https://b.example)"))
    assert page.hrefs == ["https://b.example"]
    assert page.text.startswith("image: a (https://a.example/p.png)")


def test_long_targets_are_cut() -> None:
    page = Page(markdown.render("![x](data:image/png;base64," + "A" * 5000 + ")"))
    assert len(page.text) < links.MAX_SHOWN + 50
    assert "…" in page.text


def test_definitions_are_shown() -> None:
    html = markdown.render("[x]\n\n[x]: https://a.example\n[//]: # (words)\n[x]: /y")
    assert A.format("https://a.example", "x") in html
    assert Page(html).text.strip().endswith("[x]: https://a.example\n[//]: # (words)\n[x]: /y")


def test_white_space_is_not_nothing() -> None:
    assert markdown.render("") == ""
    for text in (" ", "\n\n", "\t \u3000"):
        assert Page(markdown.render(text)).text.strip()


def test_lone_surrogates_are_shown() -> None:
    assert _paragraph("a\ud800b") == "a\\ud800b"


def test_right_to_left_text() -> None:
    html = markdown.render("שלום\n\n- שלום\n\n# שלום\n\n| א |\n|---|\n| ב |")
    for tag in ("p", "li", "h3", "th", "td"):
        assert f'<{tag} dir="auto">' in html


def test_long_texts_are_shown_as_they_are() -> None:
    text = "*a*\n\n" * (markdown.MAX_PARSED // 5 + 1)
    assert markdown.render(text) == code.plain(text)
    paragraph = "*a* " * (markdown.MAX_PARAGRAPH // 4 + 1)
    assert "*a* *a*" in markdown.render(paragraph + "\n\n*b*")
    assert "<em>b</em>" in markdown.render(paragraph + "\n\n*b*")


@pytest.mark.parametrize("unit", ["> ", "- ", "1. ", "> - "])
def test_deep_texts_are_shown_as_they_are(unit: str) -> None:
    for depth in (10, 20, 25, 50, 100, 1000):
        assert "innermost" in Page(markdown.render(unit * depth + "innermost")).text
    text = unit * 1000 + "innermost"
    assert markdown.render(text) == code.plain(text)
