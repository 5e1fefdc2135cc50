"""Migrations of the store, run by Alembic when a store is opened that needs them."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from lettaspace.errors import StoreUnavailable
from lettaspace.space import schema


def upgrade(connection: Connection, current: str | None, store: str) -> None:
    """Brings a store from revision `current` to the newest, inside the caller's transaction."""
    if current == schema.REVISION:
        return  # another process did it while we waited for the lock
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if current is not None and current not in known:
        raise StoreUnavailable(f"{store} was written by a newer lettaspace (schema {current})")
    command.upgrade(config, schema.REVISION)
