"""`lettaspace sync`."""

import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lettaspace.cli.app import App, cataloged, json_option, letta_option
from lettaspace.cli.lettadir import (
    Brought,
    bring_both_ways,
    bring_in,
    check,
    goes_both_ways,
    letta_directory,
    look,
    summarise,
)
from lettaspace.cli.remote import happened, link_to, open_space, signed_in, words
from lettaspace.page.inert import inert

if TYPE_CHECKING:
    from lettaspace.conversation.space import Space
    from lettaspace.errors import LettaspaceError
    from lettaspace.remote.account import Account
    from lettaspace.remote.exchanging import Exchange


@cataloged("sync")
@letta_option
@click.option("--strict", is_flag=True, help="If anything cannot be read, store nothing; exit 1.")
@click.option("--dry-run", is_flag=True, help="Store nothing; say what would be stored.")
@click.option("--read-only", is_flag=True, help="Write nothing into Letta's directory.")
@click.option("--allow-code", is_flag=True, help="Let code into agents' memories, as it comes.")
@click.option("--no-host", is_flag=True, help="Leave the account's host alone.")
@click.option("--members", is_flag=True, help="Bring in what others wrote in the space, too.")
@click.option("--watch", is_flag=True, help="Then follow the directory and the host.")
@json_option
@click.pass_obj
def command(
    app: App,
    letta: Path | None,
    strict: bool,
    dry_run: bool,
    read_only: bool,
    allow_code: bool,
    no_host: bool,
    members: bool,
    watch: bool,
) -> None:
    """Bring a Letta Code directory, the space, and the host of the account that is signed in
    together: agents, conversations, prompts, messages, memories.

    Where nobody is signed in, the directory is only read. Where somebody is, what other machines
    wrote is also written into it, while Letta is not at work in that conversation; and there need
    be no directory. Nothing in it is ever deleted or rewritten, and what cannot be read is
    reported while all the rest is brought. With --dry-run no host is asked.
    """
    from lettaspace.remote.account import Account

    if members and (no_host or dry_run):
        raise click.UsageError("--members asks the host")
    if watch and (app.json or dry_run):
        raise click.UsageError("--watch goes with neither --json nor --dry-run")
    account = Account.load(app.home)
    if members and account is None:
        signed_in(app)
    directory = letta_directory(letta)
    here = None if letta is None and account is not None and not directory.exists() else directory
    if here is not None:
        check(here)
    with open_space(app.home, None if dry_run else account) as space:
        syncing = _Syncing(app, space, here, None if no_host or dry_run else account)
        syncing.strict, syncing.allow_code, syncing.members = strict, allow_code, members
        syncing.both_ways = not read_only and goes_both_ways(space, account)
        if watch:
            syncing.follow()
        elif dry_run:
            syncing.look()
        else:
            syncing.once()


_ROUNDS = 4
"""So often what the host had more is brought into the directory, and what came of it back."""


