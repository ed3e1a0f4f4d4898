"""A broker that does as it is told, an agent of its own process, and for tests that need them an engine and PyTorch."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from testing.agent_process import AgentProcess, agent_process
from testing.docker import DockerEngine, docker_engine
from testing.nodes_broker import ScriptedBroker, scripted_broker
from testing.trainer_service import training_environment
from testing.warm_python import WarmPython, warm_python

SCRIPTS = Path(__file__).resolve().parents[3] / "testing" / "scripts"


@pytest.fixture(scope="session")
def engine() -> Iterator[DockerEngine]:
    with docker_engine() as running:
        yield running


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    async with scripted_broker() as listening:
        yield listening


@pytest.fixture
async def agent(broker: ScriptedBroker, tmp_path: Path) -> AsyncIterator[AgentProcess]:
    with agent_process(tmp_path / "state", broker.address, "--metrics-listen", "127.0.0.1:0") as process:
        yield process


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_broker() -> AsyncIterator[ScriptedBroker]:
    """The same for all tests of a file whose loop is the module's; their runs have names of their own."""
    async with scripted_broker() as listening:
        yield listening


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_agent(
    shared_broker: ScriptedBroker, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[AgentProcess]:
    """One agent for these tests, which leave it as it was: its inference server costs more to begin than they do."""
    with agent_process(tmp_path_factory.mktemp("shared") / "state", shared_broker.address) as process:
        yield process


@pytest.fixture(scope="session")
def python() -> Iterator[WarmPython]:
    """A Python that has loaded PyTorch, which takes longer than most of the scripts."""
    with warm_python(training_environment()) as template:
        yield template


@pytest.fixture(scope="session")
def linear() -> str:
    """A training script that uses the trainer library; what that does with PyTorch, the tests in trainer/ show."""
    return (SCRIPTS / "numpy_linear.py").read_text()


@pytest.fixture(scope="session")
def raw_trainer() -> str:
    """A training script that speaks the protocol by itself."""
    return (SCRIPTS / "raw_trainer.py").read_text()
