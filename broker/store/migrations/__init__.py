"""Alembic migrations of the store's schema. A released revision is never edited; make a new one."""
