"""A small lab: one host has the broker, others join, and a tenant asks from a host of its own; by the command line."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testing.hosts import Host
from testing.product_use import JOB_SECONDS, SCRIPTS, Command, tiercel
from tiercel.broker.client.state_dir import read_addresses, read_token

POLL_SECONDS = 1.0
"""Each look is a command in a process of its own."""


class LabError(Exception):
    """A command did not do what it should; the message says what it said."""


@dataclass(frozen=True)
class Lab:
    """A broker's host, with the product's state in ``state``, and a tenant on another one."""

    folder: Path  # everything of theirs
    broker: Host  # where ``tiercel up`` runs
    user: Host  # where Alice is

    @property
    def state(self) -> Path:
        """The broker's state directory."""
        return self.folder / "state"

    @property
    def address(self) -> str:
        """Where others reach the broker."""
        return read_addresses(self.state)["broker_tls"]

    @property
    def environment(self) -> dict[str, str]:
        """What Alice has, to call the broker from elsewhere."""
        return {
            "TIERCEL_TOKEN": read_token(self.state, "alice"),
            "TIERCEL_BROKER_PIN": read_addresses(self.state)["pin"],
        }

    async def operate(self, *arguments: str) -> Command:
        """The operator's command, on the broker's host."""
        return _well(await tiercel(*arguments, state_dir=self.state, host=self.broker))

    async def ask(self, *arguments: str, text: str | None = None) -> Command:
        """Alice's command, on her own host."""
        return _well(
            await tiercel(
                *arguments,
                "--broker",
                self.address,
                state_dir=self.folder / "user",
                host=self.user,
                environment=self.environment,
                text=text,
            )
        )

    async def until(self, *arguments: str, **wanted: object) -> Any:
        """Wait until what a command says has these values, and return that."""
        async with asyncio.timeout(JOB_SECONDS):
            while True:
                found = (await self.ask(*arguments, "--json")).content
                lines = found if isinstance(found, list) else [found]
                fitting = [line for line in lines if all(line.get(name) == value for name, value in wanted.items())]
                if fitting:
                    return fitting[0]
                await asyncio.sleep(POLL_SECONDS)

    async def join(self, host: Host, name: str, *options: str, token: str = "") -> str:
        """A host becomes a node, with its state in a folder of its name.

        Args:
            host: The host.
            name: The node's name.
            options: More options of the command.
            token: Of an earlier join, to start the agent again.

        Returns:
            The token of its line.
        """
        token = token or (await self.operate("node", "token")).output.split()[4]
        given = ("--token", "-", "--node-id", name, "--runtime", "process", "--cpu-cores", "1", "--detach", *options)
        _well(await tiercel("join", self.address, *given, state_dir=self.folder / name, host=host, text=token))
        return token

    async def leave(self, host: Host, name: str) -> None:
        """Stop a node's agent."""
        await tiercel("down", state_dir=self.folder / name, host=host)

    async def submit(
        self,
        endpoint: str,
        *tiers: str,
        pause_seconds: float = 0.02,
        options: Sequence[str] = (),
        script: str = "linear.py",
    ) -> str:
        """A job that learns a line until it is ended; returns its id.

        Args:
            endpoint: What it feeds.
            tiers: Its targets.
            pause_seconds: After each of an epoch's four steps.
            options: More options of the command.
            script: Which of ``testing/scripts``.
        """
        program = ("--script", str(SCRIPTS / script), "--arg=--epochs=4000")
        pause = f"--arg=--step-sleep-seconds={pause_seconds}"
        ladder = [word for tier in tiers for word in ("--tier", tier)]
        about = ("--endpoint", endpoint, "--metric", "accuracy", *ladder, "--max-epochs", "4000")
        return str((await self.ask("submit", *program, pause, *about, *options, "--json")).content["id"])


def _well(command: Command) -> Command:
    if command.exit_code:
        raise LabError(command.errors)
    return command
