"""A real agent and the scratch folder of a run."""

from __future__ import annotations

from testing.agent_process import AgentProcess
from testing.nodes_broker import DEADLINE, ScriptedBroker, wanted_run
from testing.until import until
from tiercel.v1 import nodes_pb2

WRITES = """
import os
with open(os.environ["TIERCEL_SCRATCH"] + "/x", "wb") as file:
    for _ in range(3): file.write(os.urandom(1 << 20))
    os.fsync(file.fileno())
print("written")
"""


def with_scratch(run: nodes_pb2.WantedRun, size_bytes: int) -> nodes_pb2.WantedRun:
    """The run, with a scratch folder."""
    run.spec.resources.scratch_bytes = size_bytes
    return run


async def test_it_is_there_for_who_asks_and_is_gone_when_the_run_is(
    broker: ScriptedBroker, agent: AgentProcess
) -> None:
    await broker.want(
        with_scratch(wanted_run("some-1", WRITES), 4 << 20),
        wanted_run("none-1", "import os\nprint('TIERCEL_SCRATCH' in os.environ)"),
    )
    await until(lambda: broker.heard.exit("some-1") and broker.heard.exit("none-1"), seconds=DEADLINE)
    some = broker.heard.exit("some-1")
    assert some is not None
    assert (some.exit_code, broker.heard.output("some-1")) == (0, b"written\n")
    assert broker.heard.output("none-1") == b"False\n"
    assert list((agent.state_dir / "agent" / "scratch").glob("*")) == []
