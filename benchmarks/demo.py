"""``make demo``: the whole product at work on this machine. ``python -m benchmarks.demo --help`` tells the options."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.demo_session import DemoOptions, Outcome, run_demo
from benchmarks.live_view import view_for
from benchmarks.plot import draw
from benchmarks.report import build_report, find_shortfalls
from benchmarks.results import KEEP_HELP, RESULTS_HELP, folder_of, path_of, write_result
from benchmarks.summary import print_summary
from benchmarks.until_end import run_until_end


class Runtime(StrEnum):
    """What runs the training scripts."""

    PROCESS = "process"
    DOCKER = "docker"


def main(
    runtime: Annotated[Runtime, typer.Option(help="Run jobs as processes or in containers.")] = Runtime.PROCESS,
    output: Annotated[Path, typer.Option(help="Folder for the report, the plot and the logs.")] = Path("demo-output"),
    policy: Annotated[str, typer.Option(help="The scheduling policy.")] = "utility",
    seconds_limit: Annotated[float, typer.Option(help="The jobs have to be done after so many seconds.", min=1)] = 240,
    rate: Annotated[float, typer.Option(help="Requests a second of the application, in total.", min=1)] = 60,
    results: Annotated[Path | None, typer.Option(help=RESULTS_HELP)] = None,
    keep: Annotated[bool, typer.Option("--keep", help=KEEP_HELP)] = False,
) -> None:
    """Train four models of two tenants, ship each tier, and call the endpoints all the while."""
    console = Console()
    output.mkdir(parents=True, exist_ok=True)
    options = DemoOptions(output, runtime.value, policy, rate, seconds_limit)
    outcome = run_until_end(_run(options, console))
    report = _write(options, outcome, folder_of(results, keep=keep), console)
    _judge(options, outcome, report)


async def _run(options: DemoOptions, console: Console) -> Outcome:
    with view_for(console) as view:
        return await run_demo(options, view)


def _write(options: DemoOptions, outcome: Outcome, results: Path, console: Console) -> dict[str, Any]:
    """Write report, plot and result file, and print the summary; returns the report."""
    state = outcome.state
    report = build_report(
        state.timeline,
        outcome.record,
        mqtt_messages=state.mqtt_messages,
        runtime=options.runtime,
        policy=options.policy,
    )
    report_path, plot_path = options.output / "demo-report.json", options.output / "demo.png"
    report_path.write_text(json.dumps(report, indent=2, allow_nan=False, ensure_ascii=False) + "\n", encoding="utf-8")
    draw(state.timeline, outcome.record, plot_path)
    result = write_result("demo", command="make demo", figures=report, folder=results)
    files = {
        "Plot": plot_path,
        "Report": report_path,
        "Figures and bars": path_of(result, results),
        "Logs": options.output,
    }
    print_summary(console, report, list(result.bars), files)
    return report


def _judge(options: DemoOptions, outcome: Outcome, report: dict[str, Any]) -> None:
    """Exit with 1 and sentences that say why, unless every tier was delivered and no request failed."""
    shortfalls = find_shortfalls(report, outcome.state.timeline)
    if outcome.timed_out:
        shortfalls.insert(0, f"The jobs were not done after {options.seconds_limit:.0f} s.")
    if outcome.left_over:
        shortfalls.append(f"Processes were left behind and had to be killed: {'; '.join(outcome.left_over)}.")
    if shortfalls:
        logs = f"The logs are in {options.output}: up.log, application.log, and those of the jobs in state/logs."
        typer.echo("\n".join(["", "The demo fell short.", *shortfalls, logs]), err=True)
        raise typer.Exit(1)
    typer.echo("\nYour own script: docs/tutorial.md takes it from here to two tiers.")


if __name__ == "__main__":
    # A traceback of a defect as Python prints it: rich's are pages long for errors in task groups.
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(main)
    app()
