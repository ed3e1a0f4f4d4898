"""A broker with an artefact store: what it held comes back after its machine is lost; no training waits for it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from testing.brokers import node_token, running_broker, tenant_of, tenant_token
from testing.product_use import tiercel
from testing.s3_server import BUCKET, S3Server, s3_server
from testing.scripted_agent import ScriptedAgent
from testing.sent_projects import make_project, spec_of
from testing.until import until
from tests.integration.broker.test_checkpoint_copies import CONTENT, fetch, trains
from tests.integration.broker.test_status import as_tenant
from tiercel import Client
from tiercel.broker.store.artefacts.databases import KEPT_DATABASES
from tiercel.broker.store.projects import ProjectStore
from tiercel.core.errors import ConflictError
from tiercel.v1 import jobs_pb2

PATIENCE = {"heartbeat_seconds": 1.0, "lease_seconds": 4.0, "gone_after_seconds": 4.0}
URL = f"s3://{BUCKET}/lab"


@pytest.fixture(scope="module")
def bucket() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def s3(bucket: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    for name, value in {**bucket.environment, "AWS_DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    # Servers of the same process have their buckets in common.
    for entry in bucket.client.list_objects_v2(Bucket=BUCKET, Prefix="lab/").get("Contents", []):
        bucket.client.delete_object(Bucket=BUCKET, Key=entry["Key"])
    return bucket


def names_in(server: S3Server) -> list[str]:
    """What is stored but for copies of the database."""
    found = server.client.list_objects_v2(Bucket=BUCKET, Prefix="lab/").get("Contents", [])
    names = {entry["Key"].removeprefix("lab/") for entry in found}
    databases = databases_in(server) if "databases.json" in names else {}
    return sorted(names - databases.keys() - {"owner.json", "databases.json"})


def databases_in(server: S3Server) -> dict[str, float]:
    """When the copies of the database were made that are stored, by their names."""
    told = json.loads(server.client.get_object(Bucket=BUCKET, Key="lab/databases.json")["Body"].read())
    assert len(told) <= KEPT_DATABASES
    return {copy["sha256"]: copy["at"] for copy in told}


def saved_from(lost: Path, folder: Path) -> Path:
    """What somebody had saved of a lost machine: the database and the tokens, and nothing that the broker held."""
    folder.mkdir()
    for path in lost.iterdir():
        if path.is_file() and path.suffix != ".lock":
            shutil.copy(path, folder)
    return folder


async def test_a_copy_outlives_the_machine_of_the_broker(s3: S3Server, tmp_path: Path) -> None:
    lost = tmp_path / "lost"
    lost.mkdir()
    first = ScriptedAgent(node_token(lost), "n1")
    async with (
        running_broker(lost, artefacts=URL, **PATIENCE) as broker,
        tenant_of(broker.broker_address, tenant_token(lost)) as tenant,
        first.connected(broker.nodes_address),
    ):
        job_id = await trains(tenant, first, copy_checkpoint_seconds=60.0)
        run_id = f"{job_id}-1"
        assert await first.send_checkpoint(broker.nodes_address, run_id, CONTENT) is grpc.StatusCode.OK
        job = await tenant.wait(job_id, lambda job: job.HasField("checkpoint_stored_seconds"))
        assert job.checkpoint_store_problem == ""
    (name,) = names_in(s3)
    stored = s3.client.get_object(Bucket=BUCKET, Key=f"lab/{name}")["Body"].read()
    assert hashlib.sha256(stored).hexdigest() == name
    found = saved_from(lost, tmp_path / "found")
    second = ScriptedAgent(node_token(found), "n2")
    second.starts_runs = False  # once it has begun nobody needs the broker's copy any more
    async with (
        running_broker(found, artefacts=URL, artefacts_database_seconds=0.2, **PATIENCE) as broker,
        tenant_of(broker.broker_address, tenant_token(found)) as tenant,
        second.connected(broker.nodes_address),
        second.beating(),
    ):
        job = await tenant.wait(job_id, lambda job: job.node_id == "n2")
        assert job.reason == "starting on node n2 from the checkpoint that the broker holds"
        await second.until(lambda: second.wanted is not None and second.wanted.runs)
        assert await fetch(second, broker.nodes_address, found, f"{job_id}-2") == CONTENT
        second.starts_runs = True
        assert second.wanted is not None
        second._ingest(second.wanted)
        await tenant.wait(job_id, lambda job: job.state == jobs_pb2.JOB_STATE_RUNNING)
        second.exit(f"{job_id}-2", 0)
        await second.until(lambda: not names_in(s3))


async def test_while_the_store_is_away_the_job_goes_on_and_its_owner_reads_why(s3: S3Server, tmp_path: Path) -> None:
    agent = ScriptedAgent(node_token(tmp_path), "n1")
    async with (
        running_broker(tmp_path, artefacts="s3://not-yet/lab", **PATIENCE) as broker,
        tenant_of(broker.broker_address, tenant_token(tmp_path)) as tenant,
        agent.connected(broker.nodes_address),
        agent.beating(),
    ):
        job_id = await trains(tenant, agent, copy_checkpoint_seconds=60.0)
        assert await agent.send_checkpoint(broker.nodes_address, f"{job_id}-1", CONTENT) is grpc.StatusCode.OK
        job = await tenant.wait(job_id, lambda job: job.checkpoint_store_problem)
        assert job.checkpoint_store_problem == (
            "the artefact store s3://not-yet/lab refuses: there is no such bucket; it is tried again"
        )
        assert job.state == jobs_pb2.JOB_STATE_RUNNING
        assert (await as_tenant(broker, tmp_path, "alice")).store_problems == {job.checkpoint_store_problem: 1}
        assert job.HasField("checkpoint_copied_seconds")
        assert not job.HasField("checkpoint_stored_seconds")
        s3.client.create_bucket(Bucket="not-yet")
        job = await tenant.wait(job_id, lambda job: job.HasField("checkpoint_stored_seconds"))
        assert job.checkpoint_store_problem == ""


async def test_another_brokers_store_is_refused(s3: S3Server, tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    async with running_broker(tmp_path / "one", artefacts=URL):
        # A store that is slow to answer is claimed once it does.
        await until(lambda: s3.client.list_objects_v2(Bucket=BUCKET, Prefix="lab/owner.json")["KeyCount"])
    with pytest.raises(ConflictError, match="is another broker's; give each broker a place of its own"):
        async with running_broker(tmp_path / "other", artefacts=URL):
            pass


async def test_a_broker_is_made_anew_of_what_was_saved_and_its_job_goes_on(s3: S3Server, tmp_path: Path) -> None:
    lost, keys, found = tmp_path / "lost", tmp_path / "keys.tar", tmp_path / "found"
    lost.mkdir()
    first = ScriptedAgent(node_token(lost), "n1")
    async with (
        running_broker(lost, artefacts=URL, artefacts_database_seconds=0.2, **PATIENCE) as broker,
        tenant_of(broker.broker_address, tenant_token(lost)) as tenant,
        first.connected(broker.nodes_address),
        first.beating(),
    ):
        saved = await tiercel("backup", str(keys), "--json", state_dir=lost)
        assert "broker.sqlite" in saved.content["saved"], saved.errors
        token = tenant_token(lost)
        job_id = await trains(tenant, first, copy_checkpoint_seconds=60.0)
        assert await first.send_checkpoint(broker.nodes_address, f"{job_id}-1", CONTENT) is grpc.StatusCode.OK
        await tenant.wait(job_id, lambda job: job.HasField("checkpoint_stored_seconds"))
        async with Client(broker.broker_address, token=token) as client:
            other = await client.submit(spec_of(make_project(tmp_path / "project"), endpoint="second"))
            project = (await other.refresh()).spec.project
        await until(lambda: len(names_in(s3)) == 2)  # the checkpoint, and the project
        known_at = time.time()
        await until(lambda: max(databases_in(s3).values()) > known_at)
    shutil.rmtree(lost)
    restored = await tiercel(
        "restore", str(keys), "--artefacts", URL, "--json", state_dir=found, environment={**os.environ}
    )
    assert set(restored.content["restored"]) == set(saved.content["saved"]), restored.errors
    assert (restored.content["projects"], restored.content["problems"]) == (1, []), restored.errors
    assert project is not None
    assert "train.py" in ProjectStore(found / "projects").check("alice", project.sha256)
    again = await tiercel("restore", str(keys), state_dir=found)
    assert (again.exit_code, "has a database already" in again.errors) == (1, True)
    second = ScriptedAgent(node_token(found), "n2")
    second.starts_runs = False  # once it has begun nobody needs the broker's copy any more
    async with (
        running_broker(found, artefacts=URL, **PATIENCE) as broker,
        tenant_of(broker.broker_address, token) as tenant,
        second.connected(broker.nodes_address),
        second.beating(),
    ):
        await tenant.wait(job_id, lambda job: job.node_id == "n2")
        await second.until(lambda: second.wanted is not None and second.wanted.runs)
        assert await fetch(second, broker.nodes_address, found, f"{job_id}-2") == CONTENT
