"""The tables as they are now; ``migrations/`` says how they came to be.

Whole dataclasses are kept as JSON in ``content``; the other columns are there to find them.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData()
# SQLite counts up a column by itself only where its type is exactly INTEGER.
_COUNTER = BigInteger().with_variant(Integer(), "sqlite")

jobs = Table(
    "jobs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("submitted_at", Double, nullable=False),
    Column("idempotency_key", Text),  # NULL when the client gave none: those never collide
    Column("content", Text, nullable=False),  # without the script's content
    UniqueConstraint("tenant", "idempotency_key", name="jobs_key_once_a_tenant"),
    Index("jobs_by_state", "state"),
    Index("jobs_by_tenant", "tenant", "submitted_at", "id"),
)

# Apart from the jobs, since a job is saved with each report and its script never changes.
scripts = Table(
    "scripts",
    metadata,
    Column("job_id", Text, primary_key=True),
    Column("content", LargeBinary, nullable=False),
)

deliveries = Table(
    "deliveries",
    metadata,
    Column("id", Text, primary_key=True),
    Column("job_id", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("requested_at", Double, nullable=False),
    Column("content", Text, nullable=False),
    Index("deliveries_by_job", "job_id"),
)

endpoints = Table(
    "endpoints",
    metadata,
    Column("name", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("content", Text, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("sequence", _COUNTER, primary_key=True, autoincrement=False),
    Column("job_id", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("kind", Text, nullable=False),  # name of the change's class
    Column("at", Double, nullable=False),
    Column("content", Text, nullable=False),
    Index("events_by_job", "job_id", "kind", "sequence"),
    Index("events_by_tenant", "tenant", "sequence"),
)

# What is remembered of runs that are over; one row a job.
run_records = Table(
    "run_records",
    metadata,
    Column("job_id", Text, primary_key=True),
    Column("workload", Text, nullable=False),
    Column("recorded_at", Double, nullable=False),
    Column("content", Text, nullable=False),
    Index("run_records_by_workload", "workload", "recorded_at"),
)

# Values are encrypted with a key that is not in the database.
secrets = Table(
    "secrets",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("set_at", Double, nullable=False),
    Column("sealed", LargeBinary, nullable=False),
)

decisions = Table(
    "decisions",
    metadata,
    Column("id", _COUNTER, primary_key=True, autoincrement=True),
    Column("job_id", Text, nullable=False),  # the decision's subject: a job's id, or an endpoint with a prefix
    Column("at", Double, nullable=False),
    Column("content", Text, nullable=False),
    Index("decisions_by_job", "job_id", "id"),
)

# Files that jobs left behind; their contents lie beside the database, each once (core/blobs.py).
files = Table(
    "files",
    metadata,
    Column("job_id", Text, primary_key=True),
    Column("path", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("kept_at", Double, nullable=False),
    Index("files_by_tenant", "tenant"),
    Index("files_by_content", "sha256"),
)

# Tokens by which machines may join; what is kept of a secret does not tell it.
join_tokens = Table(
    "join_tokens",
    metadata,
    Column("id", Text, primary_key=True),
    Column("secret_sha256", Text, nullable=False),
    Column("node", Text, nullable=False),  # the only name it is good for; empty for any
    Column("expires_at", Double, nullable=False),
    Column("used_at", Double),
    Column("pin", Text, nullable=False, server_default=""),  # what the line says; empty where nobody wrote it down
    Column("listen_names", Text, nullable=False, server_default=""),  # with spaces between
    Column("chain", Text, nullable=False, server_default=""),  # what who used it was given, PEM; empty before
)

# Nodes that are being emptied, and how (core/nodes.py, Drain).
drained_nodes = Table(
    "drained_nodes",
    metadata,
    Column("node", Text, primary_key=True),
    Column("drain", Text, nullable=False),
)

# One row: by what name an artefact store knows the broker with this database.
artefact_owner = Table(
    "artefact_owner",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
)

# Certificates that count: what is not here is refused, however well it is signed.
node_certificates = Table(
    "node_certificates",
    metadata,
    Column("serial", Text, primary_key=True),  # hexadecimal
    Column("node", Text, nullable=False),
    Column("expires_at", Double, nullable=False),
    Column("authority", Text, nullable=False, server_default=""),  # its pin; empty where nobody wrote it down
    Column("listen_names", Text, nullable=False, server_default=""),  # with spaces between
    Index("node_certificates_by_node", "node"),
)

# Tokens that the operator gave out; what is kept of one does not tell it.
access_tokens = Table(
    "access_tokens",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("tenant", Text, nullable=False),  # empty for an operator's
    Column("role", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
    Column("revoked_at", Double),
    Column("sha256", Text, nullable=False),
)

# Keys of endpoints; what is kept of one does not tell it.
endpoint_keys = Table(
    "endpoint_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("endpoint", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("per_second", Double, nullable=False),  # on all nodes together; 0 for any number
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
)

# Who is signed in at the dashboard: by the hash of a name that a browser has, the token that it stands for, encrypted
# with a key that is not in the database.
sessions = Table(
    "sessions",
    metadata,
    Column("sha256", Text, primary_key=True),
    Column("sealed", LargeBinary, nullable=False),
    Column("ends_at", Double, nullable=False),
)

# Who changed what and who was refused; nothing but the oldest rows is ever taken away.
audit_rows = Table(
    "audit_rows",
    metadata,
    Column("number", _COUNTER, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("call", BigInteger, nullable=False),  # the number of the row that this one ends, or 0
    Column("caller", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("method", Text, nullable=False),
    Column("object", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("peer", Text, nullable=False),
    Column("previous", Text, nullable=False),  # SHA-256 of the row before
)

# One row: the last of those that were taken away.
audit_start = Table(
    "audit_start",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("number", BigInteger, nullable=False),
    Column("until", Double, nullable=False),
    Column("sha256", Text, nullable=False),
)

# One row at most: the policy that the operator set, with its options as JSON.
policy = Table(
    "policy",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
    Column("options", Text, nullable=False),
)

# Projects that the artefact store has, each packed into one artefact.
stored_projects = Table(
    "stored_projects",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("root", Text, primary_key=True),
    Column("sha256", Text, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
)

# What a tenant may use, where that was set in place of tenants.toml; what is null was not.
quotas = Table(
    "quotas",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("max_active_jobs", Integer),
    Column("max_core_hours", Double),
    Column("max_accelerator_hours", Double),
)

# What a tenant's jobs have used, as of a moment.
tenant_uses = Table(
    "tenant_uses",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("core_seconds", Double, nullable=False),
    Column("accelerator_seconds", Double, nullable=False),
    Column("at", Double, nullable=False),
)

# When tiers were predicted to come as things were, and when they came; seconds count from made_at.
predictions = Table(
    "predictions",
    metadata,
    Column("job_id", Text, primary_key=True),
    Column("tier", Integer, primary_key=True),
    Column("made_at", Double, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("policy", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("told_seconds", Double, nullable=False),
    Column("told_low", Double, nullable=False),
    Column("told_high", Double, nullable=False),
    Column("drawn_seconds", Double, nullable=False),
    Column("drawn_low", Double, nullable=False),
    Column("drawn_high", Double, nullable=False),
    Column("came_seconds", Double),  # NULL while it has not come
    Index("predictions_by_time", "made_at"),
    Index("predictions_by_policy", "policy", "state", "made_at"),
)
