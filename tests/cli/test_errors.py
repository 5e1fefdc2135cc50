"""What goes wrong: one line, an exit code, never a traceback or what a message says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lettaspace.cli.app import App
from lettaspace.conversation.space import Space
from tests.cli.conftest import Cli, process

READING = [
    ["agents"],
    ["conversations"],
    ["show", "x"],
    ["prompt", "x"],
    ["record", "at://did:web:a.example/space/a.b.c/self/did:web:a.example/a.b.c/x"],
    ["search", "x"],
    ["verify"],
]


@pytest.mark.parametrize("arguments", READING, ids=lambda each: each[0])
def test_reading_makes_no_space(cli: Cli, home: Path, arguments: list[str]) -> None:
    outcome = cli(*arguments)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == f"lettaspace: error: no space at {home}; `lettaspace up` makes one\n"
    assert not home.exists()


@pytest.mark.parametrize("arguments", READING, ids=lambda each: each[0])
def test_with_json_the_error_is_json_too(cli: Cli, arguments: list[str]) -> None:
    outcome = cli(*arguments, "--json")
    assert outcome.code == 1
    assert outcome.json["error"] == "StoreUnavailable"
    assert outcome.err == f"lettaspace: error: {outcome.json['message']}\n"


@pytest.mark.parametrize(
    ("name", "code"),
    [("nothing-like-it", "NotFound"), ("local-conv", "Ambiguous"), ("", "InvalidInput")],
)
def test_names_that_name_no_conversation(demo: Cli, name: str, code: str) -> None:
    for command in ("show", "prompt"):
        outcome = demo(command, name, "--json")
        assert (outcome.code, outcome.json["error"]) == (1, code)


def test_an_ambiguous_name_is_answered_with_the_candidates(demo: Cli) -> None:
    error = demo("show", "local-conv").err
    assert "local-conv-1" in error
    assert "local-conv-2" in error


@pytest.mark.parametrize(
    "uri", ["nonsense", "at://did:web:a.example/a.b.c/x", "at://did:web:a.example/space/a.b.c/self"]
)
def test_uris_that_name_no_record(demo: Cli, uri: str) -> None:
    assert demo("record", uri, "--json").json["error"] == "InvalidInput"


def test_a_record_that_is_not_there(demo: Cli) -> None:
    uri = "at://did:web:a.example/space/a.b.c/self/did:web:a.example/a.b.c/x"
    assert demo("record", uri, "--json").json["error"] == "NotFound"


def test_an_agent_that_is_not_there(demo: Cli) -> None:
    assert demo("conversations", "--agent", "nobody", "--json").json["error"] == "NotFound"


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["show"], ["show", "a", "b"], ["search", ""], ["search", "a", "--limit", "0"],
     ["agents", "--nonsense"], ["show", "x", "--window", "--transcript"]],
    ids=" ".join,
)  # fmt: skip
def test_a_wrong_command_line(cli: Cli, arguments: list[str]) -> None:
    outcome = cli(*arguments)
    assert (outcome.code, outcome.out) == (2, "")
    first, second = outcome.err.splitlines()
    assert first.startswith("lettaspace: error: ")
    assert second.startswith("Try: lettaspace ")


def test_a_near_miss_gets_a_hint(cli: Cli) -> None:
    assert "Did you mean verify?" in cli("verfy").err


def test_a_letta_directory_that_is_not_there(cli: Cli, home: Path, tmp_path: Path) -> None:
    for command in ("sync", "up"):
        outcome = cli(command, "--letta", tmp_path / "none", "--json")
        assert (outcome.code, outcome.json["error"]) == (1, "NotFound")
    assert not home.exists()


def test_a_home_that_is_no_directory(cli: Cli, home: Path) -> None:
    home.write_text("")
    assert cli("agents").code == 1
    assert cli("up", "--once", "--json").json["error"] == "StoreUnavailable"


def test_a_store_that_is_no_store(cli: Cli, home: Path) -> None:
    home.mkdir()
    (home / "space.db").write_bytes(b"not a database at all, but long enough to be looked at" * 40)
    assert cli("agents", "--json").json["error"] == "StoreUnavailable"


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs POSIX permissions")
def test_a_home_that_may_not_be_read(home: Path) -> None:
    home.mkdir()
    (home / "space.db").touch()
    home.chmod(0)
    code = (
        "import os, sys\n"
        "if os.geteuid() == 0:\n"
        "    os.setgid(65534); os.setuid(65534)\n"
        "from lettaspace.cli import main\n"
        "sys.exit(main())\n"
    )
    # Nobody must at least be able to reach it, and the code.
    try:
        outcome = process("--home", home, "agents", "--json", code=_importing_first(code))
    finally:
        home.chmod(0o700)
    assert outcome.code == 1
    assert outcome.json["error"] == "StoreUnavailable"
    assert len(outcome.err.splitlines()) == 1


def test_a_name_cannot_drive_the_terminal(demo: Cli) -> None:
    outcome = demo("show", "\x1b]0;title\x07\u202ex")
    assert outcome.code == 1
    assert "\x1b" not in outcome.err
    assert "\u202e" not in outcome.err


def test_a_mistake_of_ours_is_one_line_without_content(
    demo: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(App, "open", _raises(KeyError("a secret")))
    outcome = demo("agents", "--json")
    assert outcome.code == 1
    assert outcome.json["error"] == "Unexpected"
    assert len(outcome.err.splitlines()) == 1
    assert "KeyError" in outcome.err
    assert "secret" not in outcome.err + outcome.out


def test_debug_shows_where_it_happened(demo: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETTASPACE_DEBUG", "1")
    monkeypatch.setattr(App, "open", _raises(KeyError("x")))
    assert "Traceback" in demo("agents").err


def test_an_error_after_the_first_output_does_not_add_a_second_document(
    demo: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Space, "transcript", lambda *_: _fails_late())
    outcome = demo("show", "local-conv-1", "--json")
    assert outcome.code == 1
    assert '"error"' not in outcome.out


def test_interrupted(demo: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(App, "open", _raises(KeyboardInterrupt()))
    outcome = demo("agents")
    assert (outcome.code, outcome.out, outcome.err) == (130, "", "")


@pytest.mark.parametrize("arguments", [["--help"], ["show", "local-conv-1"], ["agents", "--json"]])
def test_nobody_reads_the_output(demo_home: Path, arguments: list[str]) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    if arguments != ["--help"]:
        arguments = ["--home", str(demo_home), *arguments]
    done = subprocess.run(
        [sys.executable, "-m", "lettaspace", *arguments],
        stdout=write_end,
        stderr=subprocess.PIPE,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_IGN),
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (141, b"")


def _raises(error: BaseException) -> Callable[[App], Space]:
    def method(_app: App) -> Space:
        raise error

    return method


def _fails_late() -> Iterator[None]:
    yield from ()
    raise KeyError


def _importing_first(code: str) -> str:
    """Everything is imported before rights are given up: the packages may be root's alone."""
    return (
        "import lettaspace.cli.run, lettaspace.cli.commands.agents\n"
        "import lettaspace.conversation.space, lettaspace.conversation.jsontext\n" + code
    )
