"""The examples under `deploy` name settings and options that there are."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from lettaspace.cli.commands import host, serve

DEPLOY = Path(__file__).parent.parent / "deploy"


def test_settings_are_those_of_serve() -> None:
    known = {option.envvar for option in serve.command.params if isinstance(option, click.Option)}
    named = re.findall(r"^#?(LETTASPACE_\w+)=", (DEPLOY / "host.env").read_text(), re.MULTILINE)
    assert len(named) >= 6
    assert set(named) <= known


@pytest.mark.parametrize("name", ["lettaspace.service", "backup.sh"])
def test_commands_are_there(name: str) -> None:
    text = (DEPLOY / name).read_text().replace("\\\n", " ")
    (command,) = re.findall(r"/opt/lettaspace/bin/lettaspace --home \S+ (\w+)(?: (\w+))?", text)
    assert command in (("serve", ""), ("host", "backup"))
    assert command[1] in ("", *host.command.commands)


def test_proxies_let_the_largest_blob_through() -> None:
    assert "max_size 6MB" in (DEPLOY / "Caddyfile").read_text()
    assert "client_max_body_size 6m;" in (DEPLOY / "nginx.conf").read_text()
    assert str(serve.PORT) in (DEPLOY / "Caddyfile").read_text()
    assert str(serve.PORT) in (DEPLOY / "nginx.conf").read_text()
