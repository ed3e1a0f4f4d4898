"""What is about one run of a job moves from among the job's fields into its run, and sums of earlier runs beside it.

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

import json
import math
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

# Jobs that are held in memory together.
_AT_A_TIME = 200
_JOBS = sa.table("jobs", sa.column("id", sa.Text), sa.column("content", sa.Text))

Json = dict[str, Any]


def upgrade() -> None:
    """Rewrite every job."""
    connection, last = op.get_bind(), ""
    page = sa.select(_JOBS.c.id, _JOBS.c.content).order_by(_JOBS.c.id).limit(_AT_A_TIME)
    change = sa.update(_JOBS).where(_JOBS.c.id == sa.bindparam("key")).values(content=sa.bindparam("text"))
    while found := connection.execute(page.where(_JOBS.c.id > last)).all():
        connection.execute(change, [{"key": row.id, "text": rewritten(row.content)} for row in found])
        last = found[-1].id


def rewritten(content: str) -> str:
    """A stored job as it is stored from now on; what is damaged stays as it is, for whoever reads it to say so."""
    try:
        job = json.loads(content)
        return json.dumps(_with_run(job), allow_nan=False, separators=(",", ":"))
    except (ValueError, TypeError, KeyError, AttributeError):
        return content


def _with_run(job: Json) -> Json:
    """The job with a run; release 0.1.0 knew fewer of these fields than this revision, so that each may be missing."""
    new = {name: value for name, value in job.items() if name not in _OF_RUNS}
    attempts = job.get("attempts", 0)
    used = {name: _number(job.get(name)) for name in _USED}
    before = {name: _number(job.get(f"finished_runs_{name}")) for name in _USED}
    new["earlier"] = {
        "lost": job.get("lost_runs", 0),
        "lost_at": job.get("lost_at", []),
        "migrations": job.get("migrations", 0),
        "migrated_at": job.get("migrated_at"),
    }
    if not job.get("node_id") or job.get("share") is None:  # it waits, or ended while it did
        new["earlier"] |= {"count": attempts, **used}
        return new
    new["earlier"] |= {"count": attempts - 1, **before}
    new["run"] = {
        "job_id": job["id"],
        "number": attempts,
        "node_id": job["node_id"],
        "share": job["share"],
        "active": job.get("run_active", False),
        "heard": job.get("run_heard", job.get("last_heard_at") is not None),
        "last_sequence": job.get("last_sequence", 0),
        "offered_value": job.get("offered_value"),
        "move": job.get("move"),
        "fenced": job.get("fenced", False),
        **{name: used[name] - before[name] for name in _USED},
    }
    return new


def _number(stored: float | str | None) -> float:
    """A stored sum; numbers that JSON does not have, which no node measures, count as nothing."""
    value = float(stored or 0.0)
    return value if math.isfinite(value) else 0.0


_USED = ("cpu_seconds", "accelerator_seconds")
_OF_RUNS = {
    *_USED,
    *(f"finished_runs_{name}" for name in _USED),
    *("attempts", "node_id", "share", "run_active", "run_heard", "last_sequence", "offered_value", "move", "fenced"),
    *("last_heard_at", "share_since", "uncounted_seconds", "lost_runs", "lost_at", "migrations", "migrated_at"),
}
