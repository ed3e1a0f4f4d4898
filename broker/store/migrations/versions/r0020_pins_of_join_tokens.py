"""Which authority the line of a join token tells to believe.

Revision ID: 0020
Revises: 0019
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    """Add the column; of the tokens that are there nobody wrote it down."""
    op.add_column("join_tokens", sa.Column("pin", sa.Text, nullable=False, server_default=""))
