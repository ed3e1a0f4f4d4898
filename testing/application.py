"""An application that calls endpoints at a steady rate: ``python -m testing.application --help``.

A process of its own, that knows nothing of Tiercel but the address of the inference server. It tells what it sees as
lines of JSON on its standard output, and writes every request to a file at its end. It ends on SIGTERM, on SIGINT, or
when its standard input closes, so that it cannot outlive whoever started it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from testing.asking import Target
from testing.load_generator import LoadGenerator
from testing.load_record import LoadRecord
from testing.sample_images import load_samples

NEWS_SECONDS = 0.5


def main(
    server: Annotated[str, typer.Option(help="Where the inference server answers over HTTP, host:port.")],
    endpoint: Annotated[list[str], typer.Option(help="NAME=KIND of an endpoint and its test images; repeatable.")],
    output: Annotated[Path, typer.Option(help="File that every request is written to.")],
    rate: Annotated[float, typer.Option(help="Requests a second in total.", min=0.1, max=2000)] = 60.0,
) -> None:
    """Call endpoints at a steady rate and record every answer."""
    named = [item.partition("=") for item in endpoint]
    targets = [Target(name, load_samples(kind), f"http://{server}/v2/models/{name}") for name, _, kind in named]
    record = LoadRecord()
    # What is here by now stays: looking through it again and again would hold up requests.
    gc.collect()
    gc.freeze()
    began = time.process_time()
    asyncio.run(_run(targets, rate, record))
    record.cpu_seconds = time.process_time() - began
    record.write(output)


async def _run(targets: list[Target], rate: float, record: LoadRecord) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    generator = LoadGenerator(targets, rate, record, _tell_first_answer)
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(_stop_at_end(reader, stopped))
        telling = group.create_task(_tell_news(record))
        _tell({"ready": True})
        await generator.run(stopped)
        watching.cancel()
        telling.cancel()


async def _stop_at_end(reader: asyncio.StreamReader, stopped: asyncio.Event) -> None:
    while await reader.read(1024):
        pass
    stopped.set()


async def _tell_news(record: LoadRecord) -> None:
    told = 0
    while True:
        await asyncio.sleep(NEWS_SECONDS)
        fresh = record.requests[told:]
        told += len(fresh)
        latencies = [round(request.latency, 5) for request in fresh if not request.failed]
        _tell({"requests": told, "failed": sum(request.failed for request in fresh), "latencies": latencies})


def _tell_first_answer(endpoint: str, version: int, at: float) -> None:
    _tell({"endpoint": endpoint, "version": version, "at": at})


def _tell(news: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(news) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    typer.run(main)
