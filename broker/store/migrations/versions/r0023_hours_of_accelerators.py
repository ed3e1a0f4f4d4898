"""Hours of accelerators are called so.

Revision ID: 0023
Revises: 0022
"""

from __future__ import annotations

from alembic import op

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    """Give the columns the name that everything else has for them."""
    op.alter_column("tenant_uses", "device_seconds", new_column_name="accelerator_seconds")
    op.alter_column("quotas", "max_device_hours", new_column_name="max_accelerator_hours")