class _Syncing:
    """One run of the command."""

    strict = allow_code = members = both_ways = False

    def __init__(
        self, app: App, space: "Space", directory: Path | None, account: "Account | None"
    ) -> None:
        self.app = app
        self.space = space
        self.directory = directory
        self.account = account
        """Whose host is asked; None: none is."""
        self.brought: Brought | None = None
        self.exchanged: Exchange | None = None
        self.failure: LettaspaceError | None = None
        """Of the host."""
        self.refusal: LettaspaceError | None = None
        """Why the directory could not be written."""

    def once(self) -> None:
        """The host first, so that what both sides changed is merged field by field; then the
        directory; then the host is given what is new, and where it had more, so is the
        directory."""
        if not self.both_ways:
            self.bring()
            self.ask()
        else:
            self.ask(push=False)
            for _ in range(_ROUNDS):
                self.bring()
                if not self.ask(pull=False):
                    break
        self.say()

    def look(self) -> None:
        """What would be done, without the host."""
        if self.directory is not None:
            self.brought = look(
                self.space, self.directory, strict=self.strict, both_ways=self.both_ways
            )
        self.say()

    def bring(self) -> None:
        """The directory and the space. One that cannot be written is read all the same."""
        from lettaspace.errors import Conflict, StoreUnavailable

        if self.directory is None:
            return
        brought: Brought | None = None
        if self.both_ways and self.refusal is None:
            try:
                brought = bring_both_ways(
                    self.space, self.directory, strict=self.strict, allow_code=self.allow_code
                )
            except (StoreUnavailable, Conflict) as error:
                self.refusal = error
        if brought is None:
            brought = bring_in(self.space, self.directory, strict=self.strict)
        if self.brought is None:
            self.brought = brought
        else:
            self.brought.add(brought)

    def ask(self, *, pull: bool = True, push: bool = True) -> bool:
        """The space and the host; whether something came from there. What goes wrong is kept for
        the end, and nothing is asked any more."""
        from lettaspace.errors import LettaspaceError
        from lettaspace.remote.exchanging import exchange

        if self.account is None or self.failure is not None:
            return False
        members = (self.members or None) if pull else False
        try:
            with link_to(self.space, self.account) as (link, progress):
                done = exchange(link, progress, pull=pull, push=push, members=members)
        except LettaspaceError as error:
            self.failure = error
            return False
        if self.exchanged is None:
            self.exchanged = done
        else:
            self.exchanged.add(done)
        return bool(done.own.created or done.own.updated or done.own.forks)

    def say(self) -> None:
        """What was done, and what there is to be looked at."""
        app, account, brought = self.app, self.account, self.brought
        if app.json:
            app.out.json(self.form())
        else:
            if brought is not None and self.directory is not None:
                summarise(brought, self.directory, app.out)
            if self.exchanged is not None and account is not None and self.failure is None:
                for line in words(self.exchanged, account.host):
                    app.out.line(line)
        conflict = brought.failure() if brought is not None else None
        for failure in (self.failure, self.refusal, conflict):
            if failure is not None:
                raise failure

    def form(self) -> dict[str, Any]:
        """The whole of it as JSON."""
        from lettaspace.letta.report import Report

        remote: dict[str, Any] | None = None
        if self.account is not None:
            remote = {"host": self.account.host}
            if self.failure is not None:
                remote |= {"error": self.failure.code, "message": str(self.failure)}
            elif self.exchanged is not None:
                remote |= self.exchanged.to_json()
        brought = self.brought or Brought(Report())
        return {
            "directory": None if self.directory is None else str(self.directory),
            **brought.imported.to_json(),
            "remote": remote,
            **brought.to_json(),
        }

    def follow(self) -> None:
        """The directory and the host, as far as there are any, until a signal comes."""
        from lettaspace.cli.following import followed, pulled, stopped_by_signals

        done = None
        if self.both_ways and self.account is not None:
            done = pulled(self.space, self.account)
        self.bring()
        if self.brought is not None and self.directory is not None:
            summarise(self.brought, self.directory, self.app.out)
        stop = threading.Event()

        def say(line: str) -> None:
            try:
                self.app.out.line(inert(line))
                sys.stdout.flush()
            except OSError:  # nobody reads any more
                stop.set()

        def complain(line: str) -> None:
            say(f"! {line}")

        if done is not None and self.account is not None:
            for line in happened(done, self.account.host):
                say(line)
        with ExitStack() as stack:
            stack.enter_context(stopped_by_signals(stop))
            names = stack.enter_context(
                followed(
                    self.space,
                    self.directory,
                    self.account,
                    both_ways=self.both_ways,
                    allow_code=self.allow_code,
                    members=self.members or None,
                    say=say,
                    complain=complain,
                )
            )
            say(f"Following {' and '.join(names)}; Ctrl-C stops.")
            stop.wait()
