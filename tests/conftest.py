"""Fixtures for all tests, and the rule that in CI a skipped test is a failed one."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

# The lab drives the real Letta Code; its fixture skips where that is not installed.
pytest_plugins = [
    "tests.postgres",
    *(["tests.lab.fixtures"] if find_spec("tests.lab") else []),
]


@pytest.fixture(autouse=True)
def _no_settings_of_mine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings of whoever runs the tests have no part in them."""
    for name in ("LETTASPACE_HOME", "LETTASPACE_DEBUG", "LETTA_LOCAL_BACKEND_DIR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory for a space, not made yet."""
    return tmp_path / "home"


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _skips_fail() and _skipped(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _skips_fail() and (count := _skipped(terminalreporter.config)):
        terminalreporter.write_line(f"{count} skipped, which LETTASPACE_NO_SKIPS makes a failure")


def _skips_fail() -> bool:
    return os.environ.get("LETTASPACE_NO_SKIPS", "") not in ("", "0")


def _skipped(config: pytest.Config) -> int:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return len(reporter.stats.get("skipped", [])) if reporter else 0
