"""How commands end."""

from __future__ import annotations

import asyncio

import click
import pytest

from tiercel.broker.cli.exit_codes import FAILED, INTERRUPTED
from tiercel.broker.cli.session import run_to_the_end
from tiercel.core.errors import wrong_field


def test_a_wrong_field_is_called_as_a_spec_calls_it(capsys: pytest.CaptureFixture[str]) -> None:
    async def refused() -> None:
        raise wrong_field("resources.memory_bytes", "1 GiB is more than any node has")

    with pytest.raises(click.exceptions.Exit) as ended:
        run_to_the_end(refused())
    assert ended.value.exit_code == FAILED
    assert capsys.readouterr().err == "Error: resources.memory: 1 GiB is more than any node has\n"


def test_who_is_interrupted_before_it_began_leaves_no_word(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never_begun() -> None:
        raise AssertionError

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(asyncio, "run", interrupted)
    with pytest.raises(click.exceptions.Exit) as ended:  # a coroutine that is never awaited would be a warning
        run_to_the_end(never_begun())
    assert ended.value.exit_code == INTERRUPTED
