"""The command line. `main` is what the `lettaspace` script calls.

Only what a command needs is imported when it runs: this module imports nothing, and answers
`--help` and `--version` from a table of constants before click is loaded.
"""

import sys


def main() -> int:
    """Runs the command line of this process and returns its exit code."""
    arguments = sys.argv[1:]
    if len(arguments) == 1:
        if arguments[0] in ("--help", "-h"):
            from lettaspace.cli.catalog import HELP

            return _say(HELP)
        if arguments[0] == "--version":
            from lettaspace import __version__

            return _say(f"lettaspace {__version__}")
    from lettaspace.cli.run import run

    return run(arguments)


def _say(text: str) -> int:
    try:
        print(text, flush=True)  # noqa: T201 - the one place that needs nothing more
    except BrokenPipeError:
        from lettaspace.cli.run import on_broken_pipe

        return on_broken_pipe()
    return 0
