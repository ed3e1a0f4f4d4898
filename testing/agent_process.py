"""An agent in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from testing.nodes_broker import DEADLINE, NODE_TOKEN
from testing.until import until
from testing.warm_python import WarmProcess, lasting_python
from tiercel.trainer_agent.runtimes.processes.minding import end_leftovers


@dataclass(slots=True)
class AgentProcess:
    """An agent as ``tiercel up`` starts it, but that what it always imports is there when it begins."""

    state_dir: Path
    command: Sequence[str]
    log: Path
    process: WarmProcess = field(init=False)

    def __post_init__(self) -> None:
        """The first start."""
        self.start()

    def start(self) -> None:
        """Start it, again too once it has ended."""
        template = lasting_python(("tiercel.trainer_agent.main",))
        with Path(os.devnull).open("rb") as nothing, self.log.open("ab") as output:
            streams = nothing, output, output
            self.process = template.start_with(self.command, os.environ, streams, None)

    async def wait(self) -> int:
        """Wait until it has ended."""
        await until(lambda: self.process.poll() is not None, seconds=DEADLINE)
        return self.process.wait()

    async def kill(self) -> None:
        """Kill it as a crash would."""
        self.process.kill()
        await self.wait()

    async def leave(self) -> None:
        """Ask it to leave."""
        self.process.terminate()
        assert await self.wait() == 0, self.log.read_text()


@contextmanager
def agent_process(
    state_dir: Path,
    broker: str,
    *flags: str,
    runtimes: str = "process",
    node_id: str = "testing",
    node_token: str = NODE_TOKEN,
) -> Iterator[AgentProcess]:
    """A running agent; whatever is left of it at the end is killed, its inference server and its runs too.

    It starts no run warm unless a flag says so: to get ready for the next run costs more than most tests do.
    """
    state_dir.mkdir(parents=True, exist_ok=True)
    addresses, token, log = state_dir / "addresses.json", state_dir / "token", state_dir / "agent.log"
    addresses.write_text(json.dumps({"nodes": broker}))
    token.write_text(f"{node_token}\n")
    command = ["-m", "tiercel.trainer_agent", "--addresses-file", str(addresses)]
    command += ["--state-dir", str(state_dir / "agent"), "--token-file", str(token), "--node-id", node_id]
    command += ["--runtimes", runtimes, "--http-port", "0", "--grpc-port", "0", "--warm-templates", "0", *flags]
    agent = AgentProcess(state_dir, command, log)
    try:
        yield agent
    finally:
        if agent.process.poll() is None:
            agent.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                agent.process.wait(DEADLINE)
        if agent.process.poll() is None:
            agent.process.kill()
            agent.process.wait()
        _end_serving(state_dir / "agent" / "serving.json")
        for folder in (state_dir / "agent" / "minders").glob("[!.]*"):
            end_leftovers(folder)


def _end_serving(state_file: Path) -> None:
    """End an inference server whose agent was killed and did not come back."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        os.kill(int(json.loads(state_file.read_text())["pid"]), signal.SIGTERM)
