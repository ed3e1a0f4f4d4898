"""Strangers at every door of a broker: calls, large messages, connections, MQTT; does anybody else still get through?

``python -m benchmarks.faults.anonymous_flood`` starts a broker on loopback in a process of its own, floods it for some
seconds, and prints figures as JSON: what memory the broker took, and how long a tenant, an agent and a subscriber took
to get through meanwhile. Exit code 1 if one of them did not, or if memory grew beyond the bound.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiomqtt
import grpc
import psutil
from grpc_health.v1 import health_pb2, health_pb2_grpc

from testing.brokers import BrokerProcess, broker_process, node_token, tenant_token
from tiercel.v1 import PROTOCOL, jobs_pb2, jobs_pb2_grpc, nodes_pb2, nodes_pb2_grpc

MIB = 1024 * 1024
WATCHES = 1_010
LARGE_MESSAGES, LARGE_BYTES = 12, 60 * MIB
MQTT_CONNECTIONS = 600
MQTT_LARGE, MQTT_LARGE_BYTES = 40, 8 * MIB
THROUGH_SECONDS = 20.0
MOST_GROWTH_MIB = 100.0
AGENT_INSTANCE = "5" * 32


def _channel(address: str) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)])


async def watch_health(broker: BrokerProcess, outcomes: Counter[str]) -> None:
    """A thousand streams over ten connections, each held for as long as it is let."""

    async def hold(stub: health_pb2_grpc.HealthStub) -> None:
        try:
            async for _ in stub.Watch(health_pb2.HealthCheckRequest()):
                outcomes["watch answered"] += 1
        except grpc.aio.AioRpcError as error:
            outcomes[f"watch {error.code().name}"] += 1

    async with contextlib.AsyncExitStack() as stack:
        channels = [await stack.enter_async_context(_channel(broker.tenants)) for _ in range(10)]
        stubs = [health_pb2_grpc.HealthStub(channel) for channel in channels]
        await asyncio.gather(*(hold(stubs[number % 10]) for number in range(WATCHES)))
        await asyncio.Event().wait()


async def send_large(broker: BrokerProcess, outcomes: Counter[str]) -> None:
    """Messages of 60 MiB to both listeners, one after the other, so that the flood itself stays small."""
    script = jobs_pb2.SubmitJobRequest()
    script.spec.script.content = bytes(LARGE_BYTES)
    checkpoint = nodes_pb2.SendCheckpointRequest(data=bytes(LARGE_BYTES))
    for number in range(LARGE_MESSAGES):
        async with _channel(broker.tenants if number % 2 else broker.nodes) as channel:
            try:
                if number % 2:
                    await jobs_pb2_grpc.JobsServiceStub(channel).SubmitJob(script, timeout=30)
                else:
                    call = nodes_pb2_grpc.NodesServiceStub(channel).SendCheckpoint(timeout=30)
                    await call.write(checkpoint)
                    await call.read()
            except grpc.aio.AioRpcError as error:
                outcomes[f"large {error.code().name}"] += 1
            except asyncio.InvalidStateError:
                outcomes["large cut off"] += 1


async def crowd_mqtt(broker: BrokerProcess, outcomes: Counter[str]) -> None:
    """Connections that say nothing, and messages of 8 MiB from nobody."""
    host, _, port = broker.mqtt.rpartition(":")
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(MQTT_CONNECTIONS):
            _, writer = await asyncio.open_connection(host, int(port))
            stack.callback(writer.close)
        outcomes["mqtt connections"] = MQTT_CONNECTIONS
        for number in range(MQTT_LARGE):
            try:
                async with aiomqtt.Client(host, int(port), timeout=5) as client:
                    await client.publish(f"tiercel/v1/default/jobs/j{number}/state", bytes(MQTT_LARGE_BYTES), 1, True)
                    outcomes["mqtt taken"] += 1
            except aiomqtt.MqttError:
                outcomes["mqtt refused"] += 1
        await asyncio.Event().wait()


async def _ask_as_tenant(broker: BrokerProcess, state_dir: Path) -> None:
    metadata = (("authorization", f"Bearer {tenant_token(state_dir)}"),)
    async with _channel(broker.tenants) as channel:
        stub = jobs_pb2_grpc.JobsServiceStub(channel)
        await stub.ListJobs(jobs_pb2.ListJobsRequest(), metadata=metadata, timeout=THROUGH_SECONDS)


async def _join_as_agent(broker: BrokerProcess, state_dir: Path) -> None:
    metadata = (("authorization", f"Bearer {node_token(state_dir)}"),)
    hello = nodes_pb2.NodeHello(
        node_id="n1", cpu_cores=1.0, memory_bytes=1 << 30, protocol=PROTOCOL, instance=AGENT_INSTANCE
    )
    async with _channel(broker.nodes) as channel:
        call = nodes_pb2_grpc.NodesServiceStub(channel).Connect(metadata=metadata, timeout=THROUGH_SECONDS)
        await call.write(nodes_pb2.ConnectRequest(hello=hello))
        answer = await call.read()
        if not isinstance(answer, nodes_pb2.ConnectResponse) or not answer.HasField("welcome"):
            raise ConnectionError("the agent was not welcomed")
        call.cancel()


async def _read_news(broker: BrokerProcess, state_dir: Path) -> None:
    host, _, port = broker.mqtt.rpartition(":")
    async with aiomqtt.Client(
        host, int(port), username="alice", password=tenant_token(state_dir), timeout=THROUGH_SECONDS
    ) as client:
        await client.subscribe("tiercel/#", qos=1)
        async for _ in client.messages:
            return


WHO_MUST_GET_THROUGH: dict[str, Callable[[BrokerProcess, Path], Awaitable[None]]] = {
    "tenant": _ask_as_tenant,
    "agent": _join_as_agent,
    "subscriber": _read_news,
}


async def _seconds_through(who: str, broker: BrokerProcess, state_dir: Path, outcomes: Counter[str]) -> float | None:
    """How long it took to get through; None if it did not, with the reason among the outcomes."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(THROUGH_SECONDS):
            await WHO_MUST_GET_THROUGH[who](broker, state_dir)
    except (grpc.aio.AioRpcError, aiomqtt.MqttError, OSError, TimeoutError, asyncio.InvalidStateError) as error:
        why = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error)
        outcomes[f"{who} kept out: {type(error).__name__}: {str(why)[:100]}"] += 1
        return None
    return round(time.monotonic() - began, 3)


