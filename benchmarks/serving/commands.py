"""The inference server beside its peers, under overload, and with training on the same cores."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.bars import keep_result
from benchmarks.results import KEEP_HELP, KEPT, RESULTS_HELP, Result, folder_of
from benchmarks.sections import write_section
from benchmarks.serving.colocation import Wanted, run_colocation
from benchmarks.serving.comparison import FULL, QUICK, Comparison, Plan, seconds_of
from benchmarks.serving.environments import UnavailableError, install, is_installed
from benchmarks.serving.figures import make_figures, rivals_ahead
from benchmarks.serving.load_tools import missing_tools
from benchmarks.serving.models import exported
from benchmarks.serving.overload import LOADS, run_overload
from benchmarks.serving.peers import OURS, PEERS
from benchmarks.serving.peers.contract import Peer
from benchmarks.serving.raw_limit import run_raw_limit
from benchmarks.serving.samples import Json, Samples
from benchmarks.serving.tables import SECTION, make_section
from testing.product import ProductError

app = typer.Typer(help=__doc__, no_args_is_help=True, pretty_exceptions_enable=False)
BUILD = Path("build/serving")
DOCUMENT = Path(__file__).parents[2] / "docs" / "results.md"
NAMES = ("serving", "serving-resnet", "serving-overload", "serving-colocation", "serving-swaps")
"""Result files that the section of the document is made of."""

INTERRUPTED = 143
QUICK_PEERS = (OURS, "bare", "grpc.aio")
ResultsOption = Annotated[Path | None, typer.Option(help=RESULTS_HELP)]
KeepOption = Annotated[bool, typer.Option("--keep", help=KEEP_HELP)]


@app.command()
def run(
    quick: Annotated[bool, typer.Option("--quick", help="Ours and the ceilings, for sanity and not timing.")] = False,
    peer: Annotated[list[str] | None, typer.Option(help="Measure this server; repeatable.")] = None,
    model: Annotated[list[str] | None, typer.Option(help="Measure this model; repeatable.")] = None,
    kind: Annotated[list[str] | None, typer.Option(help="json, binary or grpc; repeatable.")] = None,
    rounds: Annotated[int | None, typer.Option(help="How often each server is measured.", min=1)] = None,
    results: ResultsOption = None,
    keep: KeepOption = False,
) -> None:
    """Compare servers; those that are not installed yet are, into environments of their own."""
    folder = folder_of(results, keep=keep)
    peers = _chosen(peer or (QUICK_PEERS if quick else tuple(PEERS)))
    console = _prepared("wrk", "h2load")
    plan = _plan(QUICK if quick else FULL, model, kind, rounds)
    models = exported(BUILD / "models", tuple(plan.connections))
    _say(console, f"About {seconds_of(plan, peers) / 60:.1f} minutes, once everything is installed.")
    comparison = Comparison(plan, models, BUILD / "run", lambda line: _say(console, line))
    found = comparison.run(peers)
    if quick:
        figures = make_figures(found, len(peers))
        result = _keep("serving-quick", "python -m benchmarks.serving run --quick", figures, folder)
        raise typer.Exit(0 if all(bar.holds for bar in result.bars) else 1)
    if peer or model or kind:  # a part must not take the place of the whole
        _keep("serving-part", "python -m benchmarks.serving run", make_figures(found, len(peers)), folder)
        return
    found.write(BUILD / "samples.json")
    _write_comparison(found, folder)


@app.command()
def report(results: ResultsOption = None, keep: KeepOption = False) -> None:
    """Make result file and tables again from the samples of the last comparison."""
    try:
        found = Samples.read(BUILD / "samples.json")
    except OSError:
        typer.echo("Error: there are no samples yet; 'python -m benchmarks.serving run' takes some.", err=True)
        raise typer.Exit(1) from None
    _write_comparison(found, folder_of(results, keep=keep))


@app.command()
def overload(
    model: Annotated[str, typer.Option(help="What to ask, such as sensors or resnet.")] = "sensors",
    load: Annotated[list[float] | None, typer.Option(help="Multiple of the peak; repeatable.")] = None,
    sane: Annotated[bool, typer.Option("--sane", help="Exit with 1 where a connection broke; for CI.")] = False,
    results: ResultsOption = None,
    keep: KeepOption = False,
) -> None:
    """Ask up to ten times as much as can be answered, in an open loop."""
    console = _prepared("wrk")
    with _errors_told():
        wanted = exported(BUILD / "models", (model,))[model]
        rows = run_overload(wanted, BUILD / "overload", lambda line: _say(console, line), load or LOADS)
    folder = folder_of(results, keep=keep)
    _keep("serving-overload", "python -m benchmarks.serving overload", {"overload": rows}, folder)
    if sane and not all(row["goodput"] and not row["other_errors"] and not row["broken"] for row in rows):
        typer.echo("Error: nothing was answered, or a connection broke.", err=True)
        raise typer.Exit(1)


@app.command()
def resnet(
    rounds: Annotated[int, typer.Option(help="How often both are measured.", min=1)] = 3,
    results: ResultsOption = None,
    keep: KeepOption = False,
) -> None:
    """Serve ResNet-18, small and in full width, on one core, beside raw ONNX Runtime on the same core."""
    console = _prepared("wrk")
    with _errors_told():
        rows = []
        for wanted in exported(BUILD / "models", ("resnet", "resnet64")).values():
            rows += run_raw_limit(wanted, BUILD / "resnet", lambda line: _say(console, line), rounds)
    folder = folder_of(results, keep=keep)
    _keep("serving-resnet", "python -m benchmarks.serving resnet", {"resnet": rows}, folder)


@app.command()
def colocation(
    rate: Annotated[list[float] | None, typer.Option(help="Requests a second; repeatable.")] = None,
    objective_ms: Annotated[float, typer.Option(help="Delay within which answers have to come.")] = 20.0,
    seconds: Annotated[float, typer.Option(help="For each rate.")] = 20.0,
    policy: Annotated[str, typer.Option(help="What shares the node out.")] = "utility",
    results: ResultsOption = None,
    keep: KeepOption = False,
) -> None:
    """Train on all cores with the whole product while an application asks an endpoint in an open loop."""
    console = _prepared()
    wanted = [Wanted(each, objective_ms / 1e3, seconds, policy) for each in rate or (200.0, 1000.0)]
    with _errors_told():
        rows = asyncio.run(run_colocation(wanted, BUILD / "colocation", lambda line: _say(console, line)))
    command = "python -m benchmarks.serving colocation"
    _keep("serving-colocation", command, {"colocation": rows}, folder_of(results, keep=keep))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def swaps(context: typer.Context) -> None:
    """Swap versions under load; options are those of python -m benchmarks.serving.swaps."""
    command = [sys.executable, "-m", "benchmarks.serving.swaps", *context.args]
    raise typer.Exit(subprocess.run(command, check=False).returncode)


@app.command("install")
def install_command(
    peer: Annotated[list[str] | None, typer.Option(help="Install this server; repeatable.")] = None,
) -> None:
    """Install the peers, one after the other: about 5 GB below build/serving-peers, once."""
    for each in _chosen(peer or tuple(PEERS)):
        if not each.environment:
            continue
        try:
            already = is_installed(each.environment)
            install(each.environment)
        except UnavailableError as error:
            typer.echo(f"{each.name}: cannot be installed here: {error}")
        else:
            typer.echo(f"{each.name}: {'is there' if already else 'installed'}")


@app.command("list")
def list_command() -> None:
    """Tell which servers there are and how they are set up."""
    for each in PEERS.values():
        typer.echo(f"{each.name:<12} {each.about}")


def _prepared(*tools: str) -> Console:
    if missing := missing_tools(tools):
        typer.echo("Error: " + "\n".join(missing), err=True)
        raise typer.Exit(2)
    # What was started is stopped in the finally clauses that an exception runs and a signal does not.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(INTERRUPTED))
    return Console()


@contextlib.contextmanager
def _errors_told() -> Iterator[None]:
    try:
        yield
    except (UnavailableError, ProductError) as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from None


def _chosen(names: Sequence[str]) -> list[Peer]:
    for name in names:
        if name not in PEERS:
            raise typer.BadParameter(f"there is no server {name!r}; choose of {', '.join(PEERS)}")
    return [PEERS[name] for name in names]


def _plan(plan: Plan, models: list[str] | None, kinds: list[str] | None, rounds: int | None) -> Plan:
    for name in models or ():
        if name not in FULL.connections:
            raise typer.BadParameter(f"there is no model {name!r}; choose of {', '.join(FULL.connections)}")
    connections = {name: each for name, each in plan.connections.items() if not models or name in models}
    return replace(plan, connections=connections, kinds=kinds or plan.kinds, rounds=rounds or plan.rounds)


def _write_comparison(found: Samples, folder: Path) -> None:
    figures = make_figures(found, len(found.names()))
    behind, slower = rivals_ahead(figures)
    figures["ahead"] = {"higher rate": behind or [], "lower p99": slower or []}
    _keep("serving", "make bench-serving", figures, folder)


def _keep(name: str, command: str, figures: Json, folder: Path) -> Result:
    """Write a result file, tell its bars, and bring the document up to date if it is kept."""
    result = keep_result(name, command=command, figures=figures, folder=folder)
    if folder == KEPT and name in NAMES:
        files = [folder / f"{each}.json" for each in NAMES]
        contents = [json.loads(file.read_text(encoding="utf-8")) for file in files if file.exists()]
        write_section(DOCUMENT, SECTION, make_section(contents))
    return result


def _say(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
