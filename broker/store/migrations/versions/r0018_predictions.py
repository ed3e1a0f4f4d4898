"""When tiers were predicted to come, and when they came.

Revision ID: 0018
Revises: 0017
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "predictions",
        sa.Column("job_id", sa.Text, primary_key=True),
        sa.Column("tier", sa.Integer, primary_key=True),
        sa.Column("made_at", sa.Double, primary_key=True),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("policy", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        *(
            sa.Column(f"{kind}_{part}", sa.Double, nullable=False)
            for kind in ("told", "drawn")
            for part in ("seconds", "low", "high")
        ),
        sa.Column("came_seconds", sa.Double),
    )
    op.create_index("predictions_by_time", "predictions", ["made_at"])
    op.create_index("predictions_by_policy", "predictions", ["policy", "state", "made_at"])


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("predictions")
