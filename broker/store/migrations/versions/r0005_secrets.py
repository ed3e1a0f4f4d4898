"""Secrets of tenants, encrypted.

Revision ID: 0005
Revises: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "secrets",
        sa.Column("tenant", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("set_at", sa.Double, nullable=False),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
    )
