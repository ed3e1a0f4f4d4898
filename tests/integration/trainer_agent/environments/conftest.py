"""A node that builds environments offline, with uv and with pip."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from testing.node_environments import NodeEnvironments
from tiercel.trainer_agent.environments import installers
from tiercel.trainer_agent.supervision import Supervisor


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[NodeEnvironments]:
    async with Supervisor() as tasks:
        yield NodeEnvironments(tmp_path, tasks)
        tasks.cancel_all()


@pytest.fixture(params=["uv", "pip"])
def installer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "pip":
        monkeypatch.setattr(installers, "find_uv", lambda: None)
