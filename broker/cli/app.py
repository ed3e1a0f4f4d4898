"""All commands together."""

from __future__ import annotations

import os

import click

from tiercel.broker.cli.group import Program, examples_text


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        import tiercel

        click.echo(f"tiercel {tiercel.__version__}")
        ctx.exit()


def _show_completion(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from tiercel.broker.cli.shell import completion_script

        click.echo(completion_script(ctx.command))
        ctx.exit()


def _install_completion(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from tiercel.broker.cli.shell import install_completion

        click.echo(f"Completion is installed in {install_completion(ctx.command)}; open another shell to have it.")
        ctx.exit()


@click.group(
    "tiercel",
    cls=Program,
    path="",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    epilog=examples_text("tiercel up --detach", "tiercel submit digits/", "tiercel watch"),
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print the version."
)
@click.option(
    "--install-completion",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_install_completion,
    help="Have your shell complete commands, options, ids and names.",
)
@click.option(
    "--show-completion",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_completion,
    help="Print what --install-completion would install.",
)
def app() -> None:
    """Train and serve models on the same few machines: ship at the first tier, keep training, hot-swap the better."""


def main() -> None:
    """Entry point of the ``tiercel`` command."""
    # gRPC's own log tells of each connection that ends; what matters of it is told in sentences.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    app(prog_name="tiercel")
