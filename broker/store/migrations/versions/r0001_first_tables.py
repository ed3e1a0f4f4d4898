"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "jobs",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False, index=True),
        sa.Column("submitted_at", sa.Float, nullable=False),
        sa.Column("idempotency_key", sa.String, nullable=True),
        sa.Column("body", sa.Text, nullable=False),
        sa.UniqueConstraint("tenant", "idempotency_key"),
    )
    op.create_table(
        "deliveries",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("job_id", sa.String, nullable=False, index=True),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_table(
        "endpoints",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_table(
        "decisions",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("job_id", sa.String, nullable=False, index=True),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_table(
        "events",
        sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("job_id", sa.String, nullable=False),
        sa.Column("tenant", sa.String, nullable=False, index=True),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Index("events_of_job", "job_id", "sequence"),
    )


def downgrade() -> None:
    """Drop the tables."""
    for table in ("events", "decisions", "endpoints", "deliveries", "jobs"):
        op.drop_table(table)
