"""Live experiments: the schedulers against each other, with real training processes and the whole product."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import psutil
import typer
from rich.console import Console

from benchmarks.bars import keep_result
from benchmarks.results import (
    KEEP_HELP,
    KEPT,
    RESULTS_HELP,
    commit,
    describe_machine,
    folder_of,
)
from benchmarks.scheduling.arms import ARMS, why_missing
from benchmarks.scheduling.derive import derive
from benchmarks.scheduling.figures import make_figures
from benchmarks.scheduling.floor import floor
from benchmarks.scheduling.kinds import KINDS
from benchmarks.scheduling.live_run import LiveSettings, run_schedule
from benchmarks.scheduling.matrix import (
    ARMS_OF,
    Block,
    Budget,
    Run,
    deadline_seconds,
    expected_seconds,
    forget_all_but,
    make_blocks,
    outcomes_in,
    run_blocks,
    schedules_of,
    source_fingerprint,
)
from benchmarks.scheduling.outcome import Origin, RunOutcome
from benchmarks.scheduling.plots import draw_all
from benchmarks.scheduling.progress import Teller
from benchmarks.scheduling.record import record, runs_to_record
from benchmarks.scheduling.recordings import FOLDER, Recording, RecordingError, Recordings
from benchmarks.scheduling.schedules import SCHEDULES
from benchmarks.scheduling.tables import SECTION, make_section
from benchmarks.sections import write_section
from benchmarks.until_end import run_until_end
from testing.application_process import ApplicationError
from testing.product import ProductError
from tiercel import TiercelError

app = typer.Typer(help=__doc__, no_args_is_help=True, pretty_exceptions_enable=False)
BUILD = Path("build/scheduling")
DOCUMENT = Path(__file__).parents[2] / "docs" / "results.md"
PLOTS = DOCUMENT.parent / "plots"
INTERRUPTED = 130
EXPECTED_ERRORS = (ProductError, ApplicationError, TiercelError, RecordingError)
REPETITIONS = 20
"""More than any budget allows for."""


class Runtime(StrEnum):
    """What runs the training scripts."""

    PROCESS = "process"
    DOCKER = "docker"


@app.command()
def run(
    quick: Annotated[bool, typer.Option("--quick", help="A few small runs, for sanity and not for timing.")] = False,
    minutes: Annotated[float | None, typer.Option(help="As many blocks as fit; all when left out.", min=0)] = None,
    repetitions: Annotated[int | None, typer.Option(help="Of each schedule at most.", min=1)] = None,
    arm: Annotated[list[str] | None, typer.Option(help="Run this arm; repeatable.")] = None,
    schedule: Annotated[list[str] | None, typer.Option(help="Run this schedule; repeatable.")] = None,
    seed: Annotated[int, typer.Option(help="Of schedules and orders.")] = 0,
    runtime: Annotated[Runtime, typer.Option(help="Run jobs as processes or in containers.")] = Runtime.PROCESS,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget runs of an earlier time.")] = False,
    output: Annotated[Path | None, typer.Option(help="Folder of runs and logs.")] = None,
    results: Annotated[Path | None, typer.Option(help=RESULTS_HELP)] = None,
    keep: Annotated[bool, typer.Option("--keep", help=KEEP_HELP)] = False,
) -> None:
    """Run the policies against each other; what was interrupted goes on where it stopped."""
    console = Console()
    setting = f"{runtime.value}-{source_fingerprint()}"
    folder = output or (BUILD / f"quick-{runtime.value}" if quick else runs_of(runtime, keep=keep))
    names = tuple(schedule or schedules_of(quick=quick))
    missing = _check(names, tuple(arm or ()))
    wanted = {name: [each for each in arm or ARMS_OF[name] if each not in missing] for name in names}
    for name, why in missing.items():
        console.print(f"Left out: {name}. {why}", style="yellow", markup=False)
    times = repetitions or (1 if quick or minutes is None else REPETITIONS)
    blocks = make_blocks(names, times, lambda name: [ARMS[each] for each in wanted[name]], seed, setting)
    forget_all_but(None if fresh else setting, folder)
    recordings = Recordings.read()
    running = _run_all(blocks, folder, output or BUILD, recordings, runtime.value, minutes, console)
    outcomes = run_until_end(running, RecordingError)
    if quick:
        _finish_quick(outcomes, sum(map(len, blocks)), missing, recordings, folder_of(results, keep=keep), console)
    else:
        # Those of other schedules and arms, too, which were run before.
        write_live(outcomes_in(folder), recordings, missing, name_of(runtime), folder_of(results, keep=keep), console)


def name_of(runtime: Runtime) -> str:
    """Name of the result file of a full run."""
    return "scheduling-live" if runtime is Runtime.PROCESS else "scheduling-containers"


def runs_of(runtime: Runtime, *, keep: bool) -> Path:
    """Folder of the runs of a full run: beside its result file where that is kept, so that others can go on."""
    return (KEPT if keep else BUILD) / name_of(runtime)


def _check(schedules: tuple[str, ...], arms: tuple[str, ...]) -> dict[str, str]:
    """Refuse what there is not; returns arms that cannot run with the reason."""
    for name in schedules:
        if name not in SCHEDULES:
            raise typer.BadParameter(f"there is no schedule {name!r}; choose of {', '.join(SCHEDULES)}")
    for name in arms:
        if name not in ARMS:
            raise typer.BadParameter(f"there is no arm {name!r}; choose of {', '.join(ARMS)}")
    return {name: why for name, each in ARMS.items() if (not arms or name in arms) and (why := why_missing(each))}


async def _run_all(
    blocks: list[Block],
    folder: Path,
    scratch: Path,
    recordings: Recordings,
    runtime: str,
    minutes: float | None,
    console: Console,
) -> list[RunOutcome]:
    cores = psutil.cpu_count() or 1

    async def carry_out(each: Run) -> RunOutcome:
        seconds = deadline_seconds(each.schedule, recordings, cores)
        settings = LiveSettings(scratch / "product", runtime, seconds, recordings)
        return await run_schedule(each.arm, each.schedule, settings)

    def expect(each: Run) -> float:
        return expected_seconds(each.schedule, recordings, cores)

    origin = Origin(commit(), str(describe_machine()["cpu"]))
    budget = Budget(None if minutes is None else 60.0 * minutes)
    with Teller(console, blocks, minutes) as teller:
        return await run_blocks(blocks, folder, origin, carry_out, expect, budget, teller.tell)


def _finish_quick(
    outcomes: list[RunOutcome],
    planned: int,
    missing: dict[str, str],
    recordings: Recordings,
    results: Path,
    console: Console,
) -> None:
    figures = make_figures(outcomes, recordings, psutil.cpu_count() or 1, missing, planned)
    name = "scheduling-quick"
    result = keep_result(name, command=_command(name), figures=figures, folder=results)
    if not all(bar.holds for bar in result.bars):
        raise typer.Exit(1)


def write_live(
    outcomes: list[RunOutcome],
    recordings: Recordings,
    missing: dict[str, str],
    name: str,
    results: Path,
    console: Console,
) -> None:
    """Write the result file; for processes also the plots and the section of the document."""
    figures = make_figures(outcomes, recordings, psutil.cpu_count() or 1, missing, len(outcomes))
    command = _command(name)
    result = keep_result(name, command=command, figures=figures, folder=results)
    if results == KEPT and name == name_of(Runtime.PROCESS):
        plots = [f"plots/{each.name}" for each in draw_all(outcomes, PLOTS)]
        section = make_section(figures, list(result.bars), command=command, machine=describe_machine(), plots=plots)
        write_section(DOCUMENT, SECTION, section)


@app.command()
def report(
    runtime: Annotated[Runtime, typer.Option(help="Runs of processes or of containers.")] = Runtime.PROCESS,
    results: Annotated[Path | None, typer.Option(help=RESULTS_HELP)] = None,
    keep: Annotated[bool, typer.Option("--keep", help=KEEP_HELP)] = False,
) -> None:
    """Make result file, tables and plots again from the runs that are there, with --keep from those that are kept."""
    outcomes = outcomes_in(runs_of(runtime, keep=keep))
    if not outcomes:
        typer.echo("Error: there are no runs yet; 'python -m benchmarks.scheduling run' makes some.", err=True)
        raise typer.Exit(1)
    write_live(outcomes, Recordings.read(), _check((), ()), name_of(runtime), folder_of(results, keep=keep), Console())


@app.command("record")
def record_command(
    kind: Annotated[list[str] | None, typer.Option(help="Record this kind only; repeatable.")] = None,
    output: Annotated[Path, typer.Option(help="Folder of recordings.")] = FOLDER,
) -> None:
    """Run each kind of job alone, with each training seed, and keep what it did: a few minutes on a quiet machine."""
    console = Console()
    runs = runs_to_record(kind or tuple(KINDS))

    def tell(made: Recording) -> None:
        made.write(output)
        works = ", ".join(f"{work:.1f}" for work in made.works())
        name = f"{made.kind} seed {made.training_seed}"
        console.print(f"{name}: tiers after {works} of {made.cpu_seconds:.1f} CPU seconds", highlight=False)

    run_until_end(record(runs, BUILD / "record", psutil.cpu_count() or 1, tell))


@app.command("floor")
def floor_command() -> None:
    """Tell how far off what-ifs are where only the work is unknown, from the recordings: seconds, any machine."""
    for name, found in floor(Recordings.read()).items():
        typer.echo(f"{name:<22} {json.dumps(found)}")


@app.command("derive")
def derive_command(
    kind: Annotated[list[str] | None, typer.Option(help="Derive for this kind only; repeatable.")] = None,
) -> None:
    """Train each kind for long and tell where its tiers belong, to be written into ``kinds.py``."""
    for name in kind or tuple(KINDS):
        found = derive(KINDS[name])
        typer.echo(json.dumps({"kind": name, "targets": found.targets, "max_epochs": found.max_epochs}))


@app.command("list")
def list_command() -> None:
    """Tell which schedules and arms there are."""
    for name, recipe in SCHEDULES.items():
        typer.echo(f"{name:<22} {recipe.about}")
    typer.echo("")
    for name, each in ARMS.items():
        why = why_missing(each)
        typer.echo(f"{name:<22} {each.about}{f' (missing: {why})' if why else ''}")


def _command(name: str) -> str:
    """What a reader types to make a result file again."""
    commands = {
        "scheduling-quick": "make bench-scheduling BENCH_FLAGS=--quick",
        "scheduling-containers": "python -m benchmarks.scheduling run --runtime docker",
    }
    return commands.get(name, "make bench-scheduling")
