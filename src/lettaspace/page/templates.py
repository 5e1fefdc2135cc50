"""Templates, and the rule that nothing unescaped or invisible gets through them."""

from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from lettaspace.page.inert import inert_block
from lettaspace.page.words import counted


def environment(package: str) -> Environment:
    """The templates of a package and, where it has none of a name, those beside this module.

    What a template prints is made inert and escaped; None is nothing.
    """
    made = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("lettaspace.page")]),
        autoescape=True,
        finalize=_visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters["counted"] = counted
    return made


def _visible(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, str) and not isinstance(value, Markup):
        return inert_block(value)
    return value
