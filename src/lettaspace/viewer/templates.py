"""The templates, and the rule that nothing unescaped or invisible gets through them."""

from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from lettaspace.page.inert import inert_block
from lettaspace.page.messages import local_time


def _shown(value: Any) -> Any:
    """What a template prints: text made inert (and then escaped), nothing for None."""
    if value is None:
        return ""
    if isinstance(value, str) and not isinstance(value, Markup):
        return inert_block(value)
    return value


@cache
def environment() -> Environment:
    loader = ChoiceLoader([PackageLoader("lettaspace.viewer"), PackageLoader("lettaspace.page")])
    made = Environment(
        loader=loader,
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters["time"] = lambda text: local_time(text, seconds=False) if text else "-"
    made.filters["number"] = "{:,}".format
    made.filters["counted"] = _counted
    made.globals.update(query="", section="", redacted=False)
    return made


def render(name: str, **context: Any) -> str:
    return environment().get_template(name).render(**context)


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
