"""The guide's blocks are one program, and print what the guide shows."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from doctest import ELLIPSIS, OutputChecker
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "library.md"

_BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


def test_the_guide_runs(home: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    names: dict[str, Any] = {"home": home}
    ran = 0
    try:
        for block in _BLOCK.finditer(text):
            code, wanted = block.groups()
            line = text.count("\n", 0, block.start()) + 1
            written = io.StringIO()
            with redirect_stdout(written):
                exec(compile("\n" * line + code, str(PAGE), "exec"), names)  # noqa: S102
            if not OutputChecker().check_output(wanted or "", written.getvalue(), ELLIPSIS):
                pytest.fail(f"{PAGE.name}:{line} prints\n{written.getvalue()}")
            ran += 1
    finally:
        if "space" in names:
            names["space"].close()
    assert ran == text.count("```python")
    assert ran > 10
    assert text.count("```text") == len([1 for found in _BLOCK.findall(text) if found[1]])
