"""Sees to it that an agent runs: adopts a living one, starts one if there is none, starts it again if it dies."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tiercel.broker.cli.up.addresses import read_earlier
from tiercel.broker.cli.up.options import NodeOptions, Places
from tiercel.broker.cli.up.ports import choose_port
from tiercel.broker.cli.up.processes import find_holder, stop_holder, stop_process, wait_exit
from tiercel.core.backoff import Backoff
from tiercel.core.errors import UnavailableError
from tiercel.core.locks import is_held, read_name

AGENT_COMMAND = (sys.executable, "-P", "-m", "tiercel.trainer_agent")
# The agent runs other people's code: what is not for it is not in its environment.
_SECRETS = frozenset(
    f"TIERCEL_{name}"
    for name in (
        "TOKEN",
        "TOKEN_FILE",
        "OPERATOR_TOKEN",
        "JOIN_TOKEN",
        "KEY",
        "MQTT_USERNAME",
        "MQTT_PASSWORD",
    )
)
# The agent's exit code for what no second attempt can mend, such as a container engine that is not there.
_CANNOT_START = 2
_LOG_BYTES = 10 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class AgentPatience:
    """How an agent that ends is dealt with."""

    backoff: Backoff = field(default_factory=lambda: Backoff(0.5, 30.0))  # pauses before it is started again
    steady_seconds: float = 30.0  # an agent that lived this long did not fail in a row with the one before
    stop_seconds: float = 45.0  # how long it may take to stop its runs and the inference server


class AgentKeeper:
    """Keeps one agent running in a state directory.

    Args:
        tell: Says a sentence to the user.
        command: How to start an agent; its options are appended.
        earlier: Where things listened the last time, for getting the same ports again.

    Attributes:
        node_id: The agent's node; that of an agent that is taken over is what it was started with.
    """

    def __init__(
        self,
        options: NodeOptions,
        tell: Callable[[str], None],
        command: tuple[str, ...] = AGENT_COMMAND,
        patience: AgentPatience | None = None,
        earlier: Mapping[str, str] | None = None,
    ) -> None:
        self._options = options
        self._places = Places(options.state_dir)
        self._tell = tell
        self._command = command
        self._patience = patience or AgentPatience()
        self._earlier = dict(earlier or {})
        self.node_id = options.node_id
        # pidfd of the agent that we started, while it lives.
        self._started: int | None = None

    async def keep(self) -> None:
        """Run until cancelled; the agent lives on.

        Raises:
            UnavailableError: The first agent cannot start like this, and says why.
        """
        failures = 0
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            code, ending = await self._wait_one()
            if failures == 0 and code == _CANNOT_START and not is_held(self._places.agent_lock):
                raise UnavailableError(f"The agent cannot start: {self._last_words()}")
            failures = 1 if clock() - began > self._patience.steady_seconds else failures + 1
            pause = self._patience.backoff.seconds(failures)
            self._tell(f"The agent {ending}; it is started again in {pause:.1f} s. See {self._places.agent_log}.")
            await asyncio.sleep(pause)

    async def stop(self) -> None:
        """Stop the agent with all that it runs; only after :meth:`keep` has ended."""
        if self._started is not None:
            # It may not have its lock yet.
            await stop_process(self._started, self._patience.stop_seconds)
            os.close(self._started)
            self._started = None
        await stop_holder(self._places.agent_lock, self._patience.stop_seconds)

    async def _wait_one(self) -> tuple[int | None, str]:
        """Adopt or start an agent and wait for its end; returns its exit code, if it is ours, and how it ended."""
        holder = find_holder(self._places.agent_lock)
        return await (self._wait_started() if holder is None else self._wait_adopted(*holder))

    async def _wait_adopted(self, pid: int, pidfd: int) -> tuple[None, str]:
        self.node_id = read_name(self._places.agent_lock) or self._options.node_id
        self._tell(f"Taking over the agent that runs already (process {pid}), with the options it was started with.")
        try:
            await wait_exit(pidfd)
        finally:
            os.close(pidfd)
        return None, f"(process {pid}) ended"

    async def _wait_started(self) -> tuple[int, str]:
        self.node_id = self._options.node_id
        process = self._start()
        self._started = os.pidfd_open(process.pid)
        try:
            await wait_exit(self._started)
        except asyncio.CancelledError:
            # It lives on without us: what Popen would warn of is what is wanted.
            process.returncode = 0
            raise
        os.close(self._started)
        self._started = None
        code = process.wait()
        return code, f"ended with exit code {code}"

    def _start(self) -> subprocess.Popen[bytes]:
        log = self._places.agent_log
        if log.exists() and log.stat().st_size > _LOG_BYTES:
            log.replace(log.with_suffix(".log.1"))
        environment = {name: value for name, value in os.environ.items() if name not in _SECRETS}
        with log.open("ab") as output:
            return subprocess.Popen(
                [*self._command, *self._arguments()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                # Ctrl-C in the terminal is for us alone, and the agent outlives us.
                start_new_session=True,
            )

    def _arguments(self) -> list[str]:
        options, places = self._options, self._places
        http_port, grpc_port = self._serving_ports()
        tls_http_port, tls_grpc_port = self._encrypted_ports()
        arguments = [
            *("--addresses-file", str(places.addresses)),
            *("--state-dir", str(places.agent_dir)),
            *self._proof(),
            *("--node-id", options.node_id),
            *("--http-port", str(http_port)),
            *("--grpc-port", str(grpc_port)),
        ]
        if options.runtimes:
            arguments += ["--runtimes", ",".join(options.runtimes)]
        if options.cpu_cores is not None:
            arguments += ["--cpu-cores", f"{options.cpu_cores:g}"]
        if options.accelerators:
            arguments += ["--accelerators", options.accelerators]
        if options.advertise:
            arguments += ["--advertise", options.advertise]
            arguments += ["--tls-http-port", str(tls_http_port), "--tls-grpc-port", str(tls_grpc_port)]
            if not places.identity.exists():
                arguments += ["--serving-identity-file", str(places.serving_identity)]
        if options.listen_names:
            arguments += ["--listen-names", ",".join(options.listen_names)]
        if options.log_format != "text":
            arguments += ["--log-format", options.log_format]
        for label in options.labels:
            arguments += ["--label", label]
        return arguments

    def _proof(self) -> tuple[str, str]:
        """What the agent shows to its broker."""
        places = self._places
        if places.identity.exists():
            return "--identity-file", str(places.identity)
        return "--token-file", str(places.node_token)

    def _last_words(self) -> str:
        lines = self._places.agent_log.read_text(encoding="utf-8", errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "it did not say why.")

    def _serving_ports(self) -> tuple[int, int]:
        options = self._options
        if is_held(self._places.serving_lock):
            # The inference server outlived its agent and keeps its ports.
            return options.http_port, options.grpc_port
        earlier = self._known_addresses()
        return (
            choose_port("--http-port", options.http_port, earlier.get("serving_http", "")),
            choose_port("--grpc-port", options.grpc_port, earlier.get("serving_grpc", "")),
        )

    def _encrypted_ports(self) -> tuple[int, int]:
        options, host = self._options, self._options.advertise
        if not host or is_held(self._places.serving_lock):
            return options.tls_http_port, options.tls_grpc_port
        earlier = self._known_addresses()
        return (
            choose_port("--tls-http-port", options.tls_http_port, earlier.get("serving_https", ""), host),
            choose_port("--tls-grpc-port", options.tls_grpc_port, earlier.get("serving_grpcs", ""), host),
        )

    def _known_addresses(self) -> dict[str, str]:
        # The file leaves the inference server out until it answers; what it said before the start is as good.
        return {**self._earlier, **read_earlier(self._places.addresses)}
