"""`lettaspace pi`: what it prints, and what it leaves behind when something is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.pi.sessions import Writer
from tests.pi.test_import import DATA, parsed

FILE = DATA / "pi-1.6.jsonl"


def test_in_and_out(cli: Cli, tmp_path: Path) -> None:
    done = cli("pi", "import", FILE)
    assert (done.code, done.err) == (0, "")
    first, second = done.out.splitlines()
    name = first.partition(": ")[2].partition(",")[0]
    assert first == f"{FILE}: {name}, 21 messages, 21 new, 4 on other branches"
    assert second == "! row 14: loneSurrogate"
    assert "nothing new" in cli("pi", "import", FILE).out
    assert "Sessions of pi" in cli("agents").out

    there = tmp_path / "there.jsonl"
    done = cli("pi", "export", name, "-o", there)
    assert (done.code, done.out) == (0, f"Wrote {there}\n")
    assert parsed(there.read_bytes()) == parsed(FILE.read_bytes())
    assert cli("pi", "export", name).out.encode() == there.read_bytes()
    assert cli("pi", "export", name[:11], "-o", "-").out.encode() == there.read_bytes()


def test_several_files_as_json(cli: Cli, tmp_path: Path) -> None:
    made = Writer(id="another")
    for number in range(7):
        made.leaf = f"gone-{number}"
        made.user("one")
    other = tmp_path / "other.jsonl"
    other.write_bytes(made.lines())
    found = cli("pi", "import", "--json", FILE, other).json
    assert [each["messages"]["created"] for each in found] == [21, 7]
    assert [each["session"] for each in found][1] == "another"
    assert found[0]["otherBranches"] == 4
    assert found[1]["damage"][0] == {
        "kind": "missingParent", "row": 2, "note": "", "loss": False,
    }  # fmt: skip
    assert cli("pi", "import", other).out.splitlines()[-1] == "! and 2 more"


def test_shown(cli: Cli) -> None:
    (found,) = cli("pi", "import", "--json", FILE).json
    shown = cli("show", found["conversation"]).out
    for each in (
        "thinking: The table of the tiles has it.",
        "→ read  toolu_1",
        "← read  toolu_1",
        "**Celadon 4** runs 6 mm at cone 10.",
        "[image image/png, 70 bytes]",
        "── compaction: #19 summarises 8 messages ──",
    ):
        assert each in shown, each


@pytest.mark.parametrize("wrong", ["no such file", "no session", "a directory"])
def test_one_line_and_nothing_stored(cli: Cli, home: Path, tmp_path: Path, wrong: str) -> None:
    path = tmp_path / "wrong.jsonl"
    if wrong == "no session":
        path.write_text('{"role":"user"}\n')
    elif wrong == "a directory":
        path.mkdir()
    done = cli("pi", "import", FILE, path)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("lettaspace: error: ")
    assert done.err.count("\n") == 1
    assert str(path) in done.err
    assert not home.exists()  # not even the file that is right


def test_both_went_on(cli: Cli, tmp_path: Path) -> None:
    made = Writer()
    made.user("one")
    path = tmp_path / "a.jsonl"
    path.write_bytes(made.lines())
    cli("pi", "import", path)
    made.says("two")
    path.write_bytes(made.lines())
    cli("pi", "import", path)
    (short,) = (tmp_path / "b.jsonl",)
    made.rows.pop()
    made.leaf = made.rows[-1]["id"]
    made.user("otherwise")
    short.write_bytes(made.lines())
    done = cli("pi", "import", "--json", short)
    assert done.code == 1
    assert json.loads(done.out)["error"] == "Conflict"
    assert "went on separately" in done.err


def test_what_cannot_be_written(cli: Cli, tmp_path: Path) -> None:
    cli("pi", "import", FILE)
    (found,) = cli("conversations", "--json").json
    done = cli("pi", "export", found["rkey"], "-o", tmp_path / "no" / "where.jsonl")
    assert (done.code, done.out) == (1, "")
    assert done.err.count("\n") == 1
    assert cli("pi", "export", "nothing").code == 1


def test_secrets_stay(cli: Cli, tmp_path: Path) -> None:
    """The file is for going on with, not for showing around."""
    made = Writer()
    secret = "ghp_" + "a1B2c3D4e5F6" * 3
    made.user(f"use {secret}")
    path = tmp_path / "a.jsonl"
    path.write_bytes(made.lines())
    (found,) = cli("pi", "import", "--json", path).json
    assert secret in cli("pi", "export", found["conversation"]).out
    assert cli("secrets", found["conversation"]).code == 0
