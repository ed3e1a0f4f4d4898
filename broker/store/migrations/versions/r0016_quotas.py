"""How many unfinished jobs tenants may have, where the operator set that.

Revision ID: 0016
Revises: 0015
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "quotas",
        sa.Column("tenant", sa.Text, primary_key=True),
        sa.Column("max_active_jobs", sa.Integer, nullable=False),
    )
