"""``tiercel policy``: which policy decides about shares, and another one in its place while the broker runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tiercel.broker.cli.exit_codes import USAGE
from tiercel.broker.cli.lines import say
from tiercel.broker.cli.operator import as_operator
from tiercel.broker.cli.output import clean, print_json
from tiercel.broker.cli.parameters import broker_option, command, json_option, state_dir_option, target_options
from tiercel.broker.cli.session import Target, fail, run

if TYPE_CHECKING:
    from pathlib import Path

    from tiercel.core.policies import PolicyChoice


@command("tiercel policy show")
@json_option
@target_options
def show(*, as_json: bool, target: Target) -> None:
    """Say which policy decides, who chose it, and which others there are."""
    choice, names = run(target, lambda client: client.policy())
    if as_json:
        print_json({**choice_json(choice), "names": list(names)})
        return
    click.echo(choice_line(choice))
    say(f"Policies: {', '.join(names)}.")


@command("tiercel policy set fifo", "tiercel policy set flowcon --option alpha=0.05")
@click.argument("name", metavar="NAME", help="As 'tiercel policy show' lists them.")
@click.option("--option", "options", metavar="KEY=VALUE", multiple=True, help="An option of the policy; repeatable.")
@json_option
@state_dir_option
@broker_option
def set_(name: str, *, options: tuple[str, ...], as_json: bool, state_dir: Path | None, broker: str) -> None:
    """Have another policy decide from now on, as the broker's operator; one that cannot plan changes nothing."""
    from tiercel.broker.client.policy import set_policy

    told: dict[str, str] = {}
    for option, value in map(_pair, options):
        if option in told:
            fail(f"--option: {option} is given twice; give it once.", USAGE)
        told[option] = value
    choice = as_operator(state_dir, broker, lambda connection: set_policy(connection, name, told))
    if as_json:
        print_json(choice_json(choice))
        return
    click.echo(choice_line(choice))
    if choice.started_with:
        again = f"--policy {clean(choice.started_with)}, which decides again after its next start"
        click.echo(f"The broker was started with {again}.", err=True)


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not (name and sign):
        fail(f"--option: {text!r} is not KEY=VALUE; write for instance --option alpha=0.05.", USAGE)
    return name, value


def choice_line(choice: PolicyChoice) -> str:
    """For people: the policy with its options, and who chose it."""
    options = "".join(f" {clean(name)}={clean(value)}" for name, value in sorted(choice.options.items()))
    who = {"default": "the default", "start": "chosen when the broker was started", "set": "set by the operator"}
    return f"{clean(choice.name)}{options}: {who[choice.source.value]}."


def choice_json(choice: PolicyChoice) -> dict[str, Any]:
    """For programs."""
    return {
        "name": choice.name,
        "options": dict(choice.options),
        "source": choice.source.value,
        "started_with": choice.started_with,
    }
