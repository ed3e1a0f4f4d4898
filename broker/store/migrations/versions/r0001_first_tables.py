"""The first tables.

Revision ID: 0001
Revises: none
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables."""
    counter = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "jobs",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("submitted_at", sa.Double, nullable=False),
        sa.Column("idempotency_key", sa.Text),
        sa.Column("content", sa.Text, nullable=False),
        sa.UniqueConstraint("tenant", "idempotency_key", name="jobs_key_once_a_tenant"),
    )
    op.create_index("jobs_by_state", "jobs", ["state"])
    op.create_table(
        "scripts",
        sa.Column("job_id", sa.Text, primary_key=True),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "deliveries",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("job_id", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("requested_at", sa.Double, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
    )
    op.create_index("deliveries_by_job", "deliveries", ["job_id"])
    op.create_table(
        "endpoints",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
    )
    op.create_table(
        "events",
        sa.Column("sequence", counter, primary_key=True, autoincrement=False),
        sa.Column("job_id", sa.Text, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
    )
    op.create_index("events_by_job", "events", ["job_id", "kind", "sequence"])
    op.create_index("events_by_tenant", "events", ["tenant", "sequence"])
    op.create_table(
        "decisions",
        sa.Column("id", counter, primary_key=True, autoincrement=True),
        sa.Column("job_id", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
    )
    op.create_index("decisions_by_job", "decisions", ["job_id", "id"])
