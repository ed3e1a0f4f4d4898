"""Tokens by which machines join, and the certificates of those that have.

Revision ID: 0007
Revises: 0006
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "join_tokens",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("secret_sha256", sa.Text, nullable=False),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
        sa.Column("used_at", sa.Double),
    )
    op.create_table(
        "node_certificates",
        sa.Column("serial", sa.Text, primary_key=True),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
    )
    op.create_index("node_certificates_by_node", "node_certificates", ["node"])
