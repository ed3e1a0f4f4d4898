"""``tiercel sweep``: jobs of one spec with other arguments, and the best ones' to the endpoint."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tiercel.broker.cli.output import clean, number, print_json
from tiercel.broker.cli.parameters import command, json_option, target_options
from tiercel.broker.cli.session import Target, fail, run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tiercel.broker.client import Client
    from tiercel.broker.client.sweeps.ranges import Range
    from tiercel.broker.client.sweeps.running import SweepPlan, TrialEnd
    from tiercel.broker.client.sweeps.study import Study
    from tiercel.core.jobs import JobSpec


@command(
    "tiercel sweep job.yaml --param lr=loguniform:1e-4:1e-1 --trials 30",
    "tiercel sweep digits/ --param width=int:16:256 --param act=cat:relu,gelu",
)
@click.argument("file", type=click.Path(path_type=Path), metavar="DIR|FILE", help="As 'tiercel submit' takes it.")
@click.option(
    "--param",
    "params",
    multiple=True,
    required=True,
    metavar="NAME=RANGE",
    help="uniform:LOW:HIGH, loguniform:LOW:HIGH, int:LOW:HIGH or cat:A,B; once for each.",
)
@click.option(
    "--study", default="", metavar="NAME", help="Its name; kept in NAME.sweep.db here.", show_default="the endpoint's"
)
@click.option("--trials", type=click.IntRange(1, 1000), default=20, show_default=True, help="Trials in all.")
@click.option("--at-once", type=click.IntRange(1, 32), default=2, show_default=True, help="Trials that train together.")
@click.option("--sampler", type=click.Choice(["tpe", "random"]), default="tpe", show_default=True, help="Optuna's.")
@click.option(
    "--first-epoch",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="Epoch at which trials are first compared.",
)
@click.option(
    "--factor",
    type=click.IntRange(2),
    default=3,
    show_default=True,
    help="One of so many goes on, to so many times the epochs.",
)
@click.option("--leave", is_flag=True, help="At Ctrl-C let jobs go on; the same command finds them again.")
@json_option
@target_options
def sweep(
    file: Path,
    *,
    params: tuple[str, ...],
    study: str,
    trials: int,
    at_once: int,
    sampler: str,
    first_epoch: int,
    factor: int,
    leave: bool,
    as_json: bool,
    target: Target,
) -> None:
    """Search parameters of a script: each trial is a job with other arguments; the best ones train for the endpoint.

    Begun again with the same study, it goes on where it was left.
    """
    from tiercel.broker.client.spec_file import load_spec
    from tiercel.broker.client.sweeps.ranges import read_range
    from tiercel.broker.client.sweeps.running import Sweep, SweepPlan
    from tiercel.broker.client.sweeps.stopping import Halving
    from tiercel.core.errors import TiercelError

    try:
        spec = load_spec(file)
        ranges = dict(read_range(text) for text in params)
        plan = SweepPlan(study or spec.endpoint, trials, at_once, Halving(first_epoch, factor), leave)
    except TiercelError as error:
        fail(error.message)
    ends: list[TrialEnd] = []

    def show(end: TrialEnd) -> None:
        ends.append(end)
        if not as_json:
            click.echo(_line(end))

    async def search(client: Client) -> dict[str, Any]:
        with _opened(plan, spec, ranges, sampler) as opened:
            found = Sweep(client, spec, plan, opened, show)
            await found.run()
            job, best = await found.feed(), opened.best()
        return {
            "study": plan.name,
            "trials": [each.to_json() for each in ends],
            "best": None if best is None else {"number": best.number, "value": best.value, "parameters": best.params},
            "job": "" if job is None else job.id,
        }

    result = run(target, search)
    if as_json:
        print_json(result)
    if result["best"] is None:
        fail("No trial ended with a value, so that nothing trains for the endpoint; see 'tiercel logs' of one of them.")
    if not as_json:
        click.echo(
            f"Best: trial {result['best']['number']} with {number(result['best']['value'])}. "
            f"Job {result['job']} has its parameters and feeds {clean(spec.endpoint)}."
        )


@contextmanager
def _opened(plan: SweepPlan, spec: JobSpec, ranges: Mapping[str, Range], sampler: str) -> Iterator[Study]:
    """The study's file, which one process uses at a time."""
    from tiercel.core.errors import SetupError
    from tiercel.core.locks import LockHeldError, take

    try:
        from tiercel.broker.client.sweeps.study import Study
    except ImportError as error:
        raise SetupError("optuna is not installed; run: pip install 'tiercel[sweep]'") from error
    file = Path(f"{plan.name}.sweep.db")
    try:
        lock = take(file.with_suffix(".lock"))
    except LockHeldError as error:
        message = f"Another 'tiercel sweep' runs this study here (process {error.pid}); wait, or give --study."
        raise SetupError(message) from error
    except OSError as error:
        raise SetupError(f"{file} cannot be written here ({error.strerror}); go to another folder.") from error
    with lock, Study(file, plan.name, spec.direction, ranges, sampler) as study:
        yield study


def _line(end: TrialEnd) -> str:
    parameters = " ".join(f"{name}={value}" for name, value in end.parameters.items())
    reason = f": {clean(end.reason)}" if end.reason else ""
    return f"trial {end.number}  {end.state}  {number(end.value)} at epoch {end.epoch}  {clean(parameters)}{reason}"
