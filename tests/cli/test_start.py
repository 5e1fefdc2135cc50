"""Starting up: what `--help` costs, and what a command may import."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lettaspace import __version__
from lettaspace.cli.app import app
from lettaspace.cli.catalog import COMMANDS, HELP
from tests.cli.conftest import process

HEAVY = ("sqlalchemy", "numpy", "rich", "cryptography", "importlib.metadata", "blake3", "cbrrr")


def _imported(*arguments: str) -> set[str]:
    """The modules that are loaded when such a command line has run."""
    code = (
        "import sys\n"
        "from lettaspace.cli import main\n"
        "code = main()\n"
        "print(code, *sorted(sys.modules), file=sys.stderr)\n"
    )
    outcome = process(*arguments, code=code)
    status, *modules = outcome.err.splitlines()[-1].split()
    assert status == "0"
    return set(modules)


def test_help_is_answered_without_click() -> None:
    modules = _imported("--help")
    assert not modules & {"click", "re", "json", *HEAVY}


@pytest.mark.parametrize("arguments", [("sync", "--help"), ("show", "--help"), ("up", "--help")])
def test_help_of_a_command_imports_no_store(arguments: tuple[str, ...]) -> None:
    modules = _imported(*arguments)
    assert "click" in modules
    assert not modules & set(HEAVY)


def test_help_is_the_same_with_and_without_click() -> None:
    plain = process("--help")
    assert (plain.code, plain.out, plain.err) == (0, HELP + "\n", "")
    assert process("--home", "x", "--help").out == plain.out
    assert process("-h").out == plain.out


def test_help_fits_a_terminal() -> None:
    assert all(len(line) <= 80 for line in HELP.splitlines())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_can_say_what_it_does(name: str) -> None:
    outcome = process(name, "--help")
    assert outcome.code == 0
    assert outcome.out.startswith(f"Usage: lettaspace {name} ")


def test_the_catalog_is_what_there_is() -> None:
    with app.make_context("lettaspace", ["status"]) as context:
        assert app.list_commands(context) == list(COMMANDS)
        for name in COMMANDS:
            command = app.get_command(context, name)
            assert command is not None
            assert command.name == name


def test_version() -> None:
    assert process("--version").out == f"lettaspace {__version__}\n"
    assert process("--home", "x", "--version").out == f"lettaspace {__version__}\n"


def test_nothing_to_do_is_a_usage_error() -> None:
    outcome = process()
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == HELP + "\n"


def test_the_script_is_installed() -> None:
    code = "from importlib.metadata import entry_points as e; print(*e(name='lettaspace'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "lettaspace.cli:main" in done.stdout
