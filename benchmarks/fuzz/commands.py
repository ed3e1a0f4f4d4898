"""Fuzz the inference server: in process at full speed, then a little over real sockets."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.fuzz.in_process import PROTOCOLS, Findings, fuzz
from benchmarks.fuzz.sockets import run_smoke

app = typer.Typer(help=__doc__, no_args_is_help=True, pretty_exceptions_enable=False)
BUILD = Path("build/fuzz")


@app.command()
def requests(
    protocol: Annotated[str, typer.Option(help="rest or grpc.")] = "rest",
    count: Annotated[int, typer.Option(help="Requests.", min=1)] = 1_000_000,
    seed: Annotated[int, typer.Option(help="The same seed sends the same requests.")] = 0,
    seconds: Annotated[float | None, typer.Option(help="Stop after so long.")] = None,
) -> None:
    """Send mutated requests to the whole server in this process; what goes wrong is kept in build/fuzz."""
    if protocol not in PROTOCOLS:
        raise typer.BadParameter(f"there is no protocol {protocol!r}; choose of {', '.join(PROTOCOLS)}")
    with tempfile.TemporaryDirectory() as folder:
        found = fuzz(PROTOCOLS[protocol], protocol, count, seed, Path(folder), seconds)
    rate = found.requests / max(found.cpu_seconds, 1e-9)
    typer.echo(
        f"{protocol}, seed {seed}: {found.requests:,} requests in {found.seconds:.1f} s; "
        f"{rate:,.0f} in a second of CPU time; {len(found.cases)} kinds of findings"
    )
    _tell(found, protocol)
    raise typer.Exit(1 if found.cases else 0)


@app.command()
def sockets(seed: Annotated[int, typer.Option(help="Of the requests.")] = 0) -> None:
    """Cut connections, slow bodies, huge headers against a real server, which has to live on and answer."""
    problems = run_smoke(seed)
    for problem in problems:
        typer.echo(f"FOUND  {problem}")
    typer.echo("sockets: the server lives and answers" if not problems else "sockets: see above")
    raise typer.Exit(1 if problems else 0)


@app.command("all")
def everything(
    count: Annotated[int, typer.Option(help="Requests of both protocols together.", min=16)] = 1_000_000,
    seed: Annotated[int, typer.Option(help="The same seed sends the same requests.")] = 0,
) -> None:
    """Everything: two processes for each protocol, one after the other on two cores, then the sockets."""
    cores = os.cpu_count() or 1
    failed = False
    for protocol, part in (("rest", count * 3 // 4), ("grpc", count - count * 3 // 4)):
        each = -(-part // cores)
        command = [sys.executable, "-m", "benchmarks.fuzz", "requests", "--protocol", protocol, "--count", str(each)]
        running = [subprocess.Popen([*command, "--seed", str(seed + index)]) for index in range(cores)]
        codes = [process.wait() for process in running]
        failed = failed or any(codes)
    failed = subprocess.run([sys.executable, "-m", "benchmarks.fuzz", "sockets"], check=False).returncode > 0 or failed
    raise typer.Exit(1 if failed else 0)


def _tell(found: Findings, protocol: str) -> None:
    for what, (wire, times) in sorted(found.cases.items(), key=lambda item: -item[1][1]):
        name = f"{protocol}-{hashlib.sha256(what.encode()).hexdigest()[:12]}.bin"
        BUILD.mkdir(parents=True, exist_ok=True)
        (BUILD / name).write_bytes(wire)
        typer.echo(f"FOUND  {times} x {what}  (first: {BUILD / name})")
