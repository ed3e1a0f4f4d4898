"""Bringing a database up to date, without any configuration file of the user's.

An empty one gets the tables as they are now, an older one the revisions that it lacks. Both end in the same schema,
which a test holds.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Column, Connection, MetaData, PrimaryKeyConstraint, String, Table, insert, inspect, select

from tiercel.broker.store.tables import metadata

if TYPE_CHECKING:
    from alembic.config import Config

MIGRATIONS = Path(__file__).parent / "migrations"
NEWEST_REVISION = "0024"
"""The last one of ``migrations/``, known here so that nothing else starts Alembic, which takes a fifth of a second."""

_revisions = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


class ForeignSchemaError(Exception):
    """The database is not ours, or newer than this program; the message is the end of a sentence."""


def upgrade_schema(connection: Connection) -> None:
    """Make the tables of an empty database, or apply the revisions that an older one lacks.

    Args:
        connection: An open connection, in the transaction that the changes shall be part of.

    Raises:
        ForeignSchemaError: It holds something else, or was written by a newer Tiercel.
    """
    found = inspect(connection).get_table_names()
    if not found:
        metadata.create_all(connection, checkfirst=False)  # else each table is looked for twice, half of the time
        _revisions.create(connection)
        connection.execute(insert(_revisions).values(version_num=NEWEST_REVISION))
        return
    revision = connection.scalar(select(_revisions.c.version_num)) if _revisions.name in found else None
    if revision is None:
        msg = "it holds somebody else's tables; name a database of its own for the broker"
        raise ForeignSchemaError(msg)
    if revision == NEWEST_REVISION:
        return
    if not is_older_revision(revision):
        msg = "it was written by a newer version of Tiercel; install that version, or use another state directory"
        raise ForeignSchemaError(msg)
    apply_revisions(connection)


def is_older_revision(revision: str) -> bool:
    """Whether a database of this revision is ours and would be upgraded."""
    if revision == NEWEST_REVISION:
        return False
    from alembic.script import ScriptDirectory

    return revision in {each.revision for each in ScriptDirectory(str(MIGRATIONS)).walk_revisions()}


def apply_revisions(connection: Connection, last: str = "head") -> None:
    """Apply what a database lacks; an empty one gets all.

    Args:
        connection: An open connection, in the transaction that the changes shall be part of.
        last: The revision to end with.
    """
    from alembic import command

    command.upgrade(_config(connection), last)


def _config(connection: Connection) -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config
