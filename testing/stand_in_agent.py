"""An agent that runs nothing: holds the lock, says hello to the broker, and ends when it is asked to.

``python -m testing.stand_in_agent`` with the options of ``python -m tiercel.trainer_agent``.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import os
import secrets
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import grpc

from tiercel.v1 import PROTOCOL, nodes_pb2, nodes_pb2_grpc

SERVING = ("127.0.0.1:18000", "127.0.0.1:18001")
"""Where it claims to serve; nobody listens there."""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--log-format")
    for option in ("addresses-file", "state-dir", "token-file"):
        parser.add_argument(f"--{option}", type=Path, required=True)
    for option in ("node-id", "http-port", "grpc-port"):
        parser.add_argument(f"--{option}", required=True)
    parser.add_argument("--runtimes", default="process")
    parser.add_argument("--cpu-cores", type=float, default=1.0)
    parser.add_argument("--accelerators", default="auto")
    for option in ("advertise", "listen-names", "serving-identity-file", "tls-http-port", "tls-grpc-port"):
        parser.add_argument(f"--{option}", default="")
    return parser.parse_args()


def hold(lock: Path) -> None:
    lock.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())


async def stay_connected(options: argparse.Namespace) -> None:
    hello = nodes_pb2.NodeHello(
        node_id=options.node_id,
        cpu_cores=options.cpu_cores,
        memory_bytes=1 << 30,
        runtimes=options.runtimes.split(","),
        limits="cooperative",
        serving=nodes_pb2.ServingStatus(http=SERVING[0], grpc=SERVING[1]),
        protocol=PROTOCOL,
        instance=secrets.token_hex(16),
    )
    while True:
        try:
            await connect(json.loads(options.addresses_file.read_text())["nodes"], options, hello)
        except (grpc.aio.AioRpcError, OSError, KeyError, ValueError):
            await asyncio.sleep(0.1)


async def connect(address: str, options: argparse.Namespace, hello: nodes_pb2.NodeHello) -> None:
    epoch = asyncio.Queue[int](1)

    async def say() -> AsyncIterator[nodes_pb2.ConnectRequest]:
        yield nodes_pb2.ConnectRequest(hello=hello)
        lease_epoch = await epoch.get()
        while True:
            yield nodes_pb2.ConnectRequest(lease_epoch=lease_epoch, heartbeat=nodes_pb2.Heartbeat())
            await asyncio.sleep(0.5)

    token = options.token_file.read_text().strip()
    async with grpc.aio.insecure_channel(address) as channel:
        stub = nodes_pb2_grpc.NodesServiceStub(channel)
        async for response in stub.Connect(say(), metadata=(("authorization", f"Bearer {token}"),)):
            if response.HasField("welcome"):
                epoch.put_nowait(response.welcome.lease_epoch)


async def main() -> None:
    options = parse()
    hold(options.state_dir / "agent.lock")
    print("agent started", options, flush=True)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    connected = asyncio.create_task(stay_connected(options))
    await stopping.wait()
    connected.cancel()


if __name__ == "__main__":
    asyncio.run(main())
