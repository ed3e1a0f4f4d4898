"""What became of a request, as ``tiercel explain --endpoint NAME --request ID`` tells it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import click

from tiercel.broker.cli.infer import read_key
from tiercel.broker.cli.output import clean, milliseconds, print_json
from tiercel.broker.cli.session import Target, fail, run


def explain_request(target: Target, endpoint: str, request_id: str, key: str, *, as_json: bool) -> None:
    """Print what became of a request."""
    shown = read_key(key)
    told = run(target, lambda client: client.explain_request(endpoint, request_id, shown))
    if as_json:
        print_json(told)
        return
    try:
        lines = request_lines(told)
    except (KeyError, TypeError, ValueError, AttributeError):
        fail(f"What the server of '{endpoint}' says of the request makes no sense; it may be of another version.")
    click.echo("\n".join(lines))


def request_lines(told: Mapping[str, Any]) -> list[str]:
    """For people; the argument is what the inference server answers."""
    arrived = datetime.fromtimestamp(told["arrived_at"], UTC).isoformat(" ", "milliseconds").removesuffix("+00:00")
    variant = f" {told['variant']}" if told["variant"] else ""
    who = f"{told['model']}{variant} version {told['version']}" + (f" on node {told['node']}" if told["node"] else "")
    lines = [f"request   {told['id']}", f"answered  by {who}" if not told["error"] else f"asked     {who}"]
    if told["error"]:
        lines.append(f"failed    {told['error']}")
    lines.append(f"arrived   {arrived} UTC, took {milliseconds(told['seconds'])}")
    batch = told["batch"]
    if batch is not None:
        rows = f"{batch['own_rows']} of {batch['rows']} rows"
        lines.append(f"batch     {rows}, number {batch['place']} of {batch['requests']} requests that ran together")
    lines += _generation_lines(told.get("generation"))
    lines += [f"  {name:<8}{milliseconds(float(seconds)):>12}" for name, seconds in told["steps"].items()]
    return [clean(line) for line in lines]


def _generation_lines(told: Mapping[str, Any] | None) -> list[str]:
    """Of an answer that was generated token by token."""
    if told is None:
        return []
    lines = [
        f"generated {told['tokens']} tokens after {told['prompt_tokens']}, beside {max(0, told['rows'] - 1)} others"
    ]
    first, each = told["first_token_seconds"], told["seconds_per_token"]
    if first is not None:
        lines.append(
            f"tokens    the first after {milliseconds(first)}"
            + ("" if each is None else f", then one in {milliseconds(each)}")
        )
    return lines
