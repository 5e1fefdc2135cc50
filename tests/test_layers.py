"""Imports point downward only, and the lowest layer does no I/O."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import lettaspace

PACKAGE = "lettaspace"
ROOT = Path(lettaspace.__file__).parent

LAYERS = (
    {"errors", "lexicons"},
    {"atproto"},
    {"space"},
    {"conversation"},
    {"network"},
    {"letta", "pi", "server", "remote"},
    {"demo", "page"},
    {"export"},
    {"viewer"},
    {"cli"},
    {"__main__"},
)
"""From the bottom up. Those in one layer don't import each other."""

RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}

IMPURE = {
    "asyncio", "ftplib", "http", "httpx", "io", "multiprocessing", "os", "pathlib", "requests",
    "select", "shutil", "signal", "smtplib", "socket", "sqlalchemy", "sqlite3", "ssl",
    "subprocess", "tempfile", "urllib",
}  # fmt: skip
"""What `atproto` may not import. It reads the lexicons that ship with the package through
importlib.resources, and the clock and random numbers for TIDs and keys; nothing else."""

MODULES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_downward(path: Path) -> None:
    layer = _layer(_name(path))
    if layer == "":  # the package itself, which hands out what is below it
        return
    for line, name in _imports(path):
        if name == PACKAGE or name.startswith(PACKAGE + "."):
            other = _layer(name)
            if other in ("", layer):
                continue
            assert RANK[other] < RANK[layer], f"{path}:{line}: {layer} imports {name}"


@pytest.mark.parametrize(
    "path", sorted((ROOT / "atproto").rglob("*.py")), ids=lambda path: path.name
)
def test_atproto_is_pure(path: Path) -> None:
    for line, name in _imports(path):
        assert name.partition(".")[0] not in IMPURE, f"{path}:{line}: imports {name}"
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("open", "input", "print"), f"{path}:{node.lineno}"


def test_every_part_of_the_package_has_a_layer() -> None:
    parts = {_layer(_name(path)) for path in MODULES} - {""}
    assert parts <= RANK.keys()


def test_relative_and_inner_imports_are_seen(tmp_path: Path) -> None:
    path = ROOT / "space" / "view.py"
    source = (
        "def f():\n    from ..cli import run\n    import lettaspace.viewer\nfrom .writes import Op"
    )
    found = [name for _, name in _imports(path, source)]
    assert found == ["lettaspace.cli", "lettaspace.viewer", "lettaspace.space.writes"]
    assert [name for _, name in _imports(path, "from lettaspace import cli")] == ["lettaspace.cli"]
    assert [name for _, name in _imports(path, "from .. import cli")] == ["lettaspace.cli"]


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _layer(name: str) -> str:
    """The part of the package a module belongs to; empty for the package itself."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and (parts[1] in RANK or _exists(parts[1])) else ""


def _exists(part: str) -> bool:
    return (ROOT / part).is_dir() or (ROOT / f"{part}.py").exists()


def _imports(path: Path, source: str | None = None) -> Iterator[tuple[int, str]]:
    """Every import, wherever it stands: line and absolute module name."""
    package = _name(path).split(".")
    if path.name != "__init__.py":
        package.pop()
    tree = ast.parse(path.read_text() if source is None else source)
    for node in sorted(
        (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)),
        key=lambda node: node.lineno,
    ):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
            continue
        base = package[: len(package) - node.level + 1] if node.level else []
        name = ".".join([*base, *([node.module] if node.module else [])])
        if name == PACKAGE:
            yield from ((node.lineno, f"{name}.{alias.name}") for alias in node.names)
        else:
            yield node.lineno, name
