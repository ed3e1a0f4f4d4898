"""Which nodes are told that others answer: from what nodes report, when it changes, and never less than they know."""

from __future__ import annotations

import pytest

from testing.actors import Actors, make_node, running, running_actors, wanted_of
from tiercel.broker.actors.node import NodeActor
from tiercel.broker.actors.node_messages import NodeReported, ServedStatus, ServingReported
from tiercel.broker.lifecycle.versions import WantedModel
from tiercel.broker.store.sql import Store
from tiercel.core.endpoints import DeliveryState
from tiercel.core.errors import UnavailableError
from tiercel.core.routes import Backend, Routes

HEARD = {("digits", ""): ServedStatus(1), ("foreign", ""): ServedStatus(9)}


async def report(
    actors: Actors, node: NodeActor, epoch: int, port: int, *, hello: bool = False, number: int = 0
) -> None:
    """A node says that its server answers for digits, and for something that nobody gave it."""
    serving = ServingReported()
    if port:
        serving = ServingReported(f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}", HEARD, routes_number=number)
    await node.send(NodeReported(epoch, serving=serving, is_hello=hello))
    await actors.settle()


async def delivered(actors: Actors) -> str:
    """A version of digits answers; returns its node."""
    job = await running(actors)
    await actors.report(job.run_id, 0.85)
    for state in (DeliveryState.LOADING, DeliveryState.DELIVERED):
        await actors.delivery(f"{job.id}-tier-1", state, job.node_id, value=0.85, sha256="ab")
    return job.node_id


def backends(routes: Routes | None) -> dict[str, tuple[Backend, ...]]:
    assert routes is not None
    return {route.endpoint: route.backends for route in routes.routes}


async def test_all_nodes_are_told_who_answers_and_only_when_that_changes(store: Store) -> None:
    async with running_actors(store) as actors:
        nodes = {node_id: await actors.connect(make_node(node_id)) for node_id in ("n1", "n2")}
        home = await delivered(actors)
        other = "n2" if home == "n1" else "n1"
        for node, epoch in nodes.values():
            await report(actors, node, epoch, 8000)
        told = [(await wanted_of(node, epoch)).routes for node, epoch in nodes.values()]
        assert told[0] == told[1]
        # The other one answers for digits too, which it was never given: its word on that does not count.
        expected = Backend(home, 1, http="127.0.0.1:8000", grpc="127.0.0.1:8001")
        assert backends(told[0]) == {"digits": (expected,)}

        generation = (await wanted_of(*nodes[other])).generation
        await report(actors, *nodes[home], 8000)
        again = await wanted_of(*nodes[other])
        assert again.generation == generation
        assert again.routes is told[list(nodes).index(other)]
        await report(actors, *nodes[home], 0)  # its server is gone
        assert backends((await wanted_of(*nodes[other])).routes) == {}


async def test_an_agent_that_begins_anew_does_not_take_its_server_out_of_the_table(store: Store) -> None:
    async with running_actors(store) as actors:
        node, epoch = await actors.connect()
        await delivered(actors)
        await report(actors, node, epoch, 8000)
        node, epoch = await actors.connect()
        await report(actors, node, epoch, 0, hello=True)
        assert "digits" in backends((await wanted_of(node, epoch)).routes)
        await actors.pass_time(11.0)  # its lease runs out
        assert backends(actors.registry.routes()) == {}


async def test_what_leaves_a_node_may_go_once_every_server_goes_by_a_table_that_says_so(store: Store) -> None:
    async with running_actors(store) as actors:
        nodes = {node_id: await actors.connect(make_node(node_id)) for node_id in ("n1", "n2", "n3")}
        home = await delivered(actors)
        other, bystander = sorted(nodes.keys() - {home})
        for node_id in (home, bystander):
            await report(actors, *nodes[node_id], 8000)
        actors.registry.declare_models(home, "digits", (WantedModel("digits", "", 0, (1,)),))
        actors.registry.declare_models(other, "digits", (WantedModel("digits", "", 1, (1,)),))
        await report(actors, *nodes[other], 8010)  # it answers by now
        table = actors.registry.routes()
        assert table is not None
        assert [each.draining for each in backends(table)["digits"]] == [name == home for name in sorted((home, other))]
        for node_id in (home, other):
            await report(actors, *nodes[node_id], 8000 if node_id == home else 8010, number=table.number)
        assert (await wanted_of(*nodes[home])).answered_elsewhere == frozenset(), "the third does not know"
        await report(actors, *nodes[bystander], 8000, number=table.number)
        assert (await wanted_of(*nodes[home])).answered_elsewhere == {"digits"}
        assert (await wanted_of(*nodes[other])).answered_elsewhere == frozenset()
        # It comes back, and leaves again: what was said before does not count.
        actors.registry.declare_models(home, "digits", (WantedModel("digits", "", 1, (1,)),))
        await actors.settle()
        actors.registry.declare_models(home, "digits", (WantedModel("digits", "", 0, (1,)),))
        await actors.settle()
        assert (await wanted_of(*nodes[home])).answered_elsewhere == frozenset()


