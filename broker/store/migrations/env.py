"""How Alembic reaches the database: over the connection that the store hands in."""

from alembic import context

from tiercel.broker.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite cannot alter most things in place
)
with context.begin_transaction():
    context.run_migrations()
