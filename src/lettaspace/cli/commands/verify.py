"""`lettaspace verify`."""

import click

from lettaspace.cli.app import App, cataloged, json_option
from lettaspace.cli.progress import steps
from lettaspace.page.inert import inert


@cataloged("verify")
@json_option
@click.pass_obj
def command(app: App) -> int:
    """Check everything stored, and change nothing: every record against its CID and its lexicon,
    the set hash, the log, the blobs, the indexes, and what the contract says of conversations.

    One line a problem; exit code 1 if there is any.
    """
    with app.open() as space, steps() as progress:
        # Printed when the progress is gone: on a terminal they would overwrite each other.
        problems = list(space.verify(progress))
    if app.json:
        app.out.json_list(problem.as_json() for problem in problems)
    elif problems:
        for problem in problems:
            app.out.line(inert(str(problem)))
        app.out.line(f"{len(problems)} problem(s).")
    else:
        app.out.line("Everything is as it should be.")
    return int(bool(problems))
