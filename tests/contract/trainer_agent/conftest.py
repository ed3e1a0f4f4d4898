"""The engine for tests that need one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testing.docker import DockerEngine, docker_engine


@pytest.fixture(scope="session")
def engine() -> Iterator[DockerEngine]:
    with docker_engine() as running:
        yield running
