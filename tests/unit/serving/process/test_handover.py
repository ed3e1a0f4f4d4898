from __future__ import annotations

import socket
import subprocess
from typing import Any

import pytest

from tiercel.core.errors import UnavailableError
from tiercel.serving.process.handover import Inheritance, successor


async def test_a_process_that_cannot_be_started_leaves_this_one_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*_: Any, **__: Any) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(subprocess, "Popen", no_memory)
    with socket.socket() as http, socket.socket() as grpc, pytest.raises(UnavailableError, match="Cannot allocate"):
        async with successor(Inheritance(http, grpc, http.fileno())):
            pass
