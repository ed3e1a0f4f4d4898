"""``tiercel what-if``: what would happen if something were different."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from tiercel.broker.cli.exit_codes import USAGE
from tiercel.broker.cli.lines import say
from tiercel.broker.cli.operator import as_operator, as_operator_or_tenant
from tiercel.broker.cli.output import clean, number, part, print_json, print_table
from tiercel.broker.cli.parameters import broker_option, command, json_option, state_dir_option
from tiercel.broker.cli.policy import choice_json, choice_line
from tiercel.broker.cli.session import fail
from tiercel.core.errors import TiercelError, wrong_field
from tiercel.core.validation_over_time import MAX_PRIORITY
from tiercel.core.what_if import AddedNode, Changes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tiercel.core.policies import PolicyChoice
    from tiercel.core.predictions import Accuracy, Prediction
    from tiercel.core.what_if import InTime, Span, WhatIf

_COLUMNS = ("JOB", "NAME", "TIER", "NOW ON", "AS THINGS ARE", "THEN ON", "WITH THE CHANGES")
_ACCURACY_COLUMNS = ("POLICY", "CAME", "NEVER", "MEDIAN ERROR", "QUARTILES", "BIAS", "IN BAND")
_PREDICTION_COLUMNS = ("JOB", "TIER", "PREDICTED AT", "PREDICTED", "CAME", "ERROR", "POLICY")
_PREDICTIONS_SHOWN = 20
_ENDPOINT_COLUMNS = ("ENDPOINT", "IN TIME", "MEAN MS", "THEN IN TIME", "THEN MEAN MS")


@command(
    "tiercel what-if --policy fifo",
    "tiercel what-if --policy fifo --apply",
    "tiercel what-if --add-node cores=4 --requests digits=2x",
    "tiercel what-if --errors",
)
@click.option("--policy", default="", metavar="NAME", help="Another policy.")
@click.option("--option", "options", metavar="KEY=VALUE", multiple=True, help="An option of that policy; repeatable.")
@click.option("--add-node", "add", metavar="cores=N", multiple=True, help="A node more; or like=NODE,cores=N.")
@click.option("--remove-node", "remove", metavar="NODE", multiple=True, help="A node is gone.")
@click.option("--cancel", metavar="JOB", multiple=True, help="A job is cancelled.")
@click.option("--priority", metavar="JOB=N", multiple=True, help="A job has this priority.")
@click.option("--add-like", "like", metavar="JOB", multiple=True, help="One more job like this one.")
@click.option("--requests", metavar="ENDPOINT=2x", multiple=True, help="So many times its requests.")
@click.option("--apply", is_flag=True, help="Then have that policy decide, as 'tiercel policy set' does; asks before.")
@click.option("--yes", "-y", is_flag=True, help="With --apply: do not ask.")
@click.option("--errors", is_flag=True, help="How far off the predictions were that came.")
@json_option
@state_dir_option
@broker_option
@click.option("--tenant", default="", help="Who asks; the operator, where its token is.")
def what_if(
    *,
    policy: str,
    options: tuple[str, ...],
    add: tuple[str, ...],
    remove: tuple[str, ...],
    cancel: tuple[str, ...],
    priority: tuple[str, ...],
    like: tuple[str, ...],
    requests: tuple[str, ...],
    apply: bool,
    yes: bool,
    errors: bool,
    as_json: bool,
    state_dir: Path | None,
    broker: str,
    tenant: str,
) -> None:
    """Say when tiers would be reached if something were different; nothing is changed without --apply."""
    if errors:
        _tell_errors(state_dir, broker, tenant, as_json=as_json)
        return
    try:
        changes = Changes(
            policy,
            dict(_pair("--option", each) for each in options),
            tuple(_node(each) for each in add),
            remove,
            cancel,
            {job: _whole("--priority", value) for job, value in (_pair("--priority", p) for p in priority)},
            like,
            {name: _number("--requests", value.rstrip("x")) for name, value in map(_request, requests)},
        )
    except TiercelError as error:
        fail(error.message, USAGE)
    if apply:
        _check_applicable(changes, yes=yes)
    found = _ask(changes, state_dir, broker, tenant)
    if not as_json:
        _print(found, asked=changes != Changes())
    if not apply:
        chosen = None
    elif yes or click.confirm(f"Have {changes.policy} decide from now on?", err=True):
        chosen = _apply(changes, state_dir, broker)
    else:
        fail("Nothing was changed.")
    if as_json:
        print_json(found.to_json() | ({"applied": choice_json(chosen)} if chosen is not None else {}))
    elif chosen is not None:
        click.echo(choice_line(chosen))


def _pair(name: str, text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals and value):
        raise wrong_field(name, f"is {text!r}; write it as KEY=VALUE")
    return key, value


def _request(text: str) -> tuple[str, str]:
    return _pair("--requests", text)


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise wrong_field(name, f"{text!r} is no number") from None


def _whole(name: str, text: str) -> int:
    number = _number(name, text)
    if not (number.is_integer() and abs(number) <= MAX_PRIORITY):
        raise wrong_field(name, f"{text!r} is no whole number from {-MAX_PRIORITY} to {MAX_PRIORITY}")
    return int(number)


def _node(text: str) -> AddedNode:
    told = dict(_pair("--add-node", part) for part in text.split(","))
    if unknown := told.keys() - {"cores", "like"}:
        raise wrong_field("--add-node", f"has no {min(unknown)!r}; write cores=N, like=NODE or both with a comma")
    return AddedNode(told.get("like", ""), _number("--add-node", told.get("cores", "0")))


def _ask(changes: Changes, state_dir: Path | None, broker: str, tenant: str) -> WhatIf:
    from tiercel.broker.client.what_if import what_if as ask

    return as_operator_or_tenant(state_dir, broker, tenant, lambda connection: ask(connection, changes))


def _tell_errors(state_dir: Path | None, broker: str, tenant: str, *, as_json: bool) -> None:
    """What is recorded of predictions, and what came."""
    from tiercel.broker.client.what_if import predictions

    found = as_operator_or_tenant(state_dir, broker, tenant, predictions)
    if as_json:
        print_json(found.to_json())
        return
    if not found.predictions:
        click.echo("Nothing was predicted yet: that takes a job whose program has run before.")
        return
    print_table(_ACCURACY_COLUMNS, [_accuracy(each) for each in found.accuracy])
    click.echo("")
    print_table(_PREDICTION_COLUMNS, [_prediction(each) for each in found.predictions[:_PREDICTIONS_SHOWN]])


def _accuracy(told: Accuracy) -> tuple[str, ...]:
    quartiles = (
        "-"
        if told.first_quartile is None or told.third_quartile is None
        else f"{part(told.first_quartile)} to {part(told.third_quartile)}"
    )
    median, bias, within = part(told.median_error), _signed(told.bias), part(told.in_band)
    return clean(told.policy), str(told.came), str(told.never), median, quartiles, bias, within


def _signed(off: float | None) -> str:
    return "-" if off is None else f"{'-' if off < 0 else '+'}{part(abs(off))}"


def _prediction(told: Prediction) -> tuple[str, ...]:
    came = told.state.value if told.came_seconds is None else f"{told.came_seconds:.0f} s"
    error = "-" if not told.came_seconds else _signed(told.told.seconds / told.came_seconds - 1)
    return (
        told.job_id,
        str(told.tier),
        f"{told.made_at.astimezone():%Y-%m-%d %H:%M:%S}",
        _span(told.told, ""),
        came,
        error,
        clean(told.policy),
    )


def _check_applicable(changes: Changes, *, yes: bool) -> None:
    """End the command unless what is asked for is one thing that can be done, and somebody is there to say so."""
    if not changes.policy or changes != Changes(changes.policy, changes.policy_options):
        fail("--apply sets a policy and nothing else: give --policy, with its options, alone.", USAGE)
    if not yes and not sys.stdin.isatty():
        fail("--apply asks before it does anything, and nobody is at this terminal: give --yes as well.", USAGE)


def _apply(changes: Changes, state_dir: Path | None, broker: str) -> PolicyChoice:
    from tiercel.broker.client.policy import set_policy

    return as_operator(
        state_dir, broker, lambda connection: set_policy(connection, changes.policy, dict(changes.policy_options))
    )


def _print(found: WhatIf, *, asked: bool) -> None:
    """Tell it; where nothing was asked to be different, only how things are."""
    jobs = [(job, tier) for job in found.jobs for tier in job.tiers]
    if not jobs:
        say("No tier of a job is left to be reached.")
    if asked:
        for sentence in found.difference or ("Nothing would change by much.",):
            say(clean(sentence))
    rows = [
        (
            job.id or "-",
            clean(job.name),
            f"{tier.tier} ({number(tier.target)})",
            clean(job.present.node_id) or "-",
            _span(tier.present, job.note),
            clean(job.changed.node_id) or "-",
            _span(tier.changed, job.note),
        )
        for job, tier in jobs
    ]
    _print_both(_COLUMNS, rows, 5 if not asked else None)
    endpoints = [(clean(each.name), *_in_time(each.present), *_in_time(each.changed)) for each in found.endpoints]
    _print_both(_ENDPOINT_COLUMNS, endpoints, 3 if not asked else None)
    click.echo("")
    left = f" {found.left_out} jobs were left out." if found.left_out else ""
    click.echo(f"Snapshot {found.snapshot}, policy {clean(found.policy)}, {found.draws} simulated futures.{left}")
    _print_assumptions(found.assumptions)


def _print_both(columns: Sequence[str], rows: Sequence[Sequence[str]], first: int | None) -> None:
    """A table behind an empty line, of its first columns; nothing without rows."""
    if rows:
        click.echo("")
        print_table(columns[:first], [row[:first] for row in rows])


def _print_assumptions(assumptions: Sequence[str]) -> None:
    for sentence in assumptions:
        say(f"* {sentence}", 2)


def _span(span: Span | None, note: str) -> str:
    if span is None:
        return "unknown" if note.startswith("unknown") else "-"
    return f"{span.seconds:.0f} s ({span.low:.0f} to {span.high:.0f})"


def _in_time(told: InTime) -> tuple[str, str]:
    in_time = part(told.in_objective)
    return in_time, "-" if told.mean_seconds is None else f"{told.mean_seconds * 1000:.1f}"
