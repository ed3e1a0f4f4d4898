"""The command line in this process, against a scripted broker in another thread."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from testing.command_line import Tiercel
from testing.jobs_service import TOKEN, Script, serving_in_thread
from tiercel.broker.cli import app


@pytest.fixture
def script() -> Script:
    """What the broker says."""
    return Script()


@pytest.fixture
def address(script: Script) -> Iterator[str]:
    """Where it listens."""
    with serving_in_thread(script) as address:
        yield address


@pytest.fixture
def tiercel(address: str, monkeypatch: pytest.MonkeyPatch) -> Tiercel:
    """Runs a command against the scripted broker."""
    monkeypatch.setenv("TIERCEL_TOKEN", TOKEN)

    def run(*arguments: str, input: str | None = None) -> Result:  # noqa: A002 - as CliRunner calls it
        return CliRunner().invoke(app, [*arguments, "--broker", address], input=input)

    return run
