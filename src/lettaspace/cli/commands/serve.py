"""`lettaspace serve`."""

import contextlib
import sys
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

from lettaspace.cli.app import App, cataloged, json_option
from lettaspace.cli.hosting import (
    accounts,
    database_option,
    development_option,
    origin_option,
    place,
)
from lettaspace.cli.text import counted, field

if TYPE_CHECKING:
    from lettaspace.server.rates import Rates

PORT = 7480


@cataloged("serve")
@database_option
@click.option(
    "--host", default="127.0.0.1", metavar="ADDRESS", help="Address to serve on. Default: loopback."
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=PORT, metavar="N", help=f"Default: {PORT}."
)
@origin_option
@development_option
@click.option(
    "--workers", type=click.IntRange(1, 64), default=1, metavar="N", help="Processes. Default: 1."
)
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    envvar="LETTASPACE_PROXIES",
    metavar="ADDRESS",
    help="An address or network whose X-Forwarded-For is believed. Default: none.",
)
@click.option(
    "--limit",
    "limits",
    multiple=True,
    envvar="LETTASPACE_LIMITS",
    metavar="NAME=N",
    help="A rate limit other than the default; 0 for none. docs/operating.md names them.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(1, 65535),
    envvar="LETTASPACE_METRICS_PORT",
    metavar="N",
    help="Serve metrics on loopback; each worker at a port of its own, from N on. Default: off.",
)
@click.option(
    "--log",
    type=click.Choice(("off", "error", "info")),
    default="info",
    envvar="LETTASPACE_LOG",
    help="What goes to standard error: `info` has a line for each request. Default: info.",
)
@json_option
@click.pass_obj
def command(
    app: App,
    database: str | None,
    host: str,
    port: int,
    origin: str | None,
    development: bool,
    workers: int,
    proxies: tuple[str, ...],
    limits: tuple[str, ...],
    metrics_port: int | None,
    log: Any,
) -> None:
    """Serve a host: permissioned repos and spaces for its accounts, over XRPC, until stopped.

    It speaks plain HTTP, to a proxy that does the encryption: --origin is where that is reached.
    With --development it needs neither, and talks to hosts on this machine alone.
    """
    from lettaspace.errors import InvalidInput
    from lettaspace.server.config import Config
    from lettaspace.server.running import serve
    from lettaspace.viewer.guard import is_loopback
    from lettaspace.viewer.server import bind

    with contextlib.ExitStack() as stack:
        bound = bind(host, port)
        stack.callback(bound.socket.close)
        if origin is None and development:
            origin = f"http://localhost:{bound.port}"
        if origin is None:
            raise InvalidInput(
                "say how others reach this host: --origin https://NAME; "
                "or try it on this machine alone: --development"
            )
        config = Config(
            origin,
            place(app, database),
            development=development,
            rates=_rates(limits),
            proxies=proxies,
            metrics_ports=range(metrics_port, metrics_port + workers) if metrics_port else range(0),
            log=log,
        )
        with accounts(app, database) as (opened, known):
            if workers > 1 and opened.engine.dialect.name == "sqlite":
                raise InvalidInput("several workers need PostgreSQL: --database postgresql://…")
            number, name = len(known.all()), opened.name
        if not number and not is_loopback(host) and not development:
            raise InvalidInput(
                f"nobody has an account here, so there is nothing to serve on {host} yet; "
                "add one first: lettaspace account add HANDLE"
            )

        def announce() -> None:
            if app.json:
                app.out.json(form)
            else:
                _tell(app, form, name)
            sys.stdout.flush()

        form: dict[str, Any] = {
            "origin": config.origin,
            "did": config.did,
            "address": bound.address,
            "port": bound.port,
            "accounts": number,
            "workers": workers,
            "development": development,
        }
        serve(config, bound.socket, workers=workers, on_ready=announce)


def _rates(limits: tuple[str, ...]) -> "Rates":
    from lettaspace.errors import InvalidInput
    from lettaspace.server.rates import Rates

    known = [each.name for each in fields(Rates)]
    rates: dict[str, int] = {}
    for limit in limits:
        name, _, number = limit.partition("=")
        if name.replace("-", "_") not in known or not number.isdecimal() or len(number) > 9:
            names = ", ".join(known).replace("_", "-")
            raise InvalidInput(f"--limit is NAME=N; the names are {names}")
        rates[name.replace("-", "_")] = int(number)
    return Rates(**rates)


def _tell(app: App, form: dict[str, Any], database: str) -> None:
    out = app.out
    out.line(f"Host: {out.style(form['origin'], 'bold')}  {field(form['did'])}")
    if form["development"]:
        out.line("For development: what is sent is not encrypted.")
    out.line(f"Database: {field(database)}, {counted(form['accounts'], 'account')}")
    if not form["accounts"]:
        here = f" --development --origin {form['origin']}" if form["development"] else ""
        out.line(f"Add one: lettaspace account add HANDLE{here}")
    where = f"{field(form['address'])}, port {form['port']}"
    processes = "" if form["workers"] == 1 else f", {counted(form['workers'], 'worker')}"
    out.line(f"Serving on {where}{processes}; Ctrl-C stops.")
