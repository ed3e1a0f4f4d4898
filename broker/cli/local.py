"""Commands about the broker on this machine: ``up`` and ``down``."""

from __future__ import annotations

from pathlib import Path

import click

from tiercel.broker.cli.exit_codes import USAGE
from tiercel.broker.cli.parameters import command, state_dir_option
from tiercel.broker.cli.session import fail, run_to_the_end

_PORT = "0 for any free one, which a restart tries to get again."


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
@click.option("--tenant", multiple=True, help="A tenant to make if it is missing; repeatable.")
@click.option(
    "--runtime", multiple=True, help="process or docker, the preferred first; default: both, if an engine answers."
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
@click.option("--listen-name", multiple=True, help="A name or address by which others call this machine; repeatable.")
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
    type=click.Path(path_type=Path),
    help="A certificate of your own for tenants, PEM; with --tls-key and --tls-ca.",
)
@click.option("--tls-key", type=click.Path(path_type=Path), help="Its private key, PEM.")
@click.option("--tls-ca", type=click.Path(path_type=Path), help="The certificate of the authority behind it, PEM.")
@click.option(
    "--oidc-issuer", default="", help="URL of the OpenID Connect provider at which people sign in; see people.toml."
)
@click.option("--oidc-audience", default="", help="For whom its tokens must be: the client's id there.")
@click.option(
    "--oidc-algorithm", multiple=True, help="By which they may be signed; repeatable.", show_default="ES256 and RS256"
)
@click.option(
    "--artefacts",
    default="",
    help="Where copies of checkpoints outlive this machine: s3://BUCKET/PREFIX, or the path of a folder.",
    show_default="the state directory alone",
)
@click.option("--detach", "-d", is_flag=True, help="Run in the background; return once all of it answers.")
def up(
    *,
    state_dir: Path | None,
    broker_port: int,
    nodes_port: int,
    http_port: int,
    grpc_port: int,
    mqtt_port: int,
    dashboard_port: int,
    mqtt_url: str,
    policy: str,
    tenant: tuple[str, ...],
    runtime: tuple[str, ...],
    node_id: str,
    cpu_cores: float | None,
    accelerators: str,
    listen: str,
    listen_port: int,
    listen_nodes_port: int,
    listen_mqtt_port: int,
    listen_dashboard_port: int,
    listen_name: tuple[str, ...],
    advertise: str,
    tls_http_port: int,
    tls_grpc_port: int,
    tls_certificate: Path | None,
    tls_key: Path | None,
    tls_ca: Path | None,
    oidc_issuer: str,
    oidc_audience: str,
    oidc_algorithm: tuple[str, ...],
    artefacts: str,
    detach: bool,
) -> None:
    """Run a broker here, with an agent and an inference server beside it, until Ctrl-C or 'tiercel down'.

    With --detach closing the terminal does not end it.
    If it is killed, agent, inference server and trainings go on,
    and the next 'up' takes them over.
    """
    if mqtt_url and (mqtt_port or listen_mqtt_port):
        fail("Give --mqtt-url for an MQTT broker that runs, or a port for the embedded one, not both.", USAGE)
    from tiercel.broker.cli.up.options import UpOptions
    from tiercel.broker.client.state_dir import default_state_dir

    options = UpOptions(
        state_dir=(state_dir or default_state_dir()).absolute(),
        broker_port=broker_port,
        nodes_port=nodes_port,
        http_port=http_port,
        grpc_port=grpc_port,
        mqtt_port=mqtt_port,
        dashboard_port=dashboard_port,
        mqtt_url=mqtt_url,
        policy=policy,
        tenants=tuple(dict.fromkeys(["default", *(tenant or [])])),
        runtimes=tuple(runtime or ()),
        node_id=node_id,
        cpu_cores=cpu_cores,
        accelerators=accelerators,
        listen=listen,
        listen_port=listen_port,
        listen_nodes_port=listen_nodes_port,
        listen_mqtt_port=listen_mqtt_port,
        listen_dashboard_port=listen_dashboard_port,
        listen_names=tuple(listen_name or ()),
        advertise=advertise,
        tls_http_port=tls_http_port,
        tls_grpc_port=tls_grpc_port,
        oidc_issuer=oidc_issuer,
        oidc_audience=oidc_audience,
        oidc_algorithms=tuple(oidc_algorithm or ()),
        tls_certificate=tls_certificate and tls_certificate.absolute(),
        tls_key=tls_key and tls_key.absolute(),
        tls_ca=tls_ca and tls_ca.absolute(),
        artefacts=artefacts,
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
