"""All commands together."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from tiercel.broker.cli.audit import audit
from tiercel.broker.cli.authority import authority
from tiercel.broker.cli.cluster import nodes, print_version, version
from tiercel.broker.cli.dashboard import dashboard
from tiercel.broker.cli.disk import du, gc
from tiercel.broker.cli.endpoints import endpoints
from tiercel.broker.cli.files import files
from tiercel.broker.cli.infer import infer
from tiercel.broker.cli.jobs import cancel, explain, logs, ls, priority, resume, retry, show, suspend
from tiercel.broker.cli.keys import keys
from tiercel.broker.cli.lineage import lineage
from tiercel.broker.cli.local import down, up
from tiercel.broker.cli.login.command import login
from tiercel.broker.cli.maintenance import drain, undrain
from tiercel.broker.cli.membership import join
from tiercel.broker.cli.mqtt import mqtt
from tiercel.broker.cli.node_data import node
from tiercel.broker.cli.proxy.command import proxy
from tiercel.broker.cli.secrets import secrets
from tiercel.broker.cli.status import status
from tiercel.broker.cli.submit import submit
from tiercel.broker.cli.tokens import tokens
from tiercel.broker.cli.versions import promote, rollback
from tiercel.broker.cli.watch import watch

app = typer.Typer(
    name="tiercel",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    # A traceback with local variables could show a token.
    pretty_exceptions_enable=False,
)
for command in (
    up,
    down,
    join,
    login,
    submit,
    ls,
    show,
    watch,
    logs,
    files,
    cancel,
    suspend,
    resume,
    retry,
    explain,
    nodes,
    status,
    dashboard,
    promote,
    rollback,
    lineage,
    du,
    gc,
    audit,
    infer,
    version,
):
    app.command()(command)
# Or a number below 0 would be taken for an option.
app.command(context_settings={"ignore_unknown_options": True})(priority)
app.add_typer(endpoints, name="endpoints")
app.add_typer(secrets, name="secret")
node.command()(drain)
node.command()(undrain)
app.add_typer(keys, name="key")
app.add_typer(node, name="node")
app.add_typer(mqtt, name="mqtt")
app.add_typer(tokens, name="token")
app.add_typer(proxy, name="proxy")
app.add_typer(authority, name="authority")


@app.callback()
def _options(
    *,
    _: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=print_version, help="Print the version.")
    ] = False,
) -> None:
    """Train and serve models on the same few machines: ship at the first tier, keep training, hot-swap the better."""


def main() -> None:
    """Entry point of the ``tiercel`` command."""
    # gRPC's own log tells of each connection that ends; what matters of it is told in sentences.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    app(prog_name="tiercel")
