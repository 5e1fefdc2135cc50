"""Fixtures for all tests, what they share out among processes, and the rule that in CI a
skipped test is a failed one."""

from __future__ import annotations

import asyncio
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import uvicorn.server
from hypothesis import HealthCheck, settings

# The lab drives the real Letta Code; its fixture skips where that is not installed.
pytest_plugins = [
    "tests.postgres",
    *(["tests.lab.fixtures"] if find_spec("tests.lab") else []),
]

# How long an example takes depends on what else the machine does. `steady`, for CI, makes the
# same examples each time: new ones are for whoever can look at them.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("steady", settings.get_profile("default"), derandomize=True)
settings.load_profile("default")


class _Brisk:
    """asyncio as uvicorn sees it, which looks ten times a second whether it should end, and
    waits as long again: for each of a thousand servers."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 10)


uvicorn.server.asyncio = _Brisk()  # type: ignore[attr-defined]


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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """First comes what takes long, so that no process is left with it alone in the end. What
    needs the lab goes to one process, which then runs each of its scenarios once."""

    def weight(item: pytest.Item) -> int:
        needs = getattr(item, "fixturenames", ())
        return 2 * ("letta_lab" in needs) + ("chromium" in needs)

    for item in items:
        if weight(item) >= 2:
            item.add_marker(pytest.mark.xdist_group("letta"))
    items.sort(key=weight, reverse=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Gives each file to one process, unless its tests belong to a group."""
    from xdist.scheduler import LoadGroupScheduling

    class ByFile(LoadGroupScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return super()._split_scope(nodeid).partition("::")[0]

    return ByFile(config, log) if config.getvalue("dist") == "loadgroup" else None


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
