"""The agent's command: ``python -m tiercel.trainer_agent``."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
from pydantic import ValidationError

from tiercel.core.errors import SetupError
from tiercel.core.locks import Lock, LockHeldError, take
from tiercel.core.logs import configure
from tiercel.core.trust.certificates import CertificateError, Identity, listen_names_of
from tiercel.trainer_agent.accelerators import detect as accelerators
from tiercel.trainer_agent.accelerators.serving_reserve import can_serve_on_accelerators, reserve
from tiercel.trainer_agent.accelerators.watch import AcceleratorWatch
from tiercel.trainer_agent.agent import Agent
from tiercel.trainer_agent.connection.address import DialError, LocalBroker, token_from_file
from tiercel.trainer_agent.connection.dialling import Dialler, JoinedDialler, LocalDialler
from tiercel.trainer_agent.data.cache import DataLimits
from tiercel.trainer_agent.data.sources import AllowedSources
from tiercel.trainer_agent.disk.job_retention import Retention
from tiercel.trainer_agent.disk.outputs import OutputLimits
from tiercel.trainer_agent.disk.watch import DiskLimits
from tiercel.trainer_agent.environments.environments import EnvironmentLimits
from tiercel.trainer_agent.environments.index import PackageIndex
from tiercel.trainer_agent.fence.keeper import AGENT_LOCK
from tiercel.trainer_agent.inference_server.routes import machine_token
from tiercel.trainer_agent.inference_server.server import ServingPorts
from tiercel.trainer_agent.limits import cpu, detect
from tiercel.trainer_agent.limits.contract import Limits
from tiercel.trainer_agent.limits.cooperative import Cooperative
from tiercel.trainer_agent.limits.cpu_priority import CpuPriority
from tiercel.trainer_agent.limits.mps import find_mps
from tiercel.trainer_agent.limits.thread_scheduling import may_take_back
from tiercel.trainer_agent.metrics.door import MetricsPlace, metrics_door
from tiercel.trainer_agent.parts import AgentParts
from tiercel.trainer_agent.runtimes.containers.runtime import DockerRuntime
from tiercel.trainer_agent.runtimes.contract import Runtime
from tiercel.trainer_agent.runtimes.processes.runtime import ProcessRuntime
from tiercel.trainer_agent.runtimes.processes.templates import Templates, TemplateSettings
from tiercel.trainer_agent.settings import AgentSettings
from tiercel.trainer_agent.supervision import Supervisor

_log = logging.getLogger(__name__)


def settings_from(arguments: Sequence[str]) -> AgentSettings:
    """Read flags, and the environment for what they leave out.

    Raises:
        SetupError: Something is missing or wrong; names the flag.
    """
    parser = argparse.ArgumentParser(prog="tiercel-agent", description="The agent of a Tiercel node.")
    for name, field in AgentSettings.model_fields.items():
        if name == "labels":
            parser.add_argument("--label", dest=name, action="append", metavar="KEY=VALUE", help=field.description)
        else:
            parser.add_argument(f"--{name.replace('_', '-')}", help=field.description)
    given: dict[str, Any] = {
        key: value for key, value in vars(parser.parse_args(arguments)).items() if value is not None
    }
    try:
        return AgentSettings(**given)
    except ValidationError as error:
        problems = [f"{_flag(problem['loc'])}{problem['msg']}" for problem in error.errors()]
        raise SetupError("The agent cannot start: " + "; ".join(problems) + ".") from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Run an agent until SIGTERM or SIGINT. Returns the exit code."""
    try:
        settings = settings_from(sys.argv[1:] if arguments is None else arguments)
        configure(settings.log_format, node=settings.node_id)
        cpu.stay_on(settings.cpus)
        settings.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _lock(settings):
            asyncio.run(run_agent(settings))
    except SetupError as error:
        sys.stderr.write(f"{error.message}\n")
        return 2
    except OSError as error:
        sys.stderr.write(
            f"The agent cannot use its state directory {settings.state_dir}: {error}. Make room there, or "
            "give another one that it may write to (--state-dir), and start it again.\n"
        )
        return 2
    return 0


def _lock(settings: AgentSettings) -> Lock:
    try:
        return take(settings.state_dir / AGENT_LOCK, settings.node_id)
    except LockHeldError as error:
        raise SetupError(
            f"An agent with pid {error.pid or 'unknown'} is running on {settings.state_dir} already (it holds "
            f"{AGENT_LOCK}). Stop it first, or choose another --state-dir."
        ) from None


