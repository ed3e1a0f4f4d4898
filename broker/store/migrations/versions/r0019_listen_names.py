"""By which names others may call a node.

Revision ID: 0019
Revises: 0018
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    """Add the columns; nobody was given any name before."""
    for table in ("join_tokens", "node_certificates"):
        op.add_column(table, sa.Column("listen_names", sa.Text, nullable=False, server_default=""))
