"""Links to elsewhere: which may be followed, and where they lead.

Only http, https and mailto are links, and only where a browser and this module agree on the
host: an address with a user name, a backslash or an escape in its host is shown as text.
"""

import re
import unicodedata

from markupsafe import Markup, escape

from lettaspace.page.inert import inert, inert_block

MAX_ADDRESS = 2_000
"""Longer addresses (in characters) are no links."""

MAX_SHOWN = 300
"""This much of an address is shown beside a link's text."""

_WEB = re.compile(
    r"https?://((?:[a-z0-9_-]+\.)*[a-z0-9_-]+\.?|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?(?:[/?#][!-~]*)?",
    re.ASCII | re.IGNORECASE,
)
_MAIL = re.compile(
    r"mailto:([a-z0-9.+_-]+@(?:[a-z0-9-]+\.)*[a-z0-9-]+)(?:\?[!-~]*)?", re.ASCII | re.IGNORECASE
)
_BARE = re.compile(r"\bhttps?://[^\s<>\"`]+", re.IGNORECASE)
# What a reader may take for a host or an address.
_NAMED = re.compile(
    r"(?:[^\s/@<>()]{1,64}@)?(?:\w[\w-]{0,62}\.){1,8}[^\W\d_]{2,24}(?![\w-])|(?<=://)[^\s/?#]+"
)
_DOTS = str.maketrans("。․", "..")


def linked(text: str) -> Markup:
    """Text in which bare http and https addresses are links."""
    parts: list[Markup] = []
    end = 0
    for found in _BARE.finditer(text):
        bare = _without_punctuation(found[0])
        if address(bare) is not None:
            parts += escape(inert_block(text[end : found.start()])), link(escape(bare), bare, bare)
            end = found.start() + len(bare)
    return Markup().join([*parts, escape(inert_block(text[end:]))])


def link(label: Markup, text: str, target: str, title: str = "") -> Markup:
    """A link, or its label and target as text where it may not be followed.

    `label` is what the link shows, `text` the same without elements. Where the text names
    another host than the one the link leads to, the target stands beside it.
    """
    href = address(target)
    if href is None:
        return label if text == target else unlinked(label, target)
    about = Markup(' title="{}"').format(inert(title)) if title else Markup()
    anchor = Markup(
        '<a href="{}" rel="noopener noreferrer nofollow" target="_blank"{}>{}</a>'
    ).format(href, about, label)
    return unlinked(anchor, href) if not text.strip() or _misleads(text, href) else anchor


def unlinked(label: Markup, target: str) -> Markup:
    """A label, and beside it the target as text."""
    shown = inert(target if len(target) <= MAX_SHOWN else target[:MAX_SHOWN] + "…")
    return Markup('{} <span class="target">({})</span>').format(label, shown)


def address(target: str) -> str | None:
    """The target as a browser may have it: ASCII, its host in Punycode. None for any other."""
    if len(target) > MAX_ADDRESS or inert(target) != target:
        return None
    if not target.isascii() or not (_WEB.fullmatch(target) or _MAIL.fullmatch(target)):
        from markdown_it.common.normalize_url import normalizeLink

        try:
            target = normalizeLink(target)
        except Exception:  # of a library three layers down, for text from anywhere
            return None
    return target if _WEB.fullmatch(target) or _MAIL.fullmatch(target) else None


def _misleads(text: str, href: str) -> bool:
    found = _WEB.fullmatch(href) or _MAIL.fullmatch(href)
    own = _bare_host(found[1]) if found else ""
    # U+3002 and U+2024 look and, in a browser, are like a full stop.
    text = unicodedata.normalize("NFKC", text).translate(_DOTS).casefold()
    return any(_bare_host(name) != own for name in _NAMED.findall(text))


def _bare_host(host: str) -> str:
    return re.sub(r":[0-9]+\Z", "", host.casefold()).rstrip(".").removeprefix("www.")


def _without_punctuation(url: str) -> str:
    """A bare address without the punctuation of the sentence around it."""
    while url and (
        url[-1] in ".,;:!?'*_~"
        or (url[-1] == ")" and url.count("(") < url.count(")"))
        or (url[-1] == "]" and url.count("[") < url.count("]"))
    ):
        url = url[:-1]
    return url