async def run_agent(settings: AgentSettings) -> None:
    """Put an agent together and run it until SIGTERM or SIGINT.

    Raises:
        SetupError: It cannot start like this; says what to do.
    """
    leave = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, leave.set)
    found = cpu.detect()
    capacity = replace(
        found,
        cpu_cores=settings.cpu_cores or found.cpu_cores,
        memory_bytes=settings.memory_bytes or found.memory_bytes,
    )
    async with (
        _limits(settings, capacity.cpu_cores) as limits,
        _runtimes(settings, limits, _cpu_priority(settings, limits, capacity.cpu_cores)) as runtimes,
        _accelerators(settings) as watch,
    ):
        parts = _parts(settings, capacity, limits, runtimes, watch)
        _log.info("node %s runs jobs with %s and enforces shares by %s", settings.node_id, [*runtimes], limits.name)
        async with aiohttp.ClientSession() as session:
            await _run_to_the_end(parts, session, leave, settings.metrics_place)


def _parts(
    settings: AgentSettings,
    capacity: cpu.Capacity,
    limits: Limits,
    runtimes: dict[str, Runtime],
    watch: AcceleratorWatch,
) -> AgentParts:
    return AgentParts(
        node_id=settings.node_id,
        state_dir=settings.state_dir.resolve(),
        capacity=capacity,
        limits=limits,
        runtimes=runtimes,
        dialler=_dialler(settings, _broker_address(settings, limits)),
        is_joined=settings.identity_file is not None,
        machine_token=_machine_token(settings),
        serving_door=_serving_door(settings),
        ports=ServingPorts(settings.http_port, settings.grpc_port, settings.tls_http_port, settings.tls_grpc_port),
        retention=Retention(settings.keep_ended_jobs, settings.keep_ended_seconds),
        disk=DiskLimits(settings.job_disk_bytes, settings.disk_reserve_bytes),
        data=DataLimits(settings.data_cache_bytes, settings.disk_reserve_bytes, AllowedSources(settings.data_sources)),
        project_cache_bytes=settings.project_cache_bytes,
        labels=settings.labels,
        log_format=settings.log_format,
        model_bytes=settings.model_bytes,
        outputs=OutputLimits(
            file_bytes=settings.output_file_bytes,
            total_bytes=settings.output_bytes,
            reserve_bytes=settings.disk_reserve_bytes,
        ),
        package_index=PackageIndex(
            settings.package_index,
            settings.package_folder,
            offline=settings.package_offline,
            sdists=settings.package_sdists,
        ),
        environments=EnvironmentLimits(
            settings.environments_bytes, settings.disk_reserve_bytes, settings.environment_seconds
        ),
        checkpoint_copy_bytes=settings.checkpoint_copy_bytes,
        accelerators=watch,
        serving_reserve=reserve(
            watch.listed, settings.serving_accelerator_memory, can_serve=can_serve_on_accelerators()
        ),
        engine=(settings.docker_host, settings.instance) if DockerRuntime.name in runtimes else None,
    )


async def _run_to_the_end(
    parts: AgentParts, session: aiohttp.ClientSession, leave: asyncio.Event, metrics: MetricsPlace | None
) -> None:
    try:
        async with Supervisor() as tasks:
            agent = Agent(parts, tasks, session)
            async with nullcontext() if metrics is None else metrics_door(metrics, agent.metrics.families, tasks):
                await agent.run(leave)
            tasks.cancel_all()
    except ExceptionGroup as group:
        # The message for people, if that is what ended it.
        setup, rest = group.split(SetupError)
        if setup is not None and rest is None:
            raise setup.exceptions[0] from None
        raise


@asynccontextmanager
async def _limits(settings: AgentSettings, cpu_cores: float) -> AsyncIterator[Limits]:
    limits = await asyncio.to_thread(detect.detect, settings.instance, cpu_cores, settings.training_weight)
    try:
        try:
            limits.protect(os.getpid())
        except OSError as error:
            _log.warning("the agent is not protected from being starved: %s", error)
        yield limits
    finally:
        await asyncio.to_thread(limits.close)


def _cpu_priority(settings: AgentSettings, limits: Limits, cpu_cores: float) -> CpuPriority:
    enforced = limits.name != Cooperative.name and may_take_back()
    return CpuPriority(settings.time_slice_seconds, cpu_cores if enforced else 0.0)


