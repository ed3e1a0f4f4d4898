"""``make bench-tls``: one server asked in the clear, by the event loop's TLS and by its own layer, in turn."""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.results import KEEP_HELP, ROOT, Bar
from benchmarks.sections import bars_table, finish, table
from benchmarks.serving.bodies import Bodies, Form, bodies_of
from benchmarks.serving.checking import check
from benchmarks.serving.cores import apart
from benchmarks.serving.environments import UnavailableError
from benchmarks.serving.load_tools import missing_tools, wrk
from benchmarks.serving.models import Model, exported
from benchmarks.serving.peers.contract import V2_PATH, Setting
from benchmarks.serving.processes import Launch, ServerProcesses, free_ports, running
from benchmarks.tls.bars import ARMS, LOOPS, MOST, OWN, PLAIN, Json
from benchmarks.tls.doors import LOOPS_PORT
from tiercel.broker.trust.authority import Authority
from tiercel.core.trust.certificates import to_pem

DOCUMENT = ROOT / "docs" / "results.md"
CONNECTIONS = 64
MODEL = "mlp"


def main(
    rounds: Annotated[int, typer.Option(min=1, help="How often the doors take turns.")] = 9,
    seconds: Annotated[int, typer.Option(min=1, help="Of each window.")] = 2,
    keep: Annotated[bool, typer.Option("--keep", help=KEEP_HELP)] = False,
) -> None:
    """Ask at each door, tell, and write tls.json; exits with 1 where a bar does not hold."""
    if missing := missing_tools(["wrk"]):
        typer.echo(f"Error: {missing[0]}", err=True)
        raise typer.Exit(2)
    try:
        figures = measure(rounds, seconds)
    except UnavailableError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from None
    finish("tls", command="make bench-tls", figures=figures, keep=keep, section=(DOCUMENT, section_of))


def measure(rounds: int, seconds: int) -> Json:
    """What the result file has: a row for each window.

    Raises:
        UnavailableError: The server or the load tool does not work.
    """
    model = exported(ROOT / "build" / "serving-models", (MODEL,))[MODEL]
    with tempfile.TemporaryDirectory() as folder, apart(_server(model, Path(folder))) as server:
        check(server.launch, V2_PATH.format(model=MODEL), model, Form.JSON)
        for door in ARMS:
            _ask(server, door, model, Bodies.SAME, 1)
        rows = []
        for number in range(rounds):
            # Each is first, second and last equally often.
            order = [*ARMS[number % 3 :], *ARMS[: number % 3]]
            for bodies in map(Bodies, MOST):
                for door in order:
                    rows.append({"round": number, **_ask(server, door, model, bodies, seconds)})
                    typer.echo(rows[-1])
        check(server.launch, V2_PATH.format(model=MODEL), model, Form.JSON)
    return {"model": MODEL, "connections": CONNECTIONS, "seconds": seconds, "windows": rows}


def _server(model: Model, folder: Path) -> AbstractContextManager[ServerProcesses]:
    http, https, loops, grpc, grpcs = free_ports(5)
    now = datetime.now(UTC)
    authority = Authority.create(now)
    identity, authority_file, token = (folder / name for name in ("identity.pem", "authority.pem", "token"))
    identity.write_bytes(authority.issue_to_broker(["127.0.0.1"], now).to_file())
    authority_file.write_bytes(to_pem(authority.certificate))
    token.write_text("t" * 43)
    token.chmod(0o600)
    command = [
        sys.executable, "-m", "benchmarks.tls.doors",
        "--repository", str(Setting(folder, [model], Path(sys.executable)).put_repository()),
        "--state-file", str(folder / "state.json"), "--lock-file", str(folder / "lock"),
        "--http-port", str(http), "--grpc-port", str(grpc),
        "--tls-host", "127.0.0.1", "--tls-http-port", str(https), "--tls-grpc-port", str(grpcs),
        "--tls-identity", str(identity), "--tls-authority", str(authority_file), "--operator-token-file", str(token),
    ]  # fmt: skip
    environment = {LOOPS_PORT: str(loops), OWN: str(https)}
    launch = Launch(command, Path.cwd(), http, grpc, environment, ready_path="/v2/health/ready")
    return running(launch, folder / "log")


def _ask(server: ServerProcesses, door: str, model: Model, bodies: Bodies, seconds: int) -> Json:
    launch = server.launch
    port = {PLAIN: launch.http_port, LOOPS: launch.environment[LOOPS_PORT], OWN: launch.environment[OWN]}[door]
    scheme = "http" if door == PLAIN else "https"
    url = f"{scheme}://127.0.0.1:{port}{V2_PATH.format(model=model.name)}"
    before = server.cpu_seconds()
    load = wrk(url, bodies_of(model, bodies), CONNECTIONS, seconds, server.log.parent)
    used = server.cpu_seconds() - before
    return {
        "door": door,
        "bodies": bodies.value,
        "rate": round(load.rate, 1),
        "cpu_us": round(used / max(1, load.requests) * 1e6, 2),
        "p50_ms": load.p50_ms,
        "p99_ms": load.p99_ms,
        "failed": load.failed,
    }


def section_of(figures: Json, bars: Sequence[Bar]) -> str:
    """What documents show of the result."""
    rows = []
    for bodies in MOST:
        for door in ARMS:
            own = [row for row in figures["windows"] if (row["door"], row["bodies"]) == (door, bodies)]
            rate, cpu, p99 = (statistics.median(row[name] for row in own) for name in ("rate", "cpu_us", "p99_ms"))
            rows.append((bodies, door, f"{rate:,.0f}", f"{cpu:.1f}", f"{p99:.2f}"))
    doors = table(("bodies", "door", "requests/s, median", "CPU a request, us", "p99 ms"), rows)
    asked = f"{figures['connections']} kept-alive connections, model `{figures['model']}`."
    title = f"### TLS at the inference server\n\n{asked}"
    return f"{title}\n\n{doors}\n\n{bars_table('bar', bars)}"


if __name__ == "__main__":
    typer.run(main)
