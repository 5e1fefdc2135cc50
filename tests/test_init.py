"""The names that `lettaspace` hands out, and what importing it costs."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import lettaspace

_MEASURE = """
import sys
before = set(sys.modules)
import lettaspace
print(*sorted(set(sys.modules) - before))
"""


def test_importing_costs_next_to_nothing() -> None:
    assert _run(_MEASURE).split() == ["lettaspace"]


@pytest.mark.parametrize("name", lettaspace.__all__)
def test_every_name_is_there(name: str) -> None:
    found = getattr(lettaspace, name)
    assert found is not None
    assert name in dir(lettaspace)


def test_names_can_be_imported() -> None:
    code = (
        "from lettaspace import Space, planning\n"
        "import lettaspace.conversation.space as there\n"
        "assert Space is there.Space is __import__('lettaspace').Space\n"
        "print(planning.__name__)\n"
    )
    assert _run(code) == "lettaspace.conversation.planning\n"


def test_a_type_checker_sees_the_same_names() -> None:
    source = Path(lettaspace.__file__).read_text(encoding="utf-8")
    imported = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    named = {alias.asname: (node.module, alias.name) for node in imported for alias in node.names}
    named.pop(None)
    assert named.keys() == set(lettaspace.__all__) - {"__version__"}
    for name, (module, attribute) in named.items():
        assert module is not None
        assert getattr(importlib.import_module(module), attribute) is getattr(lettaspace, name)


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="no attribute 'space_ship'"):
        _ = lettaspace.space_ship  # type: ignore[attr-defined]


def _run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout
