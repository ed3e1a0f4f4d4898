"""``tiercel up``."""

from __future__ import annotations

import asyncio
import logging
import logging.handlers
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from tiercel.broker.cli.up.addresses import read_earlier, write_addresses
from tiercel.broker.cli.up.agent import AGENT_COMMAND, AgentKeeper
from tiercel.broker.cli.up.announcement import of_broker
from tiercel.broker.cli.up.options import Places, UpOptions
from tiercel.broker.cli.up.packages import check_packages
from tiercel.broker.cli.up.ports import choose_port
from tiercel.broker.cli.up.signals import stop_on_signals
from tiercel.broker.server import Broker
from tiercel.broker.settings import BrokerSettings
from tiercel.broker.state_folder import refuse_state_dir
from tiercel.broker.state_lock import up_lock
from tiercel.broker.trust.encryption import address_for_others
from tiercel.broker.trust.own_node import OwnNode
from tiercel.core.addresses import require_host
from tiercel.core.errors import InvalidSpecError, TiercelError, UnavailableError
from tiercel.core.locks import is_held
from tiercel.core.logs import LogFormat, configure
from tiercel.core.tracing import open_tracing

_LOGGER = logging.getLogger(__name__)
_LOG_BYTES = 10 * 1024 * 1024
_LOOK_SECONDS = 2.0


async def run_up(options: UpOptions, agent_command: tuple[str, ...] = AGENT_COMMAND, *, console: bool = True) -> None:
    """Run a broker and see to its agent until SIGINT or SIGTERM, then stop both.

    If a part of the broker fails for good, the agent and what it runs go on, for the next ``up`` to take over.

    Args:
        options: What was asked for.
        agent_command: How to start an agent.
        console: Whether warnings go to standard error too, besides the log.

    Raises:
        UnavailableError: Another ``up`` runs there, a port is in use, or packages are missing.
        InvalidSpecError: An option or a setting of the environment is wrong.
    """
    places = Places(options.state_dir)
    if places.identity.exists():
        raise refuse_state_dir(places.state_dir, "this machine joined a broker elsewhere from it")
    check_packages(options.runtimes, _tell)
    with up_lock(places.up_lock):
        _configure_logging(places, options.log_format, console=console)
        earlier = read_earlier(places.addresses)
        settings = _broker_settings(options, earlier)
        options = replace(options, advertise=_advertised(options, settings.listen))
        _check_serving_ports(options, places)
        keeper = AgentKeeper(options, _tell, agent_command, earlier=earlier)
        stopping = asyncio.Event()
        stop_on_signals(stopping)
        async with Broker(settings, open_tracing("tiercel-broker", os.environ)) as broker:
            # What the last run knew of the inference server stays out: the file is complete only once it answers.
            _write_first_addresses(places, _broker_addresses(broker))
            own_node = _own_node(broker, options, places)
            await _supervise(broker, keeper, places, own_node, stopping)
            click.echo("Stopping.", err=True)
        # The broker is gone first, so that it does not take the end of runs for their failure.
        await keeper.stop()


async def _supervise(
    broker: Broker, keeper: AgentKeeper, places: Places, own_node: OwnNode | None, stopping: asyncio.Event
) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(keeper.keep(), name="agent keeper"),
                group.create_task(_announce(broker, keeper, places), name="announcement"),
                group.create_task(broker.wait_failed(), name="broker"),
            ]
            if own_node is not None:
                tasks.append(group.create_task(own_node.keep_fresh(), name="own certificate"))
            await stopping.wait()
            for task in tasks:
                task.cancel()
    except ExceptionGroup as failures:
        raise _sentence(failures.exceptions[0], places) from failures


def _sentence(error: Exception, places: Places) -> TiercelError:
    if isinstance(error, TiercelError):
        return error
    _LOGGER.error("a part of the broker failed for good", exc_info=error)
    return UnavailableError(
        f"A part of the broker failed for good ({type(error).__name__}: {error}); trainings and the inference server "
        f"go on. See {places.broker_log}, then start 'tiercel up' again."
    )


async def _announce(broker: Broker, keeper: AgentKeeper, places: Places) -> None:
    """Write where the inference server of our own agent answers, whenever that changes; say once that all is up."""
    known: dict[str, str] = {}
    while True:
        serving = await broker.wait_serving(lambda: keeper.node_id)
        addresses = {**_broker_addresses(broker), **serving}
        if addresses != known and _can_write(places.addresses, addresses):
            if not known:
                click.echo(of_broker(keeper.node_id, addresses, places.state_dir))
            known = addresses
        await asyncio.sleep(_LOOK_SECONDS)


