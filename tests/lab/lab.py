"""The lab: one fake provider, a directory of homes, and scenarios that are run once each."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from tests.lab.driver import LettaHome
from tests.lab.provider import FakeProvider, Reply

Scenario = Callable[["Lab"], LettaHome]

SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    """Register a function under its own name."""
    SCENARIOS[function.__name__] = function
    return function


class Lab:
    """Called with a scenario's name it gives the storage directory, which is not to be changed."""

    def __init__(self, directory: Path, provider: FakeProvider, letta: Path) -> None:
        self.directory = directory
        self.provider = provider
        self.letta = letta
        self.seconds: dict[str, float] = {}
        self._built: dict[str, LettaHome] = {}

    def __call__(self, name: str) -> Path:
        return self.built(name).storage

    def built(self, name: str) -> LettaHome:
        """The home a scenario left behind; runs it the first time."""
        if name not in self._built:
            started = time.monotonic()
            inner = sum(self.seconds.values())
            self._built[name] = SCENARIOS[name](self)
            # Without the scenarios this one was built upon.
            inner = sum(self.seconds.values()) - inner
            self.seconds[name] = time.monotonic() - started - inner
        return self._built[name]

    def home(self, name: str, *providers: str) -> LettaHome:
        """A new machine whose Letta knows the providers (LM Studio when none is named)."""
        wanted = providers or ("lmstudio",)
        template = self.directory / "template" / "-".join(wanted)
        if not template.exists():
            self._at(template).connect(*wanted)
        path = self._new(name)
        shutil.copytree(template, path, symlinks=True)
        return self._at(path)

    def bare_home(self, name: str) -> LettaHome:
        """A new machine without any provider."""
        return self._at(self._new(name))

    def copy(self, source: str, name: str) -> LettaHome:
        """A copy of the home that scenario `source` left, to go on with."""
        origin = self.built(source)
        path = self._new(name)
        shutil.copytree(origin.path, path, symlinks=True)
        return self._at(path)

    def script(self, name: str, *replies: Reply) -> str:
        return self.provider.script(name, *replies)

    def _at(self, path: Path) -> LettaHome:
        return LettaHome(path, self.provider, self.letta, self.directory / "node-cache")

    def _new(self, name: str) -> Path:
        path = self.directory / "homes" / name
        if path.exists():
            raise ValueError(f"there is a home named {name} already")
        path.parent.mkdir(parents=True, exist_ok=True)
        return path
