"""The tables: columns that are searched by, and beside them the whole object as JSON."""

from __future__ import annotations

import sqlalchemy as sa

metadata = sa.MetaData()

jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("tenant", sa.String, nullable=False),
    sa.Column("state", sa.String, nullable=False, index=True),
    sa.Column("submitted_at", sa.Float, nullable=False),
    # NULL instead of an empty key, since NULLs may repeat in a unique constraint.
    sa.Column("idempotency_key", sa.String, nullable=True),
    sa.Column("body", sa.Text, nullable=False),
    sa.UniqueConstraint("tenant", "idempotency_key"),
)

deliveries = sa.Table(
    "deliveries",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("job_id", sa.String, nullable=False, index=True),
    sa.Column("state", sa.String, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
)

endpoints = sa.Table(
    "endpoints",
    metadata,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("tenant", sa.String, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
)

decisions = sa.Table(
    "decisions",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("job_id", sa.String, nullable=False, index=True),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
)

events = sa.Table(
    "events",
    metadata,
    sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("job_id", sa.String, nullable=False),
    sa.Column("tenant", sa.String, nullable=False, index=True),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Index("events_of_job", "job_id", "sequence"),
)
