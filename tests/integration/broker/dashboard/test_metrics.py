"""The broker's numbers, as Prometheus scrapes them."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from testing.brokers import node_token, running_broker, tenant_of, tenant_token
from testing.browsers import browser_of
from testing.needs import need
from testing.scripted_agent import ScriptedAgent
from testing.until import until
from tiercel.broker.dashboard.metrics import MAX_ENDPOINTS, families_of
from tiercel.broker.tenancy import open_tenancy
from tiercel.core.prometheus import to_text
from tiercel.core.status import ClusterStatus, EndpointStatus


def bearer(token: str) -> dict[str, dict[str, str]]:
    return {"headers": {"Authorization": f"Bearer {token}"}}


async def complaints(text: str) -> str:
    """What Prometheus' own checker says of metrics."""
    need(shutil.which("promtool"), "Prometheus' promtool", "prometheus")
    checker = await asyncio.create_subprocess_exec(
        "promtool", "check", "metrics", stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, stdout=-1
    )
    said, _ = await checker.communicate(text.encode())
    return said.decode()


async def test_who_shows_a_token_is_told_what_prometheus_takes(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, browser_of(broker.addresses["dashboard"]) as browser:
        agent = ScriptedAgent(node_token(tmp_path), "n1")
        async with agent.connected(broker.nodes_address):
            await until(lambda: any(node.online for node in broker._nodes()))
            async with tenant_of(broker.broker_address, tenant_token(tmp_path)) as alice:
                await alice.submit()
            operator = open_tenancy(tmp_path, ()).operator_token
            told = await browser.ask("GET", "/metrics", **bearer(operator))
            assert (told.status, told.headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
            assert 'tiercel_node_online{node="n1"} 1.0\n' in told.content
            states = [line for line in told.content.splitlines() if line.startswith("tiercel_jobs{")]
            assert sum(float(line.split()[1]) for line in states) == 1.0
            assert 'tiercel_jobs{state="suspended"} 0.0' in states, "what is 0 is told as well"
            assert "\nprocess_resident_memory_bytes " in told.content
            assert await complaints(told.content) == ""
            others = await browser.ask("GET", "/metrics", **bearer(tenant_token(tmp_path, "bob")))
            assert 'tiercel_jobs{state="pending"} 0.0' in others.content
            assert "process_" not in others.content, "how the broker is doing is for its operators"
        assert (await browser.ask("GET", "/metrics")).status == 401
        assert (await browser.ask("GET", "/metrics", **bearer(node_token(tmp_path)))).status == 403


async def test_labels_are_bounded_and_whatever_names_hold_is_taken() -> None:
    endpoints = tuple(EndpointStatus(f'e{n}"\\\n', "alice", 1, ("n1",), ()) for n in range(2 * MAX_ENDPOINTS))
    text = to_text(families_of(ClusterStatus("0.1", endpoints=endpoints)))
    assert text.count("tiercel_endpoint_live_version{") == MAX_ENDPOINTS
    assert f"tiercel_endpoints {2.0 * MAX_ENDPOINTS}" in text
    assert await complaints(text) == ""
