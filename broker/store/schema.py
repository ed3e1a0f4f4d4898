"""Bringing a database up to date, without any configuration file of the user's."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect

MIGRATIONS = Path(__file__).parent / "migrations"


class ForeignSchemaError(Exception):
    """The database is not ours, or newer than this program; the message is the end of a sentence."""


def upgrade_schema(connection: Connection) -> None:
    """Apply the revisions that a database lacks; an empty one gets all.

    Args:
        connection: An open connection, in the transaction that the changes shall be part of.

    Raises:
        ForeignSchemaError: It holds something else, or was written by a newer Tiercel.
    """
    config = _config(connection)
    applied = set(MigrationContext.configure(connection).get_current_heads())
    known = {revision.revision for revision in ScriptDirectory.from_config(config).walk_revisions()}
    if applied - known:
        msg = "it was written by a newer version of Tiercel; install that version, or use another state directory"
        raise ForeignSchemaError(msg)
    if not applied and inspect(connection).get_table_names():
        msg = "it holds somebody else's tables; name a database of its own for the broker"
        raise ForeignSchemaError(msg)
    command.upgrade(config, "head")


def is_older_revision(revision: str) -> bool:
    """Whether a database of this revision is ours and would be upgraded."""
    script = ScriptDirectory(str(MIGRATIONS))
    known = {each.revision for each in script.walk_revisions()}
    return revision in known and revision not in script.get_heads()


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config