def _write_first_addresses(places: Places, addresses: dict[str, str]) -> None:
    try:
        write_addresses(places.addresses, addresses)
    except OSError as error:  # nobody would find the broker
        raise refuse_state_dir(places.state_dir, error.strerror or str(error)) from error


def _can_write(path: Path, addresses: dict[str, str]) -> bool:
    try:
        write_addresses(path, addresses)
    except OSError as error:  # a full disk must not end the broker: it is tried again
        _LOGGER.warning("%s cannot be written: %s", path, error)
        return False
    return True


def _broker_addresses(broker: Broker) -> dict[str, str]:
    return {**broker.addresses, "broker_pid": str(os.getpid())}


def _advertised(options: UpOptions, listen: str) -> str:
    """Where others may ask the models of the node here; empty for nowhere."""
    if not listen and options.advertise not in {"", "none"}:
        raise InvalidSpecError(
            "advertise: nobody else reaches this broker, which vouches for who asks; give --listen as well, or leave "
            "--advertise out",
            field="advertise",
        )
    if not listen or options.advertise == "none":
        return ""
    return require_host("advertise", options.advertise) if options.advertise else address_for_others(listen)


def _own_node(broker: Broker, options: UpOptions, places: Places) -> OwnNode | None:
    """Who keeps the certificates of the node here, which are in place; None where it needs none."""
    if not options.advertise or broker.authority is None:
        return None
    names = (*options.listen_names, options.advertise)
    own = OwnNode(broker.authority, options.node_id, names, places.serving_identity, places.authority, time.time)
    try:
        own.write()
    except OSError as error:
        raise refuse_state_dir(places.state_dir, error.strerror or str(error)) from error
    return own


def _broker_settings(options: UpOptions, earlier: dict[str, str]) -> BrokerSettings:
    values: dict[str, Any] = {
        "state_dir": options.state_dir,
        "broker_port": choose_port("--broker-port", options.broker_port, earlier.get("broker", "")),
        "nodes_port": choose_port("--nodes-port", options.nodes_port, earlier.get("nodes", "")),
        "dashboard_port": choose_port("--dashboard-port", options.dashboard_port, earlier.get("dashboard", "")),
        "tenants": options.tenants,
        **_encrypted_settings(options, earlier),
    }
    if options.policy:
        values["policy"] = options.policy
    if options.artefacts:
        values["artefacts"] = options.artefacts
    if options.mqtt_url:
        values["mqtt_url"] = options.mqtt_url
    else:
        values["mqtt_port"] = choose_port("--mqtt-port", options.mqtt_port, earlier.get("mqtt", ""))
    try:
        return BrokerSettings(**values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"]))
        message = f"{field}: {first['msg']}; correct the option or the variable TIERCEL_{field.upper()}."
        raise InvalidSpecError(message, field=field) from None


def _encrypted_settings(options: UpOptions, earlier: dict[str, str]) -> dict[str, Any]:
    """What is given comes first; what is not may stand in the environment."""
    values: dict[str, Any] = {
        "listen": options.listen,
        "listen_names": options.listen_names if options.listen else (),
        "oidc_issuer": options.oidc_issuer,
        "oidc_audience": options.oidc_audience,
        "oidc_algorithms": options.oidc_algorithms,
        "tls_certificate": options.tls_certificate,
        "tls_key": options.tls_key,
        "tls_ca": options.tls_ca,
    }
    if options.listen:
        ports = [
            ("listen_port", "broker_tls"),
            ("listen_nodes_port", "nodes_tls"),
            ("listen_dashboard_port", "dashboard_tls"),
        ]
        if not options.mqtt_url:
            ports.append(("listen_mqtt_port", "mqtt_tls"))
        for name, key in ports:
            flag = f"--{name.replace('_', '-')}"
            values[name] = choose_port(flag, getattr(options, name), earlier.get(key, ""), options.listen)
    return {name: value for name, value in values.items() if value}


def _check_serving_ports(options: UpOptions, places: Places) -> None:
    # A port that our own inference server holds from an earlier run is not in anybody's way.
    if not is_held(places.agent_lock) and not is_held(places.serving_lock):
        choose_port("--http-port", options.http_port, "")
        choose_port("--grpc-port", options.grpc_port, "")


def _configure_logging(places: Places, log_format: LogFormat, *, console: bool) -> None:
    # Else each line that finds no room in the file becomes a page on the terminal.
    logging.raiseExceptions = False
    file = logging.handlers.RotatingFileHandler(places.broker_log, maxBytes=_LOG_BYTES, backupCount=1, encoding="utf-8")
    handlers: list[logging.Handler] = [file]
    if console:
        handlers.append(logging.StreamHandler())
        handlers[-1].setLevel(logging.WARNING)
    configure(log_format, handlers)


def _tell(sentence: str) -> None:
    click.echo(sentence, err=True)
