"""The repos of a shared space's other members: each from its own host, only to be read.

The space's host says who writes in it, and gives the credential that opens the members' hosts.
"""

import time
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import delete

from lettaspace.atproto.uri import parse_space_ref
from lettaspace.conversation.records import Address
from lettaspace.conversation.space import Space
from lettaspace.errors import HostRefused, LettaspaceError
from lettaspace.network.documents import PDS, PDS_TYPE
from lettaspace.remote import replicas
from lettaspace.remote.credentials import SpaceCredentials
from lettaspace.remote.hostrepo import PAGE, SPACE, HostRepo
from lettaspace.remote.linking import Link, quiet, reasons
from lettaspace.remote.replicas import Replica
from lettaspace.remote.syncing import Syncer, SyncReport, problem
from lettaspace.remote.transport import Checked
from lettaspace.remote.xrpc import Client
from lettaspace.space import schema
from lettaspace.space.repo import Transaction
from lettaspace.space.verify import Progress
from lettaspace.space.writes import Delete


@dataclass(slots=True)
class MembersReport:
    """What syncing the members' repos did, by the member's DID."""

    synced: dict[str, SyncReport] = field(default_factory=dict[str, SyncReport])
    unchanged: list[str] = field(default_factory=list[str])
    problems: dict[str, str] = field(default_factory=dict[str, str])
    """As `syncing.problem` calls them. What is here of such a member stays as it is."""

    def to_json(self) -> dict[str, Any]:
        return {
            "synced": {did: report.to_json() for did, report in self.synced.items()},
            "unchanged": self.unchanged,
            "problems": self.problems,
        }


def sync_members(link: Link, progress: Progress = quiet) -> MembersReport:
    """Brings the other members' repos here.

    Raises what asking the space's host raises. HostRefused with SpaceDeleted: the space is gone,
    and what was here of the others is removed. All else, such as being no member any more,
    leaves it as it is. What goes wrong with one member alone is in the report.
    """
    try:
        return _Members(link, progress).sync()
    except HostRefused as error:
        if error.error == "SpaceDeleted":
            forget_members(link)
        else:
            _note(link, error)
        raise


def forget_members(link: Link) -> None:
    """Removes all that is here of others' repos."""
    with link.space.database.read() as connection:
        members = replicas.members(connection)
    for member in members:
        _forget(link, member)


class _Members:
    def __init__(self, link: Link, progress: Progress) -> None:
        self._link = link
        self._space = link.host.space
        self._progress = progress
        self._report = MembersReport()

    def sync(self) -> MembersReport:
        authority = parse_space_ref(self._space).authority
        with reasons():
            origin = self._link.resolver.space_host(authority)
        with self._client(origin) as plain:
            credentials = SpaceCredentials(self._link.client, plain, self._space)
            for did, rev in self._writers(origin, credentials, authority):
                if did == self._link.account.did:
                    continue
                try:
                    self._member(did, rev, credentials)
                except LettaspaceError as error:
                    self._report.problems[did] = problem(error)
        return self._report

    def _writers(
        self, origin: str, credentials: SpaceCredentials, authority: str
    ) -> list[tuple[str, str]]:
        """Who writes in the space, with the revision of each; the latest of a writer counts."""
        found: dict[str, str] = {}
        with self._client(origin, credentials, authority) as host:
            asked = {"space": self._space, "limit": PAGE}
            for page in host.pages(SPACE + "listRepos", asked, "repos"):
                for each in page["repos"]:
                    # August's hosts call it `rev`.
                    found[each["did"]] = each.get("repoRev") or each["rev"]
        return sorted(found.items())

    def _member(self, did: str, rev: str, credentials: SpaceCredentials) -> None:
        link = self._link
        with reasons():
            document = link.resolver.document(did)
            origin = document.endpoint(PDS, PDS_TYPE, **link.account.beside)
        replica = replicas.add_member(link.space.database, self._space, did, origin)
        if replica.rev is not None and replica.rev >= rev and replica.problem is None:
            self._report.unchanged.append(did)
            return
        with self._client(origin, credentials, did) as client:
            syncer = Syncer(
                _writable(link.space, did),
                HostRepo(client, self._space, did),
                link.keys(did),
                own=False,
                progress=self._progress,
            )
            self._report.synced[did] = syncer.sync(push=False)

    def _client(
        self, origin: str, credentials: SpaceCredentials | None = None, audience: str = ""
    ) -> Client:
        """A client of a host that somebody else named."""
        auth = None if credentials is None else credentials.auth_for(audience)
        account = self._link.account
        if account.trusted and origin == account.host:
            return Client(origin, auth=auth)  # which the user named as well
        return Client(origin, auth=auth, transport=Checked(development=account.loopback))


def _note(link: Link, error: HostRefused) -> None:
    with link.space.database.write() as connection:
        for member in replicas.members(connection):
            replicas.note_problem(connection, member.repo, problem(error), int(time.time()))


def _forget(link: Link, member: Replica) -> None:
    def work(tx: Transaction) -> None:
        records = schema.records.c
        keys = tx.connection.execute(
            schema.records.select()
            .with_only_columns(records.collection, records.rkey)
            .where(records.repo == member.repo)
        ).all()
        tx.apply([Delete(collection, rkey) for collection, rkey in keys])
        for table in (schema.ops, schema.mirror, schema.mirror_blobs, schema.held, schema.replicas):
            tx.connection.execute(delete(table).where(table.c.repo == member.repo))
        tx.connection.execute(delete(schema.repos).where(schema.repos.c.id == member.repo))

    _writable(link.space, member.author).repo.run(work)


def _writable(space: Space, did: str) -> Space:
    """A member's part of the space, which nobody but a sync writes."""
    return Space(space.home, space.identity, space.database, Address(space.ref, did))
