"""What commands are declared by: a command with its examples, and the options that many of them share."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from pathlib import Path
from typing import Any

import click

from tiercel.broker.cli.completion import complete_active_job, complete_endpoint, complete_job
from tiercel.broker.cli.group import examples_text
from tiercel.broker.cli.session import Target

_ID = "The job's id, as 'tiercel ls' shows it, or the beginning of it."

state_dir_option = click.option(
    "--state-dir",
    metavar="DIR",
    type=click.Path(path_type=Path),
    envvar="TIERCEL_STATE_DIR",
    show_envvar=True,
    help="Folder that 'tiercel up' runs in.",
    show_default="~/.local/state/tiercel",
)
broker_option = click.option(
    "--broker", metavar="HOST:PORT", default="", help="The broker.", show_default="from the state directory"
)
_tenant_option = click.option(
    "--tenant",
    metavar="NAME",
    default="default",
    envvar="TIERCEL_TENANT",
    show_envvar=True,
    show_default=True,
    help="Whose token to use; the environment's TIERCEL_TOKEN or TIERCEL_TOKEN_FILE comes first.",
)
log_format_option = click.option(
    "--log-format",
    type=click.Choice(("text", "json")),
    default="text",
    envvar="TIERCEL_LOG_FORMAT",
    show_envvar=True,
    show_default=True,
    help="How lines of the logs are written; json is one object a line.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON with stable keys.")
job_argument = click.argument("job_id", metavar="JOB", help=_ID, shell_complete=complete_job)
active_job_argument = click.argument("job_id", metavar="JOB", help=_ID, shell_complete=complete_active_job)
endpoint_argument = click.argument(
    "endpoint", metavar="ENDPOINT", help="The endpoint's name.", shell_complete=complete_endpoint
)


class _Command(click.Command):
    """Errors of its options say whose they are, which click leaves out where an option lacks its value."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise


def command(*examples: str, **settings: bool) -> Callable[[Callable[..., None]], click.Command]:
    """Makes a command of a function, whose docstring is the help.

    Args:
        examples: Command lines, with which the help ends.
        settings: Of its context, as :class:`click.Context` takes them.
    """
    return click.command(cls=_Command, epilog=examples_text(*examples), context_settings=dict(settings))


def target_options(function: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that say which broker is meant and on whose behalf; the function gets them as ``target``."""

    def with_target(*args: Any, state_dir: Path | None, broker: str, tenant: str, **others: Any) -> None:
        function(*args, target=Target(state_dir, broker, tenant), **others)

    return state_dir_option(broker_option(_tenant_option(update_wrapper(with_target, function))))
