"""``tiercel quota``: what tenants may use, and do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tiercel.broker.cli.lines import LABEL_WIDTH, say
from tiercel.broker.cli.operator import as_operator, as_operator_or_tenant
from tiercel.broker.cli.output import clean, number, print_json, print_table
from tiercel.broker.cli.parameters import broker_option, command, json_option, state_dir_option
from tiercel.core.figures import plural, size
from tiercel.core.tenant_use import fair_words

if TYPE_CHECKING:
    from pathlib import Path

    from tiercel.core.quotas import Quota, UsableClass

_COLUMNS = ("TENANT", "JOBS", "RUN", "CORES", "MEMORY", "GPUS", "CORE-H", "GPU-H", "WEIGHT")
_HOUR, _DAY = 3600.0, 86400.0
_LEAST_HOURS = 0.01


@command("tiercel quota show", "tiercel quota show alice --json")
@click.argument("tenant", default="", metavar="[TENANT]", help="Whose; of all, where the operator's token is.")
@json_option
@state_dir_option
@broker_option
def show(tenant: str, *, as_json: bool, state_dir: Path | None, broker: str) -> None:
    """Say what a tenant may use and does: unfinished jobs, what they hold of nodes, room at the broker.

    Of all tenants: a row for each. WEIGHT is followed by how many times as
    much its jobs count by fair share. Room at the broker is told of one only.

    Of one: its priority classes too, as tenants.toml had them when the broker
    started.
    """
    from tiercel.broker.client.quotas import get_quotas

    found = as_operator_or_tenant(state_dir, broker, tenant, lambda connection: get_quotas(connection, tenant))
    if as_json:
        print_json([quota.to_json() for quota in found])
    elif len(found) == 1:
        for line in _lines(found[0]):
            say(line, LABEL_WIDTH)
    else:
        print_table(_COLUMNS, [_row(quota) for quota in found])


@command("tiercel quota set alice --jobs 50 --core-hours 200", "tiercel quota set alice --reset")
@click.argument("tenant", metavar="TENANT", help="As tenants.toml names it.")
@click.option("--jobs", type=click.IntRange(min=0), metavar="N", help="How many unfinished jobs it may have.")
@click.option("--core-hours", type=click.FloatRange(min=0), metavar="HOURS", help="Hours of cores it may have used.")
@click.option("--accelerator-hours", type=click.FloatRange(min=0), metavar="HOURS", help="Of accelerators, alike.")
@click.option("--reset", is_flag=True, help="What tenants.toml says counts again.")
@json_option
@state_dir_option
@broker_option
def set_(
    tenant: str,
    *,
    jobs: int | None,
    core_hours: float | None,
    accelerator_hours: float | None,
    reset: bool,
    as_json: bool,
    state_dir: Path | None,
    broker: str,
) -> None:
    """Say what a tenant may use, as the broker's operator; what is not named stays, and so do jobs that are there.

    Hours are those that its jobs have used, of which half count after a week.
    Who has used all that it may submits no more until it is less.
    """
    from tiercel.broker.client.quotas import set_quota
    from tiercel.core.quotas import Allowance

    changes = Allowance(jobs, core_hours, accelerator_hours)
    if (changes == Allowance()) is not reset:
        raise click.UsageError("Give either --reset or what it may use: --jobs, --core-hours, --accelerator-hours.")
    quota = as_operator(state_dir, broker, lambda connection: set_quota(connection, tenant, changes))
    if as_json:
        print_json(quota.to_json())
    else:
        click.echo(
            f"{clean(quota.tenant)} may have {quota.max_active_jobs} unfinished jobs and has {quota.active_jobs}; of "
            f"cores it has used {_hours(quota.core_hours, quota.max_core_hours)} hours, of accelerators "
            f"{_hours(quota.accelerator_hours, quota.max_accelerator_hours)}."
        )


def _row(quota: Quota) -> tuple[str, ...]:
    return (
        clean(quota.tenant),
        f"{quota.active_jobs} of {quota.max_active_jobs}" + ("*" if quota.is_set else ""),
        str(quota.running_jobs),
        number(quota.cpu_cores),
        size(quota.memory_bytes),
        str(quota.accelerators),
        _hours(quota.core_hours, quota.max_core_hours),
        _hours(quota.accelerator_hours, quota.max_accelerator_hours),
        _counts(quota),
    )


def _lines(quota: Quota) -> list[str]:
    """All of one tenant."""
    hours = f"{_hours(quota.core_hours, quota.max_core_hours)} of cores"
    accelerator_hours = f"{_hours(quota.accelerator_hours, quota.max_accelerator_hours)} of accelerators"
    devices = plural(quota.accelerators, "accelerator")
    set_by = "set by the operator" if quota.is_set else "by tenants.toml"
    lines = [
        f"tenant    {clean(quota.tenant)}",
        f"jobs      {quota.active_jobs} of {quota.max_active_jobs} unfinished ({set_by}), {quota.running_jobs} running",
        f"holds     {plural(quota.cpu_cores, 'core')}, {size(quota.memory_bytes)}, {devices}",
        f"hours     {hours}, {accelerator_hours}; half of them count after {_span(quota.half_life_seconds)}",
        f"projects  {size(quota.projects_bytes)} of {size(quota.max_projects_bytes)}",
        f"files     {size(quota.files_bytes)} of {size(quota.max_files_bytes)}",
        f"weight    {number(quota.weight)}",
        f"classes   {', '.join(map(_class, quota.classes)) or 'none that it may use'}",
    ]
    fair = fair_words(quota.fair_factor)
    return [*lines, f"fair      it {fair}"] if fair else lines


def _class(each: UsableClass) -> str:
    return f"{clean(each.name)} ({each.value}{'' if each.preempts else ', suspends nobody'})"


def _counts(quota: Quota) -> str:
    return number(quota.weight) + (f" x {quota.fair_factor:.2f}" if quota.fair_factor != 1.0 else "")


def _span(seconds: float) -> str:
    return f"{seconds / _DAY:.3g} days" if seconds >= 2 * _DAY else f"{seconds / _HOUR:.3g} hours"


def _hours(used: float, most: float | None) -> str:
    told = f"< {_LEAST_HOURS:g}" if 0 < used < _LEAST_HOURS else number(used)
    return told if most is None else f"{told} of {number(most)}"
