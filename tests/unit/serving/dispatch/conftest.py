"""A session whose calls take as long as is wanted; whatever a test opened ends with it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from testing import onnx_models
from testing.waiting_calls import Stage
from tiercel.serving.runtime.engine import Session


@pytest.fixture(autouse=True)
async def ended() -> AsyncIterator[None]:
    yield
    for stage in Stage.opened:
        stage.close()
        Stage.opened.clear()


@pytest.fixture
def session() -> Session:
    return Session(onnx_models.counting_loop())
