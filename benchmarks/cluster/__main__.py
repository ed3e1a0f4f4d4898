"""``make bench-cluster``: three machines, a job on each, one endpoint asked at every address; as root."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.cluster import spread
from benchmarks.cluster.bars import ANSWERING, BYSTANDER, counts_of, cut_of, failed_between, whys_of
from benchmarks.results import KEEP_HELP, ROOT, Bar
from benchmarks.sections import bars_table, finish
from testing.asker import asking, wait_answered
from testing.hosts import Host, hosts
from testing.lab import Lab
from testing.product_use import JOB_SECONDS, running_product

DOCUMENT = ROOT / "docs" / "results.md"
LEASE_SECONDS = 10.0
ENDPOINT = "line"
NODES = ("n2", "n3")
PAUSE_SECONDS = 3.0
"""After each step of the job that moves: slow enough to move between its first model and its second."""
REST_SECONDS = 2.0

Json = dict[str, Any]


def main(
    cut_seconds: Annotated[float, typer.Option(min=1.0, help="How long a machine is cut off.")] = 15.0,
    replicas: Annotated[int, typer.Option(min=1, max=2, help="On how many nodes the endpoint shall answer.")] = 2,
    keep: Annotated[bool, typer.Option("--keep", help=KEEP_HELP)] = False,
) -> None:
    """Run it, tell, and write cluster.json; exits with 1 where a bar does not hold."""
    with tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(measure(Path(folder), cut_seconds, replicas))
        _tell("requests are divided between two nodes")
        figures["spread"] = spread.measure(Path(folder) / "spread")
    finish("cluster", command="make bench-cluster", figures=figures, keep=keep, section=(DOCUMENT, section_of))


def section_of(_: object, bars: Sequence[Bar]) -> str:
    """What documents show of the result."""
    return bars_table("three machines", bars)


async def measure(folder: Path, cut_seconds: float, replicas: int) -> Json:
    """Figures for the result file."""
    with hosts("n1", *NODES, "user") as (first, second, third, user):
        options = ("--listen", first.address, "--node-id", "n1")
        settings = {"TIERCEL_LEASE_SECONDS": str(LEASE_SECONDS)}
        async with running_product(folder, *options, host=first, environment=settings):
            lab = Lab(folder, first, user)
            joined = dict(zip(NODES, (second, third), strict=True))
            try:
                join_seconds = [await _join(lab, host, name) for name, host in joined.items()]
                return {
                    "lease_seconds": LEASE_SECONDS,
                    "replicas": replicas,
                    "join_seconds": join_seconds,
                    **await _ask_through(lab, joined, cut_seconds, replicas),
                }
            finally:
                for name, host in joined.items():
                    await lab.leave(host, name)


async def _join(lab: Lab, host: Host, name: str) -> float:
    """A machine joins and runs a job; how long that took."""
    began = time.monotonic()
    await lab.join(host, name, "--label", f"place={name}")
    job = await lab.submit(f"of-{name}", "0.6", "1.5", options=("--set", f"node_labels.place={name}"))
    await lab.until("show", job, state="running", node_id=name)
    return round(time.monotonic() - began, 2)


async def _ask_through(lab: Lab, joined: dict[str, Host], cut_seconds: float, replicas: int) -> Json:
    """One endpoint, asked at each address while its job moves from n2 to n3, and n2 and then n3 are cut off."""
    source, target = NODES
    for node in NODES:
        await lab.operate("node", "drain", node)
    await lab.submit("of-n1", "0.6", "1.5")
    await lab.until("endpoints", name="of-n1", live_version=1, node_id="n1")
    await lab.operate("node", "drain", "n1")
    await lab.operate("node", "undrain", source)
    copies = ("--set", f"replicas={replicas}")
    job = await lab.submit(ENDPOINT, "0.7", "0.9", "1.5", pause_seconds=PAUSE_SECONDS, options=copies)
    await lab.until("endpoints", name=ENDPOINT, live_version=1, node_id=source)
    lines: list[Json] = []
    async with asking(lab, ENDPOINT, lines):
        await wait_answered(lines, 3)
        moving = time.monotonic()
        _tell("its job moves")
        await lab.operate("node", "undrain", target)
        await lab.operate("node", "drain", source, "--migrate")
        await lab.until("show", job, state="running", node_id=target)
        await lab.operate("node", "undrain", "n1")  # from now on it may have a copy
        _tell("it goes on, and its endpoint moves with its next model")
        await lab.until("endpoints", name=ENDPOINT, live_version=2, node_id=target)
        await _wait_places(lab, replicas)
        await asyncio.sleep(REST_SECONDS)
        moved = time.monotonic()
        cuts = {}
        for name, node in ((BYSTANDER, source), (ANSWERING, target)):
            _tell(f"{node} is cut off ({name})")
            cut, back = await _cut_off(joined[node], cut_seconds)
            await lab.until("nodes", id=node, online=True)
            # Whatever is not back by then will be in the last figure.
            await asyncio.sleep(max(0.0, back + LEASE_SECONDS + 10.0 - time.monotonic()))
            cuts[name] = (node, cut, back, time.monotonic())
        rest = time.monotonic()
        await asyncio.sleep(REST_SECONDS)
    failed = failed_between(lines, moving, moved)
    return {
        "counts": counts_of(lines),
        "moving": {"seconds": round(moved - moving, 2), "failed": len(failed), "why": whys_of(failed)},
        "cuts": {name: cut_of(lines, *cut) for name, cut in cuts.items()},
        "failed_after": len([line for line in lines if line["outcome"] == "failed" and line["began"] >= rest]),
    }


async def _wait_places(lab: Lab, count: int) -> None:
    """Wait until the newest version answers on so many nodes."""
    async with asyncio.timeout(JOB_SECONDS):
        while True:
            (found,) = [each for each in (await lab.ask("endpoints", "--json")).content if each["name"] == ENDPOINT]
            answering = [place["answering_version"] for place in found["places"]]
            if answering.count(found["live_version"]) >= count:
                return
            await asyncio.sleep(REST_SECONDS)


async def _cut_off(host: Host, seconds: float) -> tuple[float, float]:
    """Pull a cable for a while; when that was, and when it was back."""
    host.cut_off()
    cut = time.monotonic()
    await asyncio.sleep(seconds)
    host.connect()
    return cut, time.monotonic()


def _tell(sentence: str) -> None:
    typer.echo(f"{sentence} …")


if __name__ == "__main__":
    typer.run(main)