@asynccontextmanager
async def _runtimes(
    settings: AgentSettings, limits: Limits, priority: CpuPriority
) -> AsyncIterator[dict[str, Runtime]]:
    runtimes: dict[str, Runtime] = {}
    try:
        for name in settings.runtimes or ("process",):
            if name == "process":
                runtimes[name] = _process(settings, limits, priority)
            else:
                runtimes[name] = await _docker(settings, limits, priority)
        if not settings.runtimes:
            with contextlib.suppress(SetupError):  # nobody asked for it
                runtimes["docker"] = await _docker(settings, limits, priority)
        yield runtimes
    finally:
        for runtime in runtimes.values():
            await runtime.close()


@asynccontextmanager
async def _accelerators(settings: AgentSettings) -> AsyncIterator[AcceleratorWatch]:
    watch = AcceleratorWatch()
    try:
        await watch.open(lambda: accelerators.detect(settings.accelerators))
        yield watch
    finally:
        await watch.close()


def _process(settings: AgentSettings, limits: Limits, priority: CpuPriority) -> ProcessRuntime:
    mps = find_mps(os.environ, wanted=settings.mps)
    if mps is not None:
        _log.info("training uses accelerators through MPS at %s", mps.pipe_directory)
    state = settings.state_dir.resolve()
    templates = None
    if settings.warm_templates:
        templates = Templates(state / "imports", limits, _warm(settings))
    return ProcessRuntime(state / "minders", limits, priority, mps, templates)


async def _docker(settings: AgentSettings, limits: Limits, priority: CpuPriority) -> DockerRuntime:
    runtime = await DockerRuntime.connect(
        settings.docker_host,
        node_id=settings.node_id,
        instance=settings.instance,
        image=settings.docker_image,
        cgroup_parent=limits.container_parent,
        priority=priority,
        cpus=settings.cpus,
    )
    if settings.warm_templates:
        runtime.start_warm(settings.state_dir.resolve() / "imports", _warm(settings))
    return runtime


def _warm(settings: AgentSettings) -> TemplateSettings:
    return TemplateSettings(settings.warm_templates, settings.warm_idle_seconds)


def _broker_address(settings: AgentSettings, limits: Limits) -> Callable[[], str]:
    if settings.addresses_file is None:
        return lambda: settings.broker
    return LocalBroker(settings.addresses_file, limits.protect).address


def _dialler(settings: AgentSettings, address: Callable[[], str]) -> Dialler:
    token_file = settings.token_file
    if token_file is not None:
        return LocalDialler(address, lambda: token_from_file(token_file))
    joined = JoinedDialler(address, settings.identity_file or Path())
    try:
        node_id = joined.node_id()
    except DialError as error:
        raise SetupError(error.message) from error
    if node_id != settings.node_id:
        raise SetupError(
            f"--identity-file is that of node {node_id!r}, and --node-id says {settings.node_id!r}: give that name, or "
            "join again with this one."
        )
    return joined


def _machine_token(settings: AgentSettings) -> Callable[[], str]:
    file = settings.token_file
    return (lambda: "") if file is None else (lambda: machine_token(token_from_file(file)))


def _serving_door(settings: AgentSettings) -> dict[str, str]:
    identity = settings.own_identity
    listen_names = dict.fromkeys((*settings.listen_names, *_certified_names(identity)))
    names = {"TIERCEL_SERVING_ALLOWED_HOSTS": ",".join(listen_names)} if listen_names else {}
    if identity is None or not settings.advertise:
        return names
    return {
        **names,
        "TIERCEL_SERVING_TLS_HOST": settings.advertise,
        "TIERCEL_SERVING_TLS_IDENTITY": str(identity.resolve()),
        "TIERCEL_SERVING_TLS_AUTHORITY": str(identity.with_name("authority.pem").resolve()),
    }


def _certified_names(identity: Path | None) -> tuple[str, ...]:
    """What the operator lets others call this machine; none while there is no certificate."""
    try:
        return listen_names_of(Identity.from_file(identity.read_bytes()).certificate) if identity is not None else ()
    except (OSError, CertificateError):
        return ()


def _flag(location: tuple[int | str, ...]) -> str:
    return f"--{str(location[0]).replace('_', '-')}: " if location else ""
