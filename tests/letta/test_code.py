"""Which files are code, which links lead outside, and how they are left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from lettaspace.letta.code import is_code, leads_outside, patterns
from tests.conversation.memories import Tree, commit, git, init


@pytest.mark.parametrize(
    "path",
    [
        "mods/a.js", "mods/README.md", "Mods/a.md", "MODS", "mods", "mo\u200bds/a.md", "mods./a.md",
        "skills/x/run.sh", "a.PY", "a.mJs", "deep/er/tool.ts ", "ｍｏｄｓ/a.md",
    ],
)  # fmt: skip
def test_code(path: str) -> None:
    assert is_code(path, "100644")


@pytest.mark.parametrize("path", ["MEMORY.md", "a.js.md", "models/a.md", "x/mods/a.md", "js", ""])
def test_no_code(path: str) -> None:
    assert not is_code(path, "100644")
    assert is_code(path, "100755")


LINKS = {
    "up": b"..",
    "dir/up": b"..",
    "dir/two": b"../..",
    "abs": b"/etc/passwd",
    "empty": b"",
    "git": b".git/hooks",
    "GIT": b"a/.GIT/config",
    "back": b"a\\b",
    "self": b"self",
    "one": b"other",
    "other": b"one",
    "through": b"up/x",
    "hop": b"dir/up/../x",
    "plain": b"a/b.md",
    "dots": b"./a/../b.md",
    "dir/plain": b"../a.md",
    "chain": b"plain",
    "down": b"dir/up/a.md",
}


def test_links() -> None:
    outside = {path for path in LINKS if leads_outside(path, LINKS)}
    assert set(LINKS) - outside == {"plain", "dots", "dir/plain", "dir/up", "chain", "down"}


def test_exactly_these_are_left_out(tmp_path: Path) -> None:
    names = [
        "a.js", "A.js", "b*.js", "bx.js", "c?.js", "cx.js", "[d].js", "d.js", "!e.js", "#f.js",
        "g\\h.js", "ends ", "ends", " begins", "é.js", "tab\t.js", "quote\".js", "x/a.js",
        "a.js.md",
    ]  # fmt: skip
    tree: Tree = dict.fromkeys(names, b"x\n")
    path = init(tmp_path / "memory")
    commit(path, tree)
    (path / ".git/info").mkdir(exist_ok=True)
    git(path, "config", "core.sparseCheckout", "true")
    for left_out in (names[::2], names[1::2], [names[2]], ["x/a.js"]):
        (path / ".git/info/sparse-checkout").write_bytes(patterns(left_out))
        git(path, "read-tree", "-m", "-u", "HEAD")
        found = {str(each.relative_to(path)) for each in path.rglob("*") if each.is_file()}
        assert {each for each in found if not each.startswith(".git/")} == set(names) - {*left_out}
