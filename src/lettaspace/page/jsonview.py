"""JSON values and the arguments of tools, as HTML."""

from typing import Any

from markupsafe import Markup

from lettaspace.conversation import jsontext
from lettaspace.page import code


def render(value: Any) -> Markup:
    """A JSON value, as `jsontext.loads` gives it; the text content is its JSON text."""
    return code.plain(jsontext.dumps(value, indent=2), "code json")


def arguments(name: str, value: Any) -> Markup:
    """The arguments of a call of the tool `name`: a list of names and values."""
    return render(value if name else None)
