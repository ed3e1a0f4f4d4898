"""A broker in a process of its own, to be killed: ``python -m testing.broker_process STATE_DIR PORT``."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from testing.brokers import make_settings
from tiercel.broker.server import Broker


async def main(state_dir: Path, port: int) -> None:
    """Run a broker until something kills it; its first line says where tenants, agents and subscribers reach it."""
    async with Broker(make_settings(state_dir, broker_port=port)) as broker:
        print(broker.broker_address, broker.nodes_address, broker.mqtt_address, flush=True)
        await broker.wait_failed()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
