"""Fuzz the inference server: in process at full speed, then a little over real sockets."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.bars import keep_result
from benchmarks.fuzz.in_process import PROTOCOLS, Findings, fuzz
from benchmarks.fuzz.sockets import run_smoke
from benchmarks.results import KEEP_HELP, Bar, Json

app = typer.Typer(help=__doc__, no_args_is_help=True, pretty_exceptions_enable=False)
BUILD = Path("build/fuzz")


@app.command()
def requests(
    protocol: Annotated[str, typer.Option(help="rest or grpc.")] = "rest",
    count: Annotated[int, typer.Option(help="Requests.", min=1)] = 1_000_000,
    seed: Annotated[int, typer.Option(help="The same seed sends the same requests.")] = 0,
    seconds: Annotated[float | None, typer.Option(help="Stop after so long.")] = None,
    figures: Annotated[Path | None, typer.Option(help="Write what was found there, as JSON.")] = None,
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
    if figures is not None:
        row = {"protocol": protocol, "seed": seed, "requests": found.requests, "findings": len(found.cases)}
        figures.write_text(json.dumps(row), encoding="utf-8")
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
    seconds: Annotated[float | None, typer.Option(help="Stop each protocol after so long.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help=KEEP_HELP)] = False,
) -> None:
    """Everything: two processes for each protocol, one after the other on two cores, then the sockets."""
    rows: list[Json] = []
    for protocol, part in (("rest", count * 3 // 4), ("grpc", count - count * 3 // 4)):
        rows += _fuzz_in_processes(protocol, part, seed, seconds)
    problems = run_smoke(seed)
    for problem in problems:
        typer.echo(f"FOUND  {problem}")
    figures: Json = {"planned": count if seconds is None else None, "processes": rows, "sockets": problems}
    keep_result("fuzz", command="make fuzz", figures=figures, keep=keep)
    raise typer.Exit(0 if all(bar.holds for bar in bars_of(figures)) else 1)


def bars_of(figures: Json) -> list[Bar]:
    """Nothing may be found, in as many requests as were planned."""
    rows = figures["processes"]
    bars = [
        Bar("kinds of findings in process", sum(row["findings"] for row in rows), "== 0"),
        Bar("findings over sockets", len(figures["sockets"]), "== 0"),
        Bar("processes that came to no end", sum(row["requests"] == 0 for row in rows), "== 0"),
    ]
    if figures["planned"] is not None:
        sent = sum(row["requests"] for row in rows)
        bars.append(Bar("requests", sent, f">= {figures['planned']}"))
    return bars


def _fuzz_in_processes(protocol: str, count: int, seed: int, seconds: float | None) -> list[Json]:
    """One process a core, each with a seed of its own; one that died counts as a finding without requests."""
    cores = os.cpu_count() or 1
    command = [sys.executable, "-m", "benchmarks.fuzz", "requests", "--protocol", protocol]
    command += ["--count", str(-(-count // cores)), *(("--seconds", str(seconds)) if seconds is not None else ())]
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{index}.json" for index in range(cores)]
        running = [
            subprocess.Popen([*command, "--seed", str(seed + index), "--figures", str(file)])
            for index, file in enumerate(files)
        ]
        for process in running:
            process.wait()
        died = {"protocol": protocol, "requests": 0, "findings": 1}
        return [json.loads(file.read_text(encoding="utf-8")) if file.exists() else died for file in files]


def _tell(found: Findings, protocol: str) -> None:
    for what, (wire, times) in sorted(found.cases.items(), key=lambda item: -item[1][1]):
        name = f"{protocol}-{hashlib.sha256(what.encode()).hexdigest()[:12]}.bin"
        BUILD.mkdir(parents=True, exist_ok=True)
        (BUILD / name).write_bytes(wire)
        typer.echo(f"FOUND  {times} x {what}  (first: {BUILD / name})")
