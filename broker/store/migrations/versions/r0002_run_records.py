"""A table for what is remembered of runs that are over.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "run_records",
        sa.Column("job_id", sa.Text, primary_key=True),
        sa.Column("workload", sa.Text, nullable=False),
        sa.Column("recorded_at", sa.Double, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
    )
    op.create_index("run_records_by_workload", "run_records", ["workload", "recorded_at"])
