"""Versions and deliveries have several cheap variants, where they had one int8 model.

Revision ID: 0024
Revises: 0023
"""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"

# Entries that are held in memory together.
_AT_A_TIME = 200
_KEYS = {"endpoints": "name", "deliveries": "id"}

Json = dict[str, Any]


def upgrade() -> None:
    """Rewrite every endpoint and delivery that has one."""
    connection = op.get_bind()
    for name, key in _KEYS.items():
        table = sa.table(name, sa.column(key, sa.Text), sa.column("content", sa.Text))
        column, last = table.c[key], ""
        page = sa.select(column.label("key"), table.c.content).order_by(column).limit(_AT_A_TIME)
        change = sa.update(table).where(column == sa.bindparam("key")).values(content=sa.bindparam("text"))
        while found := connection.execute(page.where(column > last)).all():
            connection.execute(change, [{"key": row.key, "text": rewritten(row.content)} for row in found])
            last = found[-1].key


def rewritten(content: str) -> str:
    """An entry as it is stored from now on; what is damaged stays as it is, for whoever reads it to say so."""
    try:
        entry = json.loads(content)
        parts = [entry, *entry.get("versions", ()), *(each["delivery"] for each in entry.get("coming", ()))]
        for part in parts:
            _rename(part)
        return json.dumps(entry, separators=(",", ":"))
    except (ValueError, TypeError, KeyError, AttributeError):
        return content


def _rename(part: Json) -> None:
    int8 = part.pop("int8", None)
    if int8 is not None:
        part["cheap_variants"] = [{"kind": "int8", **int8}]
