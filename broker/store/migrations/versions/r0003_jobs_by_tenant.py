"""An index for listing a tenant's jobs by submission.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Make the index."""
    op.create_index("jobs_by_tenant", "jobs", ["tenant", "submitted_at", "id"])
