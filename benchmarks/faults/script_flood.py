"""A training script that floods its socket: ``python -m benchmarks.faults.script_flood [--seconds N]``.

A job's script attaches to its agent from many threads at once and sends, as fast as it can, reports with names of
metrics of 1 MB, of 60 KB, and of 60 characters that are never the same; others of its threads open connections that say
nothing. It prints as fast as it can as well. What that costs agent, broker and disk is printed as JSON; it exits with 1
when one of the bounds does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import psutil

from testing.product import Product, processes_of
from testing.until import until
from tiercel import Client, Direction, JobSpec, JobState, Resources, Script, Tier

MIB: Final = 1024**2
BOUNDS_MIB: Final = {"agent_growth": 48.0, "broker_growth": 48.0, "database": 16.0, "logs": 40.0}
SAMPLE_SECONDS: Final = 0.25
START_SECONDS: Final = 60.0
ROLES: Final = {"agent": "tiercel.trainer_agent", "broker": "up"}

ATTACK: Final = """
import itertools, os, socket, sys, threading, time
import grpc
from tiercel.v1 import trainer_pb2 as pb, trainer_pb2_grpc

os.chdir(os.environ["TIERCEL_RUN_DIR"])
token = open("token").read().strip()
numbers = itertools.count(1)

def messages(names):
    yield pb.AttachRequest(hello=pb.TrainerHello(token=token))
    for number in numbers:
        metrics = {name: 1.0 for name in names(number)} | {"accuracy": 0.1}
        yield pb.AttachRequest(report=pb.TrainerReport(sequence=number, epoch=1, metrics=metrics))

def attach(names):
    while True:
        try:
            with grpc.insecure_channel("unix:agent.sock", [("grpc.use_local_subchannel_pool", 1)]) as channel:
                for _ in trainer_pb2_grpc.TrainerServiceStub(channel).Attach(messages(names)):
                    pass
        except grpc.RpcError:
            pass

def crowd():
    held = []
    while True:
        one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        one.setblocking(False)
        one.connect_ex("agent.sock")
        held = [*held, one][-200:]
        time.sleep(0.001)  # the attack is the number of connections, not this process's own CPU

def talk():
    while True:
        print("x" * 4000)

def many(number):
    return [f"{'x' * 50}{number}.{index}"[-64:] for index in range(63)]

kinds = [lambda number: ["x" * 1_000_000 + str(number)], lambda number: ["x" * 60_000 + str(number)], many, many]
for names in kinds * 3:
    threading.Thread(target=attach, args=(names,), daemon=True).start()
for work in (crowd, talk):
    threading.Thread(target=work, daemon=True).start()
time.sleep(600)  # the threads attack until the run is ended
"""


async def flood(seconds: float, folder: Path) -> dict[str, float]:
    """Run the attack for some seconds; returns figures in MiB, growth being the peak over what it was before."""
    async with Product(folder / "state", folder / "up.log", ["--runtime", "process"]) as product:
        processes = _by_role(product.state_dir)
        before = {role: process.memory_info().rss for role, process in processes.items()}
        peaks = dict(before)
        async with Client.from_state_dir(product.state_dir) as client:
            job = await client.submit(_job())
            log = product.state_dir / "logs" / f"{job.id}-1.log"
            await until(log.exists, seconds=START_SECONDS)
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                await asyncio.sleep(SAMPLE_SECONDS)
                for role, process in processes.items():
                    peaks[role] = max(peaks[role], process.memory_info().rss)
            state = (await client.get_job(job.id)).state
            await client.cancel_job(job.id)
        figures = {f"{role}_growth": (peaks[role] - before[role]) / MIB for role in processes}
        figures["database"] = _size(product.state_dir.glob("broker.sqlite*")) / MIB
        figures["logs"] = _size(product.state_dir.rglob("logs/**/*")) / MIB
        figures["still_running"] = float(state is JobState.RUNNING)
        return {name: round(figure, 1) for name, figure in figures.items()}


def broken_bounds(figures: dict[str, float]) -> list[str]:
    """Which of the bounds do not hold."""
    return [name for name, most in BOUNDS_MIB.items() if figures[name] > most]


def _job() -> JobSpec:
    return JobSpec(
        name="flood",
        endpoint="flooded",
        metric="accuracy",
        direction=Direction.MAX,
        tiers=(Tier(0.99),),
        script=Script("flood.py", ATTACK.encode()),
        resources=Resources(cpu_cores=1.0, memory_bytes=1024 * MIB),
    )


def _by_role(state_dir: Path) -> dict[str, psutil.Process]:
    found = {}
    for process in processes_of(state_dir):
        for role, word in ROLES.items():
            if word in process.cmdline():
                found[role] = process
    return found


def _size(paths: Iterable[Path]) -> int:
    return sum(path.stat().st_size for path in paths if path.is_file())


def main() -> int:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(description="Flood an agent from a training script.")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long, up to 300 (default 20)")
    seconds = min(300.0, parser.parse_args().seconds)
    with tempfile.TemporaryDirectory(prefix="tiercel-flood-") as folder:
        figures = asyncio.run(flood(seconds, Path(folder)))
    broken = broken_bounds(figures)
    print(json.dumps({"seconds": seconds, "mib": figures, "bounds_mib": BOUNDS_MIB, "broken": broken}, indent=2))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
