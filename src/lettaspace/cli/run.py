"""Runs the application, and turns whatever ends it into an exit code and one line.

0: done. 1: something is wrong, a line on stderr says what; or `verify` found problems.
2: the command line is wrong. 130: interrupted. 141: whoever read the output closed it.
"""

import errno
import io
import os
import sys
from collections.abc import Sequence

import click

from lettaspace.cli.app import App, app
from lettaspace.cli.output import json_text
from lettaspace.errors import LettaspaceError
from lettaspace.page.inert import inert

FAILED = 1
USAGE = 2
INTERRUPTED = 130
BROKEN_PIPE = 141


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit code."""
    for stream in (sys.stdout, sys.stderr):
        # What the encoding of the locale does not have is shown as an escape.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    context: click.Context | None = None
    try:
        context = app.make_context("lettaspace", list(arguments))
        with context:
            code = app.invoke(context)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        return _usage(error)
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except LettaspaceError as error:
        return _failed(context, error.code, str(error))
    except OSError as error:
        if error.errno == errno.EPIPE:
            return on_broken_pipe()
        return _unexpected(context, error)
    except Exception as error:
        return _unexpected(context, error)


def on_broken_pipe() -> int:
    """Nobody reads any more. Says nothing, now or when the process ends."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = io.StringIO()
    return BROKEN_PIPE


def _usage(error: click.ClickException) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        print(error.format_message(), file=sys.stderr)  # noqa: T201
        return USAGE
    _complain(error.format_message())
    path = "lettaspace"
    if isinstance(error, click.UsageError) and error.ctx is not None:
        path = error.ctx.command_path
    print(f"Try: {path} --help", file=sys.stderr)  # noqa: T201
    return USAGE


def _failed(context: click.Context | None, code: str, message: str) -> int:
    settings = context.obj if context is not None else None
    if isinstance(settings, App) and settings.json and not settings.out.started:
        try:
            settings.out.line(json_text({"error": code, "message": message}))
            sys.stdout.flush()
        except BrokenPipeError:
            on_broken_pipe()
    _complain(message)
    return FAILED


def _unexpected(context: click.Context | None, error: Exception) -> int:
    """A mistake of ours. Its text may hold anything, so only its type is named."""
    if os.environ.get("LETTASPACE_DEBUG"):
        import traceback

        traceback.print_exc()
    name = type(error).__name__
    if isinstance(error, OSError) and error.errno:
        name += f" ({errno.errorcode.get(error.errno, error.errno)})"
    return _failed(
        context,
        "Unexpected",
        f"unexpected {name}; please report this (LETTASPACE_DEBUG=1 shows where it happened)",
    )


def _complain(message: str) -> None:
    print(f"lettaspace: error: {inert(message)}", file=sys.stderr)  # noqa: T201
