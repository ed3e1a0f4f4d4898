"""``tiercel submit``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tiercel.broker.cli.output import clean, print_json
from tiercel.broker.cli.parameters import command, json_option, target_options
from tiercel.broker.cli.sending import SendingProgress, show_project
from tiercel.broker.cli.session import Target, exit_by, run
from tiercel.broker.cli.specs import changed, spec_of
from tiercel.broker.cli.watch import follow_job

if TYPE_CHECKING:
    from tiercel.broker.client import Client, JobInfo
    from tiercel.broker.client.projects.packing import PackedProject
    from tiercel.core.jobs import JobSpec


@command(
    "tiercel submit digits/",
    "tiercel submit job.yaml --set max_epochs=10 --wait",
    "tiercel submit --script t.py --endpoint e --metric accuracy --tier 0.9",
)
@click.argument(
    "file",
    type=click.Path(path_type=Path),
    required=False,
    metavar="[DIR|FILE]",
    help="A project's folder with a tiercel.yaml, or a spec alone, YAML or TOML.",
)
@click.option("--script", type=click.Path(path_type=Path), help="Training script to send.")
@click.option("--module", default="", help="Python module to run instead of a script.")
@click.option("--endpoint", default="", help="Name that applications call.")
@click.option("--variant", default="", help="Which variant of the endpoint its models are, where several jobs feed it.")
@click.option("--metric", default="", help="Metric that the tiers are about, as the script reports it.")
@click.option("--direction", default="", help="Whether more is better: max or min; by default as is usual of it.")
@click.option("--tier", multiple=True, help="A tier's target; once for each, the easiest first.")
@click.option("--arg", multiple=True, help="An argument of the script, such as --arg=--seed; once for each.")
@click.option("--runtime", default="", help="process or docker; the node's choice when left out.")
@click.option("--image", default="", help="Container image.")
@click.option("--cpu-cores", type=float, help="Cores that it can use at the same time.")
@click.option("--memory", default="", help="Memory limit, such as 2GiB.")
@click.option("--accelerators", type=int, help="Accelerators that it uses at the same time; none when left out.")
@click.option(
    "--accelerator-memory",
    default="",
    help="What it needs on each, such as 8GiB; all of it, and so alone, when left out.",
)
@click.option("--max-epochs", type=int, help="Epochs that it may train at most.")
@click.option(
    "--retries", type=int, help="How often it is started again, from its checkpoint, after its script failed."
)
@click.option("--endpoint-objective-ms", type=float, help="Milliseconds that an answer of the endpoint may take.")
@click.option("--name", default="", help="A label for people.")
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Any field of the spec, such as resources.memory=4GiB; once for each.",
)
@click.option("--replace", is_flag=True, help="Let its models answer even where they are worse or take something else.")
@click.option("--wait", is_flag=True, help="Follow it to its end; exit code 3 if it fails, 4 if it misses a tier.")
@json_option
@target_options
def submit(
    file: Path | None,
    *,
    script: Path | None,
    module: str,
    endpoint: str,
    variant: str,
    metric: str,
    direction: str,
    tier: tuple[str, ...],
    arg: tuple[str, ...],
    runtime: str,
    image: str,
    cpu_cores: float | None,
    memory: str,
    accelerators: int | None,
    accelerator_memory: str,
    max_epochs: int | None,
    retries: int | None,
    endpoint_objective_ms: float | None,
    name: str,
    changes: tuple[str, ...],
    replace: bool,
    wait: bool,
    as_json: bool,
    target: Target,
) -> None:
    """Create a training job from a project's folder, a file or flags; flags replace fields of the file."""
    resources = {
        "cpu_cores": cpu_cores,
        "memory": memory,
        "accelerators": accelerators,
        "accelerator_memory": accelerator_memory,
    }
    flags = {
        "script": str(script) if script else "",
        "module": module,
        "endpoint": endpoint,
        "variant": variant,
        "metric": metric,
        "direction": direction,
        "tiers": list(tier),
        "arguments": list(arg),
        "runtime": runtime,
        "image": image,
        "max_epochs": max_epochs,
        "retries": retries,
        "endpoint_objective_seconds": None if endpoint_objective_ms is None else endpoint_objective_ms / 1000,
        "name": name,
        "replace": True if replace else None,
        "resources": _given(resources),
    }
    spec = spec_of(file, changed(_given(flags), changes))
    _submit(target, spec, wait=wait, as_json=as_json)


def _given(flags: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in flags.items() if value is not None and value not in ("", {}, [])}


def _submit(target: Target, spec: JobSpec, *, wait: bool, as_json: bool) -> None:
    async def create(client: Client) -> JobInfo:
        with SendingProgress(shown=not as_json) as progress:
            handle = await client.submit(spec, packed=await _packed(client, spec, quiet=as_json), progress=progress)
        if not as_json:
            click.echo(f"Submitted {handle.id}; follow it with 'tiercel watch {handle.id}'.")
            if any(tier.hard for tier in spec.tiers):
                first = await anext(handle.events())
                click.echo(f"It is admitted: {clean(getattr(first, 'reason', ''))}.")
        if wait:
            return await follow_job(client, handle.id, quiet=as_json)
        return await handle.refresh()

    job = run(target, create)
    if as_json:
        print_json(job.to_json())
    if wait:
        exit_by([job])


async def _packed(client: Client, spec: JobSpec, *, quiet: bool) -> PackedProject | None:
    """The project of a job, and what people are told of it."""
    packed = await client.pack(spec)
    if packed is not None and not quiet:
        show_project(packed, spec)
    return packed
