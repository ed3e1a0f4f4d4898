"""What tenants have used, and may use, in hours.

Revision ID: 0021
Revises: 0020
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    """Make the table, and the columns; a number of jobs needs no longer be set beside them."""
    op.create_table(
        "tenant_uses",
        sa.Column("tenant", sa.Text, primary_key=True),
        sa.Column("core_seconds", sa.Double, nullable=False),
        sa.Column("device_seconds", sa.Double, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
    )
    with op.batch_alter_table("quotas") as batch:
        batch.alter_column("max_active_jobs", existing_type=sa.Integer, nullable=True)
        batch.add_column(sa.Column("max_core_hours", sa.Double))
        batch.add_column(sa.Column("max_device_hours", sa.Double))
