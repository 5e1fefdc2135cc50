"""The viewer's templates."""

from functools import cache
from typing import Any

from jinja2 import Environment

from lettaspace.page.templates import environment
from lettaspace.page.words import local_time


@cache
def _environment() -> Environment:
    made = environment("lettaspace.viewer")
    made.filters["time"] = lambda text: local_time(text, seconds=False) if text else "-"
    made.filters["number"] = "{:,}".format
    made.globals.update(query="", section="", redacted=False)
    return made


def render(name: str, **context: Any) -> str:
    return _environment().get_template(name).render(**context)