async def test_who_cannot_be_heard_or_asked_is_not_waited_for(store: Store) -> None:
    async with running_actors(store) as actors:
        nodes = {node_id: await actors.connect(make_node(node_id)) for node_id in ("n1", "n2", "n3", "n4")}
        home = await delivered(actors)
        other, without_server, lost = sorted(nodes.keys() - {home})
        for node_id, port in ((home, 8000), (other, 8010), (without_server, 0), (lost, 8020)):
            await report(actors, *nodes[node_id], port)
        actors.registry.declare_models(home, "digits", (WantedModel("digits", "", 0, (1,)),))
        actors.registry.declare_models(other, "digits", (WantedModel("digits", "", 1, (1,)),))
        for _ in range(3):  # a lease runs out
            await actors.pass_time(4.0)
            table = actors.registry.routes()
            assert table is not None
            for node_id, port in ((home, 8000), (other, 8010), (without_server, 0)):
                await report(actors, *nodes[node_id], port, number=table.number)
        assert (await wanted_of(*nodes[home])).answered_elsewhere == {"digits"}


async def test_a_node_that_is_away_is_believed_when_it_is_back_unless_it_was_removed(store: Store) -> None:
    """Else what it hands on would be refused from when it is back until all others have been told that it is."""
    async with running_actors(store) as actors:
        near, epoch = await actors.connect(make_node("near"))
        await actors.connect(make_node("far"))
        for _ in range(3):  # the lease of the one that is silent runs out
            await actors.pass_time(4.0)
            await report(actors, near, epoch, 0)
        routes = (await wanted_of(near, epoch)).routes
        assert routes is not None
        assert routes.nodes == ("far", "near")
        assert not actors.registry.nodes["far"].node.online
        await actors.registry.forget_node("far")
        await actors.settle()
        routes = (await wanted_of(near, epoch)).routes
        assert routes is not None
        assert routes.nodes == ("near",)


async def test_a_node_that_joined_is_believed_before_it_has_connected_to_a_broker_that_began_anew(store: Store) -> None:
    joined = {"far", "gone"}
    async with running_actors(store, joined=lambda: joined) as actors:
        near, epoch = await actors.connect(make_node("near"))
        await report(actors, near, epoch, 0)
        routes = (await wanted_of(near, epoch)).routes
        assert routes is not None
        assert routes.nodes == ("far", "gone", "near")
        joined.discard("gone")
        await actors.registry.forget_node("gone")
        await actors.settle()
        routes = (await wanted_of(near, epoch)).routes
        assert routes is not None
        assert routes.nodes == ("far", "near")


async def test_a_node_that_was_removed_with_work_left_is_not_believed_once_it_is_away(store: Store) -> None:
    async with running_actors(store) as actors:
        await actors.connect(make_node("home"))
        home = await delivered(actors)
        near, epoch = await actors.connect(make_node("near"))
        await actors.registry.forget_node(home)
        for _ in range(3):
            await actors.pass_time(4.0)
            await report(actors, near, epoch, 0)
        assert home in actors.registry.nodes, "something is wanted of it still"
        routes = (await wanted_of(near, epoch)).routes
        assert routes is not None
        assert routes.nodes == ("near",)
        await actors.connect(make_node(home))  # another machine, which joined by that name
        await actors.settle()
        routes = actors.registry.routes()
        assert routes is not None
        assert routes.nodes == (home, "near")


async def test_a_broker_that_begins_anew_says_nothing_until_it_has_heard_of_those_who_may_answer(store: Store) -> None:
    async with running_actors(store) as actors:
        await actors.connect()
        home = await delivered(actors)
    async with running_actors(store) as actors:
        other, epoch = await actors.connect(make_node("other"))
        await report(actors, other, epoch, 0)
        assert (await wanted_of(other, epoch)).routes is None
        node, home_epoch = await actors.connect(make_node(home))
        await report(actors, node, home_epoch, 8000)
        assert set(backends((await wanted_of(other, epoch)).routes)) == {"digits"}
    async with running_actors(store) as actors:
        for _ in range(3):
            other, epoch = await actors.connect(make_node("other"))
            await actors.pass_time(4.0)
        assert backends((await wanted_of(other, epoch)).routes) == {}, "who is silent for a lease is not waited for"


async def test_a_tenant_is_told_of_its_own_endpoints_alone_and_of_none_while_it_is_not_known(store: Store) -> None:
    async with running_actors(store) as actors:
        assert backends(actors.service.endpoints.routes("alice")) == {}, "there are no nodes"
        node, epoch = await actors.connect()
        await delivered(actors)
        await report(actors, node, epoch, 8000)
        assert set(backends(actors.service.endpoints.routes("alice"))) == {"digits"}
        assert backends(actors.service.endpoints.routes("bob")) == {}
    async with running_actors(store) as actors:
        with pytest.raises(UnavailableError, match="not all nodes have said"):
            actors.service.endpoints.routes("alice")


async def test_a_joined_node_is_not_told_what_answers_in_the_clear_elsewhere(store: Store) -> None:
    async with running_actors(store) as actors:
        near, near_epoch = await actors.connect()
        await delivered(actors)
        await report(actors, near, near_epoch, 8000)
        far, epoch = await actors.agents.connect_node(make_node("far"), frozenset(), "the agent of far", is_local=False)
        await report(actors, far, epoch, 0)
        assert backends((await wanted_of(far, epoch)).routes) == {}
        assert set(backends((await wanted_of(near, near_epoch)).routes)) == {"digits"}
