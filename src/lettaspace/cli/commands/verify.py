"""`lettaspace verify`."""

import click

from lettaspace.cli.app import App, cataloged, json_option
from lettaspace.cli.progress import steps
from lettaspace.cli.text import inert


@cataloged("verify")
@json_option
@click.pass_obj
def command(app: App) -> int:
    """Check everything stored, and change nothing: every record against its CID and its lexicon,
    the set hash, the log, the blobs, the indexes, and what the contract says of conversations.

    One line a problem; exit code 1 if there is any.
    """
    problems = 0
    with app.open() as space, steps() as progress:
        found = space.verify(progress)
        if app.json:
            listed = [problem.as_json() for problem in found]
            app.out.json_list(listed)
            return int(bool(listed))
        for problem in found:
            problems += 1
            app.out.line(inert(str(problem)))
    if problems:
        app.out.line(f"{problems} problem(s).")
        return 1
    app.out.line("Everything is as it should be.")
    return 0
