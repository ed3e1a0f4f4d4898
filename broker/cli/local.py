"""Commands about the broker on this machine: ``up`` and ``down``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tiercel.broker.cli.exit_codes import USAGE
from tiercel.broker.cli.parameters import command, log_format_option, state_dir_option
from tiercel.broker.cli.session import fail, run_to_the_end

_PORT = "0 for any free one, which a restart tries to get again."
_FILE = click.Path(path_type=Path)


def _absolute(_context: click.Context, _option: click.Parameter, path: Path | None) -> Path | None:
    return path and path.absolute()


@command("tiercel up --detach", "tiercel up --listen 0.0.0.0 --listen-name broker.example.com")
@state_dir_option
@click.option("--broker-port", type=int, default=0, help=f"Port of the broker's gRPC services for tenants; {_PORT}")
@click.option("--nodes-port", type=int, default=0, help=f"Port of the broker's gRPC service for agents; {_PORT}")
@click.option("--http-port", type=int, default=0, help=f"Port for requests over HTTP; {_PORT}")
@click.option("--grpc-port", type=int, default=0, help=f"Port for requests over gRPC; {_PORT}")
@click.option("--mqtt-port", type=int, default=0, help=f"Port of the embedded MQTT broker; {_PORT}")
@click.option("--dashboard-port", type=int, default=0, help=f"Port of the dashboard, over HTTP; {_PORT}")
@click.option("--mqtt-url", default="", help="MQTT broker to use instead, such as mqtt://127.0.0.1:1883.")
@click.option("--policy", default="", help="How shares are decided: utility, tradl, fair ... (a wrong name lists all).")
@click.option("--tenant", "tenants", multiple=True, help="A tenant to make if it is missing; repeatable.")
@click.option(
    "--runtime",
    "runtimes",
    multiple=True,
    help="process or docker, the preferred first; default: both, if an engine answers.",
)
@click.option("--node-id", default="local", show_default=True, help="Name of this machine's node.")
@click.option("--cpu-cores", type=float, help="Cores that jobs may use; all when left out.")
@click.option(
    "--accelerators", default="", help="auto for all there are (the default), none, or ids as nvidia-smi -L has them."
)
@click.option(
    "--listen",
    default="",
    help="Address of this machine where others reach the broker by TLS; 0.0.0.0 or :: for all of them.",
)
@click.option("--listen-port", type=int, default=0, help=f"Port there for tenants and joining machines; {_PORT}")
@click.option("--listen-nodes-port", type=int, default=0, help=f"Port there for agents; {_PORT}")
@click.option("--listen-mqtt-port", type=int, default=0, help=f"Port there of the embedded MQTT broker; {_PORT}")
@click.option("--listen-dashboard-port", type=int, default=0, help=f"Port there of the dashboard; {_PORT}")
@click.option(
    "--listen-name",
    "listen_names",
    multiple=True,
    help="A name or address by which others call this machine; repeatable.",
)
@click.option(
    "--advertise",
    default="",
    help="Address of this machine at which others may ask its models; none for nobody.",
    show_default="the one of --listen",
)
@click.option("--tls-http-port", type=int, default=0, help=f"Port there for requests over HTTP; {_PORT}")
@click.option("--tls-grpc-port", type=int, default=0, help=f"Port there for requests over gRPC; {_PORT}")
@click.option(
    "--tls-certificate",
    type=_FILE,
    callback=_absolute,
    help="A certificate of your own for tenants, PEM; with --tls-key and --tls-ca.",
)
@click.option("--tls-key", type=_FILE, callback=_absolute, help="Its private key, PEM.")
@click.option("--tls-ca", type=_FILE, callback=_absolute, help="The certificate of the authority behind it, PEM.")
@click.option(
    "--oidc-issuer",
    multiple=True,
    help="URL of the OpenID Connect provider at which people sign in; repeatable, 8 at most; see people.toml.",
)
@click.option(
    "--oidc-audience",
    multiple=True,
    help="For whom its tokens must be: the client's id there; of several providers one for all, or one for each.",
)
@click.option(
    "--oidc-algorithm",
    "oidc_algorithms",
    multiple=True,
    help="By which they may be signed; repeatable.",
    show_default="ES256 and RS256",
)
@click.option(
    "--artefacts",
    default="",
    help="Where copies of checkpoints outlive this machine: s3://BUCKET/PREFIX, or the path of a folder.",
    show_default="the state directory alone",
)
@log_format_option
@click.option("--detach", "-d", is_flag=True, help="Run in the background; return once all of it answers.")
def up(*, state_dir: Path | None, tenants: tuple[str, ...], detach: bool, **asked: Any) -> None:
    """Run a broker here, with an agent and an inference server beside it, until Ctrl-C or 'tiercel down'.

    With --detach closing the terminal does not end it.
    If it is killed, agent, inference server and trainings go on,
    and the next 'up' takes them over.
    """
    if asked["mqtt_url"] and (asked["mqtt_port"] or asked["listen_mqtt_port"]):
        fail("Give --mqtt-url for an MQTT broker that runs, or a port for the embedded one, not both.", USAGE)
    from tiercel.broker.cli.up.options import UpOptions
    from tiercel.broker.client.state_dir import default_state_dir

    # The other options bear the names of its fields.
    options = UpOptions(
        state_dir=(state_dir or default_state_dir()).absolute(),
        tenants=tuple(dict.fromkeys(["default", *tenants])),
        **asked,
    )
    if detach:
        from tiercel.broker.cli.up.detached import start_detached

        click.echo(run_to_the_end(start_detached(options)))
        return
    # The server side (SQLAlchemy, the MQTT broker, gRPC) takes a second to import, which no other command needs.
    from tiercel.broker.cli.up.run import run_up

    run_to_the_end(run_up(options))


@command("tiercel down")
@state_dir_option
def down(*, state_dir: Path | None) -> None:
    """Stop what 'tiercel up' runs in a state directory, or has left behind."""
    from tiercel.broker.cli.up.stop import run_down
    from tiercel.broker.client.state_dir import default_state_dir

    stopped = run_to_the_end(run_down((state_dir or default_state_dir()).absolute()))
    click.echo(f"Stopped: {', '.join(stopped)}." if stopped else "Nothing was running.")
