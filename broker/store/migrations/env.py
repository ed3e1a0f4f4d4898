"""What alembic runs for each of its commands: apply the revisions on the connection that ``schema.py`` hands over."""

from __future__ import annotations

from alembic import context

from tiercel.broker.store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
