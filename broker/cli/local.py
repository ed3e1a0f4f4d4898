"""Commands about the broker on this machine: ``up`` and ``down``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tiercel.broker.cli.session import USAGE, StateDir, fail, run_to_the_end

_PORT = "0 for any free one, which a restart tries to get again."


def up(
    *,
    state_dir: StateDir = None,
    broker_port: Annotated[int, typer.Option(help=f"Port of the broker's gRPC services for tenants; {_PORT}")] = 0,
    nodes_port: Annotated[int, typer.Option(help=f"Port of the broker's gRPC service for agents; {_PORT}")] = 0,
    http_port: Annotated[int, typer.Option(help=f"Port for requests over HTTP; {_PORT}")] = 0,
    grpc_port: Annotated[int, typer.Option(help=f"Port for requests over gRPC; {_PORT}")] = 0,
    mqtt_port: Annotated[int, typer.Option(help=f"Port of the embedded MQTT broker; {_PORT}")] = 0,
    dashboard_port: Annotated[int, typer.Option(help=f"Port of the dashboard, over HTTP; {_PORT}")] = 0,
    mqtt_url: Annotated[str, typer.Option(help="MQTT broker to use instead, such as mqtt://127.0.0.1:1883.")] = "",
    policy: Annotated[
        str, typer.Option(help="How shares are decided: utility, tradl, fair ... (a wrong name lists all).")
    ] = "",
    tenant: Annotated[list[str] | None, typer.Option(help="A tenant to make if it is missing; repeatable.")] = None,
    runtime: Annotated[
        list[str] | None,
        typer.Option(help="process or docker, the preferred first; default: both, if an engine answers."),
    ] = None,
    node_id: Annotated[str, typer.Option(help="Name of this machine's node.")] = "local",
    cpu_cores: Annotated[float | None, typer.Option(help="Cores that jobs may use; all when left out.")] = None,
    accelerators: Annotated[
        str, typer.Option(help="auto for all there are (the default), none, or ids as nvidia-smi -L has them.")
    ] = "",
    listen: Annotated[
        str,
        typer.Option(
            help="Address of this machine where others reach the broker by TLS; 0.0.0.0 or :: for all of them."
        ),
    ] = "",
    listen_port: Annotated[int, typer.Option(help=f"Port there for tenants and joining machines; {_PORT}")] = 0,
    listen_nodes_port: Annotated[int, typer.Option(help=f"Port there for agents; {_PORT}")] = 0,
    listen_mqtt_port: Annotated[int, typer.Option(help=f"Port there of the embedded MQTT broker; {_PORT}")] = 0,
    listen_dashboard_port: Annotated[int, typer.Option(help=f"Port there of the dashboard; {_PORT}")] = 0,
    listen_name: Annotated[
        list[str] | None, typer.Option(help="A name or address by which others call this machine; repeatable.")
    ] = None,
    advertise: Annotated[
        str,
        typer.Option(
            help="Address of this machine at which others may ask its models; none for nobody.",
            show_default="the one of --listen",
        ),
    ] = "",
    tls_http_port: Annotated[int, typer.Option(help=f"Port there for requests over HTTP; {_PORT}")] = 0,
    tls_grpc_port: Annotated[int, typer.Option(help=f"Port there for requests over gRPC; {_PORT}")] = 0,
    tls_certificate: Annotated[
        Path | None, typer.Option(help="A certificate of your own for tenants, PEM; with --tls-key and --tls-ca.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its private key, PEM.")] = None,
    tls_ca: Annotated[Path | None, typer.Option(help="The certificate of the authority behind it, PEM.")] = None,
    oidc_issuer: Annotated[
        str, typer.Option(help="URL of the OpenID Connect provider at which people sign in; see people.toml.")
    ] = "",
    oidc_audience: Annotated[str, typer.Option(help="For whom its tokens must be: the client's id there.")] = "",
    oidc_algorithm: Annotated[
        list[str] | None,
        typer.Option(help="By which they may be signed; repeatable.", show_default="ES256 and RS256"),
    ] = None,
    artefacts: Annotated[
        str,
        typer.Option(
            help="Where copies of checkpoints outlive this machine: s3://BUCKET/PREFIX, or the path of a folder.",
            show_default="the state directory alone",
        ),
    ] = "",
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Run in the background; return once all of it answers.")
    ] = False,
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

        typer.echo(run_to_the_end(start_detached(options)))
        return
    # The server side (SQLAlchemy, the MQTT broker, gRPC) takes a second to import, which no other command needs.
    from tiercel.broker.cli.up.run import run_up

    run_to_the_end(run_up(options))


def down(*, state_dir: StateDir = None) -> None:
    """Stop what 'tiercel up' runs in a state directory, or has left behind."""
    from tiercel.broker.cli.up.stop import run_down
    from tiercel.broker.client.state_dir import default_state_dir

    stopped = run_to_the_end(run_down((state_dir or default_state_dir()).absolute()))
    typer.echo(f"Stopped: {', '.join(stopped)}." if stopped else "Nothing was running.")
