"""Which nodes are being emptied.

Revision ID: 0009
Revises: 0008
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "drained_nodes",
        sa.Column("node", sa.Text, primary_key=True),
        sa.Column("drain", sa.Text, nullable=False),
    )
