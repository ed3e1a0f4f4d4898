"""Sessions of agents as they went over the wire: recorded with the code of a release, played to the broker of now.

To record one, with a checkout of that release in OLD that has its own environment, and the broker of now up in STATE::

    python -m testing.recorded_agents BROKER_NODES_ADDRESS FILE     # prints where it listens, records until Ctrl-C
    OLD/.venv/bin/python -m tiercel.trainer_agent --broker THAT --token-file STATE/node.token --node-id recorded ...

Then have a job trained and delivered there. Heartbeats are left out but for the first: they say nothing that is to be
answered.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc

from tiercel.v1 import nodes_pb2

METHOD = "/tiercel.v1.NodesService/Connect"


def read_session(path: Path, names: Mapping[str, str]) -> list[nodes_pb2.ConnectRequest]:
    """What an agent said, in order, about other things than then.

    Args:
        path: Where it is kept.
        names: What is put in the place of a job's id and the like; as long, so that the messages stay whole.
    """
    found = []
    for line in gzip.decompress(path.read_bytes()).splitlines():
        message = base64.b64decode(json.loads(line))
        for before, after in names.items():
            if len(before) != len(after):
                raise ValueError(f"{after!r} is not as long as {before!r}")
            message = message.replace(before.encode(), after.encode())
        found.append(nodes_pb2.ConnectRequest.FromString(message))
    return found


class Recorder(grpc.GenericRpcHandler):
    """Hands every call on to a broker as it is, and keeps what agents say on their streams."""

    def __init__(self, broker: str, keep: Callable[[bytes], None]) -> None:
        self._channel = grpc.aio.insecure_channel(broker)
        self._keep = keep

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """gRPC."""
        method = handler_call_details.method
        keep = self._keep if method == METHOD else lambda _: None

        async def hand_on(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
            async def kept() -> AsyncIterator[bytes]:
                async for request in requests:
                    keep(request)
                    yield request

            ask: Any = self._channel.stream_stream(method)
            call = ask(kept(), metadata=context.invocation_metadata())
            async for response in call:
                yield response

        return grpc.stream_stream_rpc_method_handler(hand_on)


async def record(broker: str, path: Path) -> None:
    """Listen on loopback for one agent, until cancelled."""
    messages: list[bytes] = []

    def keep(message: bytes) -> None:
        is_heartbeat = nodes_pb2.ConnectRequest.FromString(message).HasField("heartbeat")
        if is_heartbeat and any(nodes_pb2.ConnectRequest.FromString(each).HasField("heartbeat") for each in messages):
            return
        messages.append(message)
        lines = (json.dumps(base64.b64encode(each).decode()) for each in messages)
        path.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Recorder(broker, keep),))
    sys.stdout.write(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}\n")
    sys.stdout.flush()
    await server.start()
    await server.wait_for_termination()


def main(arguments: Sequence[str]) -> None:
    """See the module."""
    broker, path = arguments
    asyncio.run(record(broker, Path(path)))


if __name__ == "__main__":
    main(sys.argv[1:])
