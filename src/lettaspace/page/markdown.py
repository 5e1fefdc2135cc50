"""Markdown as HTML that can do nothing."""

from markupsafe import Markup

from lettaspace.page import code


def render(text: str) -> Markup:
    """A text in Markdown, as a sequence of blocks; without an element around them."""
    return code.plain(text, "code text")