async def measure(flood_seconds: float) -> dict[str, Any]:
    """Flood a broker for so many seconds, and ask all the while whether others get through."""
    outcomes: Counter[str] = Counter()
    through: dict[str, list[float | None]] = {who: [] for who in WHO_MUST_GET_THROUGH}
    with tempfile.TemporaryDirectory() as folder:
        state_dir = Path(folder)
        async with broker_process(state_dir) as broker:
            process = psutil.Process(broker.process.pid)
            before = peak = process.memory_info().rss
            floods = [asyncio.create_task(flood(broker, outcomes)) for flood in (watch_health, send_large, crowd_mqtt)]
            end = time.monotonic() + flood_seconds
            while time.monotonic() < end or not all(through.values()):
                for who, tries in through.items():
                    tries.append(await _seconds_through(who, broker, state_dir, outcomes))
                    peak = max(peak, process.memory_info().rss)
                await asyncio.sleep(0.1)
            for flood in floods:
                flood.cancel()
            await asyncio.gather(*floods, return_exceptions=True)
    return {
        "flood_seconds": flood_seconds,
        "memory_before_mib": round(before / MIB, 1),
        "memory_growth_mib": round((peak - before) / MIB, 1),
        "outcomes": dict(sorted(outcomes.items())),
        "tries": {who: len(tries) for who, tries in through.items()},
        "kept_out": {who: tries.count(None) for who, tries in through.items()},
        "slowest_seconds": {
            who: max((t for t in tries if t is not None), default=None) for who, tries in through.items()
        },
    }


def holds(figures: dict[str, Any]) -> bool:
    """Whether everybody got through each time and memory stayed within its bound."""
    return not any(figures["kept_out"].values()) and figures["memory_growth_mib"] <= MOST_GROWTH_MIB


def main(arguments: list[str]) -> int:
    """Flood and tell."""
    figures = asyncio.run(measure(float(arguments[0]) if arguments else 20.0))
    print(json.dumps(figures, indent=2))
    return 0 if holds(figures) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
