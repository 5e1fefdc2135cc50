"""Migrations of the host's tables, run by Alembic when a host opens that needs them."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from lettaspace.errors import StoreUnavailable
from lettaspace.server.tables import REVISION


def upgrade(connection: Connection, current: str | None, store: str) -> None:
    """Brings the tables from revision `current` to the newest, inside the caller's transaction."""
    if current == REVISION:
        return  # another process did it while we waited for the lock
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if current is not None and current not in known:
        raise StoreUnavailable(f"{store} was written by a newer lettaspace (host {current})")
    command.upgrade(config, REVISION)
