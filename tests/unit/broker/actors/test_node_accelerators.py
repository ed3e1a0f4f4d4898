"""What a node's actor makes of what its agent says of accelerators."""

from __future__ import annotations

from testing.actors import Actors, make_node
from tiercel.broker.actors.node import NodeActor
from tiercel.broker.actors.node_messages import AcceleratorStatus, NodeReported
from tiercel.core.events import NodeEvent
from tiercel.core.nodes import Accelerator

DEVICES = (Accelerator("GPU-1", "One", 80), Accelerator("GPU-2", "Two", 80))


async def on_news(actors: Actors, actor: NodeActor, epoch: int, *heard: AcceleratorStatus) -> None:
    """Let the agent's heartbeat come."""
    await actor.send(NodeReported(epoch, accelerators=heard))
    await actors.settle()


def told(actors: Actors) -> list[NodeEvent]:
    """What was announced of nodes."""
    return [event for event in actors.events if isinstance(event, NodeEvent)]


async def test_a_node_comes_with_its_devices(actors: Actors) -> None:
    actor, _ = await actors.connect(make_node(accelerators=DEVICES))
    assert actor.node.accelerators == DEVICES
    assert actors.service.accelerators_of("n1") == {}
    assert actors.service.accelerators_of("nobody") == {}
    assert [event.accelerators for event in told(actors)] == [DEVICES]


async def test_a_problem_comes_and_goes(actors: Actors) -> None:
    actor, epoch = await actors.connect(make_node(accelerators=DEVICES))
    await on_news(actors, actor, epoch, AcceleratorStatus("GPU-1", 0.5, 7), AcceleratorStatus("GPU-2", problem="lost"))
    assert [device.problem for device in actor.node.accelerators] == ["", "lost"]
    assert actors.service.accelerators_of("n1")["GPU-1"] == AcceleratorStatus("GPU-1", 0.5, 7)
    await on_news(actors, actor, epoch, AcceleratorStatus("GPU-1", 0.7, 9), AcceleratorStatus("GPU-2", problem="lost"))
    assert len(told(actors)) == 2, "how busy a device is is no news"
    await on_news(actors, actor, epoch, AcceleratorStatus("GPU-1"), AcceleratorStatus("GPU-2"))
    problems = [[device.problem for device in event.accelerators] for event in told(actors)]
    assert problems == [["", ""], ["", "lost"], ["", ""]]
    assert all(event.online and event.lease_epoch == epoch for event in told(actors))


async def test_the_scheduler_hears_of_problems(actors: Actors) -> None:
    actor, epoch = await actors.connect(make_node(accelerators=DEVICES))
    await on_news(actors, actor, epoch, AcceleratorStatus("GPU-2", problem="lost"))
    view = actors.registry.scheduler._nodes["n1"]
    assert [device.problem for device in view.accelerators] == ["", "lost"]


async def test_devices_that_the_hello_did_not_name_are_not_there(actors: Actors) -> None:
    actor, epoch = await actors.connect(make_node(accelerators=DEVICES[:1]))
    await on_news(actors, actor, epoch, AcceleratorStatus("GPU-2", problem="lost"))
    assert actor.node.accelerators == DEVICES[:1]
    assert len(told(actors)) == 1


async def test_of_a_node_that_is_away_nothing_is_known(actors: Actors) -> None:
    actor, epoch = await actors.connect(make_node(accelerators=DEVICES))
    await on_news(actors, actor, epoch, AcceleratorStatus("GPU-1", 0.5, 7))
    await actors.pass_time(12.0)
    assert not actor.node.online
    assert actors.service.accelerators_of("n1") == {}
    assert actor.node.accelerators == DEVICES, "but which devices it has"
    await on_news(actors, actor, epoch, AcceleratorStatus("GPU-1", problem="lost"))
    assert actor.node.accelerators == DEVICES, "its lease is over"


async def test_a_new_stream_begins_anew(actors: Actors) -> None:
    actor, epoch = await actors.connect(make_node(accelerators=DEVICES))
    await on_news(actors, actor, epoch, AcceleratorStatus("GPU-1", 0.5, 7, "lost"))
    await actors.connect(make_node(accelerators=DEVICES))
    assert actors.service.accelerators_of("n1") == {}
    assert actor.node.accelerators == DEVICES
