"""By which authority a certificate is.

Revision ID: 0012
Revises: 0011
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Add the column; of the certificates that are there nobody wrote it down."""
    op.add_column("node_certificates", sa.Column("authority", sa.Text, nullable=False, server_default=""))
