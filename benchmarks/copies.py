"""How long a version takes to another machine, by the ways that it could take: hosts on one switch with narrow cables.

``python -m benchmarks.copies`` (a few minutes; as root). The product is asked for one way; the others are plain TCP.
"""

from __future__ import annotations

import asyncio
import socket
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from testing.hosts import Host, hosts
from testing.lab import Lab
from testing.product_use import SCRIPTS, running_product
from testing.until import until

MEGABYTES: Final = 40
BITS_PER_SECOND: Final = 64_000_000
"""Five seconds for one crossing."""
PART: Final = 4
"""The broker's cable has so much less, where it is the narrow one."""
_PIECE: Final = bytes(256 * 1024)
_PIECES: Final = MEGABYTES * 1_000_000 // len(_PIECE)
_SETTLE_SECONDS: Final = 1.0


def main() -> None:
    """Print a table."""
    print(f"{MEGABYTES} MB over cables of {BITS_PER_SECOND / 1e6:g} Mbit/s; seconds until all copies are there\n")
    print(
        "| broker's cable | copies | through the broker, all of it first | from node to node, and to the broker "
        "| through the broker as it comes (plain TCP) | the product |\n|---|---|---|---|---|---|"
    )
    for part in (1, PART):
        for copies in (1, 2):
            told = [f"{seconds:.1f}" for seconds in (*plain(part, copies), asyncio.run(product(part, copies)))]
            print(f"| {'1' if part == 1 else f'1/{part}'} | {copies} | {' | '.join(told)} |", flush=True)


def plain(part: int, copies: int) -> tuple[float, float, float]:
    """The same bytes by plain TCP: through the broker, from node to node with one for the broker, and passed on."""
    with hosts("broker", "home", "n2", "n3") as (broker, home, *others):
        narrow(broker, [home, *others], part)
        targets = others[:copies]
        from_broker = [(broker, target) for target in targets]
        whole_first = transfer((home, broker)) + transfer(*from_broker)
        between = transfer(*((home, target) for target in targets), beside=(home, broker))
        return whole_first, between, transfer((home, broker), *from_broker)


def transfer(*pairs: tuple[Host, Host], beside: tuple[Host, Host] | None = None) -> float:
    """Send to each of the pairs at once, and beside that; seconds until all of the pairs are done."""
    began = time.monotonic()
    other = _sending(*beside) if beside is not None else None
    for thread in [_sending(*pair) for pair in pairs]:
        thread.join()
    took = time.monotonic() - began
    if other is not None:
        other.join()
    return took


def _sending(source: Host, target: Host) -> threading.Thread:
    door = target.socket()
    door.bind((target.address, 0))
    door.listen()
    port = door.getsockname()[1]

    def take() -> None:
        taken, _ = door.accept()
        with door, taken:
            while taken.recv(1 << 20):
                pass

    def give() -> None:
        with source.socket() as line:
            line.connect((target.address, port))
            for _ in range(_PIECES):
                line.sendall(_PIECE)
            line.shutdown(socket.SHUT_WR)
        taker.join()

    taker = threading.Thread(target=take)
    taker.start()
    giver = threading.Thread(target=give)
    giver.start()
    return giver


def narrow(broker: Host, others: Sequence[Host], part: int) -> None:
    """Narrow the cables."""
    broker.narrow(BITS_PER_SECOND // part)
    for host in others:
        host.narrow(BITS_PER_SECOND)


async def product(part: int, copies: int) -> float:
    """Seconds from when a version is staged at its home until all copies of it are there."""
    names = ("home", "n2", "n3")[: 1 + copies]
    with tempfile.TemporaryDirectory(prefix="tiercel-copies-") as folder, hosts("broker", *names, "user") as made:
        broker, *nodes, user = made
        path = Path(folder)
        async with running_product(path, "--listen", broker.address, host=broker):
            lab = Lab(path, broker, user)
            local = next(node["id"] for node in (await lab.ask("nodes", "--json")).content)
            await lab.operate("node", "drain", local)
            try:
                return await _delivered(lab, broker, nodes, names, part)
            finally:
                broker.widen()
                for host, name in zip(nodes, names, strict=True):
                    host.widen()
                    await lab.leave(host, name)


async def _delivered(lab: Lab, broker: Host, nodes: Sequence[Host], names: Sequence[str], part: int) -> float:
    home, *others = names
    await lab.join(nodes[0], home)
    stage = lab.folder / "stage"
    stage.write_text("1")
    program = ("--script", str(SCRIPTS / "weighty.py"), f"--arg=--megabytes={MEGABYTES}", f"--arg=--stage={stage}")
    about = ("--endpoint", "weighty", "--metric", "accuracy", "--tier", "0.55", "--tier", "0.65", "--tier", "0.9")
    await lab.ask("submit", *program, *about, "--max-epochs", "100000", "--set", f"replicas={len(names)}")
    await lab.until("endpoints", name="weighty", live_version=1, node_id=home)
    for host, name in zip(nodes[1:], others, strict=True):
        await lab.join(host, name)
    await until(lambda: all(_file(lab, name, 1).exists() for name in others), seconds=60)
    await asyncio.sleep(_SETTLE_SECONDS)  # announced as well
    narrow(broker, nodes, part)
    stage.write_text("2")
    staging = lab.folder / home / "agent" / "models" / ".staging"
    await until(lambda: any(staging.glob("*/accuracy.json")), seconds=60)
    began = time.monotonic()
    await until(lambda: all(_file(lab, name, 2).exists() for name in others), seconds=120)
    return time.monotonic() - began


def _file(lab: Lab, name: str, version: int) -> Path:
    return lab.folder / name / "agent" / "models" / "weighty" / str(version) / "model.onnx"


if __name__ == "__main__":
    main()
