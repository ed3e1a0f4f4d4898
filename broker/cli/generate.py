"""``tiercel generate``: has an endpoint generate."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import TYPE_CHECKING

import click

from tiercel.broker.cli.completion import complete_endpoint
from tiercel.broker.cli.exit_codes import USAGE
from tiercel.broker.cli.infer import at_option, check_place, key_option, read_key
from tiercel.broker.cli.output import clean, print_json
from tiercel.broker.cli.parameters import command, json_option, target_options
from tiercel.broker.cli.session import Target, fail, open_client, run_to_the_end

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from tiercel.broker.client.generation import Generated, GeneratedPart, Sampling


@command('tiercel generate sums "7+5="', 'tiercel generate sums "7+5=" --max-tokens 4 --stream')
@click.argument("endpoint", help="The endpoint's name.", shell_complete=complete_endpoint)
@click.argument("prompt", help="A text, where the version has a tokenizer; with --ids, ids such as 1,2,3.")
@click.option("--ids", is_flag=True, help="The prompt is of ids, and so is what is shown.")
@click.option("--max-tokens", type=int, metavar="N", help="Tokens of the answer at most; 16 where nothing is said.")
@click.option("--temperature", type=float, help="0, the default, is the likeliest token always.")
@click.option("--top-k", type=int, metavar="N", help="Only so many of the likeliest tokens count.")
@click.option("--top-p", type=float, help="Only the likeliest tokens count that are together so likely.")
@click.option("--seed", type=int, metavar="N", help="The same gives the same answer.")
@click.option("--stream", "is_stream", is_flag=True, help="Show what comes as it comes; with --json a line for each.")
@key_option
@at_option
@json_option
@target_options
def generate(
    endpoint: str,
    prompt: str,
    *,
    ids: bool,
    max_tokens: int | None,
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
    seed: int | None,
    is_stream: bool,
    key: str,
    at: str,
    as_json: bool,
    target: Target,
) -> None:
    """Have an endpoint generate an answer to a prompt, token by token; standard output has the answer only."""
    check_place(at, target)
    asked = _ids_of(prompt) if ids else prompt
    said = {"max_tokens": max_tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    sampling: Sampling = {name: value for name, value in said.items() if value is not None}  # type: ignore[assignment]
    shown = read_key(key)
    if is_stream:
        run_to_the_end(_show(_parts(at, target, endpoint, asked, sampling, shown), as_json=as_json, ids_only=ids))
        return
    answer = run_to_the_end(_whole(at, target, endpoint, asked, sampling, shown))
    if as_json:
        print_json(answer.to_json())
    else:
        click.echo(_told(answer.ids, answer.text, ids_only=ids))


async def _whole(
    at: str, target: Target, endpoint: str, prompt: str | Sequence[int], sampling: Sampling, key: str | None
) -> Generated:
    from tiercel.broker.client import EndpointClient

    if at:
        async with EndpointClient(at, key=key) as there:
            return await there.generate(endpoint, prompt, **sampling)
    async with open_client(target) as client:
        return await client.generate(endpoint, prompt, key=key, **sampling)


async def _parts(
    at: str, target: Target, endpoint: str, prompt: str | Sequence[int], sampling: Sampling, key: str | None
) -> AsyncGenerator[GeneratedPart]:
    from tiercel.broker.client import EndpointClient

    if at:
        async with EndpointClient(at, key=key) as there:
            async for part in there.generate_stream(endpoint, prompt, **sampling):
                yield part
        return
    async with open_client(target) as client:
        async for part in client.generate_stream(endpoint, prompt, key=key, **sampling):
            yield part


async def _show(parts: AsyncGenerator[GeneratedPart], *, as_json: bool, ids_only: bool) -> None:
    async with aclosing(parts):
        async for part in parts:
            if as_json:
                click.echo(json.dumps(part.to_json(), ensure_ascii=False))
                continue
            shown = _told(part.ids, part.text, ids_only=ids_only)
            click.echo(shown + (" " if shown and (ids_only or part.text is None) else ""), nl=bool(part.finish_reason))


def _told(ids: Sequence[int], text: str | None, *, ids_only: bool) -> str:
    return " ".join(map(str, ids)) if ids_only or text is None else clean(text)


def _ids_of(prompt: str) -> list[int]:
    try:
        return [int(each) for each in prompt.split(",")]
    except ValueError:
        fail(f"{prompt[:40]!r} is no list of ids; give whole numbers such as 1,2,3.", USAGE)
