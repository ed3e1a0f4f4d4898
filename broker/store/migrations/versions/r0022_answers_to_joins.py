"""What who used a join token was given, so that the same machine may ask for it again.

Revision ID: 0022
Revises: 0021
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    """Add the column; of the tokens that are used already nobody wrote it down."""
    op.add_column("join_tokens", sa.Column("chain", sa.Text, nullable=False, server_default=""))
