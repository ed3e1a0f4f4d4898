"""``make bench-keys``: what a key costs a request, in one process and at a server that is asked with and without."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from benchmarks.results import KEEP_HELP, ROOT, Bar
from benchmarks.sections import finish
from benchmarks.serving.bodies import Bodies, Form, bodies_of
from benchmarks.serving.checking import check
from benchmarks.serving.cores import apart
from benchmarks.serving.load_tools import wrk
from benchmarks.serving.models import Model, exported
from benchmarks.serving.peers.contract import V2_PATH, Setting
from benchmarks.serving.processes import Launch, ServerProcesses, free_ports, running
from benchmarks.serving_codec import LIMITS, MAX_JSON, Plane, Transport, wire
from tiercel.core import storage
from tiercel.core.endpoint_access import AccessTable, EndpointAccess, EndpointKey, EndpointRule
from tiercel.core.tokens import Token, hash_token
from tiercel.serving.access.callers import Caller
from tiercel.serving.access.gate import Gate
from tiercel.serving.connections.listening import Connections
from tiercel.serving.operators import Operators
from tiercel.serving.rest.connection import HttpConnection
from tiercel.serving.rest.messages import ByteBudget
from tiercel.serving.rest.routes import Routes

Json = dict[str, Any]

MODEL, LOCKED = "mlp", "locked"
CONNECTIONS = 64
CALLS = 5_000
KEY = Token.draw("key").to_text()
SHOWN = f"Bearer {KEY}"
# More than any server answers, so that the bucket is counted and never empty.
RULES = AccessTable(
    (
        EndpointRule(MODEL, "one", EndpointAccess.PUBLIC),
        EndpointRule(LOCKED, "one", EndpointAccess.KEY, (EndpointKey("k", hash_token(KEY), 1e6),)),
    )
)
MOST_SECONDS, MOST_PART = 1e-6, 0.02


def main(
    rounds: Annotated[int, typer.Option(min=1, help="How often both take turns.")] = 9,
    seconds: Annotated[int, typer.Option(min=1, help="Of each window; 0 windows with --no-server.")] = 1,
    server: Annotated[bool, typer.Option(help="Also ask a server, by wrk.")] = True,
    keep: Annotated[bool, typer.Option("--keep", help=KEEP_HELP)] = False,
) -> None:
    """Measure, tell, and write keys.json; exits with 1 where a bar does not hold."""
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "access.json"
        table.write_text(storage.to_json(RULES))
        figures: Json = {"gate_us": gate_us(table), "bytes_to_bytes_us": asyncio.run(connection_us(table, rounds))}
        if server:
            figures["windows"] = windows(Path(folder), table, rounds, seconds)
    finish("keys", command="make bench-keys", figures=figures, keep=keep)


def bars_of(figures: Json) -> list[Bar]:
    """What has to hold."""
    gate = figures["gate_us"]
    bars = [
        Bar("gate: seconds for a request with a key and a rate", gate["key and rate"] / 1e6, f"< {MOST_SECONDS:g}"),
        Bar("gate: seconds for a request without", gate["no key"] / 1e6, f"< {MOST_SECONDS:g}"),
    ]
    if rows := figures.get("windows"):
        open_us, locked_us = (statistics.median(row["cpu_us"] for row in rows if row["asked"] == n) for n in _BOTH)
        difference = statistics.median(
            locked - free for free, locked in zip(*figures["bytes_to_bytes_us"].values(), strict=True)
        )
        bars += [
            Bar("part of the rate that a key costs: in-process difference by the server's CPU a request",
                difference / open_us, f"<= {MOST_PART:g}"),
            Bar("the same as measured at the server, unsteady beside other work", 1 - open_us / locked_us, "< 1"),
            Bar("requests that failed", sum(row["failed"] for row in rows), "== 0"),
        ]  # fmt: skip
    return bars


_BOTH = (MODEL, LOCKED)


def gate_us(table: Path) -> dict[str, float]:
    """Microseconds that the gate takes for a request, by kind."""
    caller, gate, shown = Caller("127.0.0.1", is_local=True), Gate(Operators("o" * 32), table), SHOWN.encode()
    kinds: dict[str, Callable[[], None]] = {
        "no key": lambda: gate.check(caller, MODEL, b""),
        "key and rate": lambda: gate.check(caller, LOCKED, shown),
        "nothing": lambda: None,
    }
    best = {name: min(_took_us(ask) for _ in range(15)) for name, ask in kinds.items()}
    return {name: best[name] - best["nothing"] for name in ("no key", "key and rate")}


def _took_us(ask: Callable[[], object]) -> float:
    begin = time.process_time()
    for _ in range(CALLS):
        ask()
    return (time.process_time() - begin) / CALLS * 1e6


async def connection_us(table: Path, rounds: int) -> dict[str, list[float]]:
    """Microseconds from the bytes of a request to those of its answer, without a model, in turn."""
    plain = wire((1, 64), binary=False)
    locked = plain.replace(b"/mlp/", b"/locked/").replace(b"\r\n", f"\r\nAuthorization: {SHOWN}\r\n".encode(), 1)
    ask: dict[str, Callable[[], None]] = {}
    for name, gate, data in ((MODEL, None, plain), (LOCKED, Gate(Operators("o" * 32), table), locked)):
        nothing = cast("Any", None)
        plane = cast("Any", Plane())
        routes = Routes(plane, nothing, lambda *_: None, MAX_JSON, nothing, Operators(), gate=gate)
        connection = HttpConnection(routes.handle, LIMITS, ByteBudget(2**30), Connections())
        connection.connection_made(cast("asyncio.Transport", Transport()))
        ask[name] = lambda connection=connection, data=data: connection.data_received(data)  # type: ignore[misc]
    found: dict[str, list[float]] = {name: [] for name in ask}
    for _ in range(rounds * 3):
        for name, each in ask.items():
            found[name].append(_took_us(each))
    return found


def windows(folder: Path, table: Path, rounds: int, seconds: int) -> list[Json]:
    """A row for each window at a server."""
    model = exported(ROOT / "build" / "serving-models", (MODEL,))[MODEL]
    rows = []
    with apart(_server(model, folder, table)) as server:
        check(server.launch, V2_PATH.format(model=MODEL), model, Form.JSON)
        for name in _BOTH:
            _ask(server, name, model, 1)
        for number in range(rounds):
            for name in _BOTH if number % 2 else reversed(_BOTH):
                rows.append({"round": number, **_ask(server, name, model, seconds)})
                typer.echo(rows[-1])
    return rows


def _server(model: Model, folder: Path, table: Path) -> AbstractContextManager[ServerProcesses]:
    http, grpc = free_ports(2)
    repository = Setting(folder, [model], Path(sys.executable)).put_repository()
    shutil.copytree(repository / MODEL, repository / LOCKED)
    command = [
        sys.executable, "-m", "tiercel.serving", "--repository", str(repository), "--access-file", str(table),
        "--state-file", str(folder / "state.json"), "--lock-file", str(folder / "lock"),
        "--http-port", str(http), "--grpc-port", str(grpc),
    ]  # fmt: skip
    return running(Launch(command, Path.cwd(), http, grpc, {}, ready_path="/v2/health/ready"), folder / "log")


def _ask(server: ServerProcesses, name: str, model: Model, seconds: int) -> Json:
    body = bodies_of(model, Bodies.SAME)
    if name == LOCKED:
        body = dataclasses.replace(body, headers={**body.headers, "Authorization": SHOWN})
    url = f"http://127.0.0.1:{server.launch.http_port}{V2_PATH.format(model=name)}"
    before = server.cpu_seconds()
    load = wrk(url, body, CONNECTIONS, seconds, server.log.parent)
    used = server.cpu_seconds() - before
    cpu_us = used / max(1, load.requests) * 1e6
    return {"asked": name, "rate": round(load.rate, 1), "cpu_us": round(cpu_us, 2), "failed": load.failed}


if __name__ == "__main__":
    typer.run(main)
