"""Which nodes get copies of a version."""

from __future__ import annotations

from dataclasses import replace

from tiercel.broker.lifecycle import homes, replicas, versions
from tiercel.broker.lifecycle.serving_node import ServingNode
from tiercel.broker.lifecycle.versions import VersionFiles
from tiercel.core.checkpoints import Artefact
from tiercel.core.endpoints import Delivery, DeliveryState, Endpoint, Version
from tiercel.core.jobs import Direction

VERSION = Version(1, "j", 1, "accuracy", 0.9, 0.0, "ab", Direction.MAX, node_id="n1")
ENDPOINT = Endpoint("digits", "alice", 2, (VERSION,), "n1", live_versions={"": 1}, replicas=2)


def nodes(**changed: ServingNode) -> dict[str, ServingNode]:
    known = {name: ServingNode(name) for name in ("n1", "n2", "n3")} | changed
    return known | {"n1": replace(known["n1"], answering=1)}


def test_the_quietest_node_is_chosen_and_one_that_has_the_files_before_it() -> None:
    busy = ServingNode("n2", crowd=5)
    assert replicas.chosen(ENDPOINT, nodes(n2=busy)) == ("n3",)
    assert replicas.chosen(ENDPOINT, nodes(n2=replace(busy, copies={1: "ab"}))) == ("n2",)
    assert replicas.chosen(ENDPOINT, nodes(n2=replace(busy, failed={1: "refused"}))) == ("n3",)


def test_a_node_that_cannot_serve_or_is_drained_or_silent_gets_none() -> None:
    for unfit in (
        ServingNode("n2", takes=False),
        ServingNode("n2", leaving=True),
        ServingNode("n2", online=False),
    ):
        assert replicas.chosen(replace(ENDPOINT, replicas=3), nodes(n2=unfit)) == ("n3",)


def test_a_node_that_is_only_silent_for_a_moment_keeps_its_place() -> None:
    endpoint = replace(ENDPOINT, replica_nodes=("n2",))
    silent = ServingNode("n2", online=False, takes=False)
    assert replicas.chosen(endpoint, nodes(n2=silent)) == ("n2",)
    assert replicas.chosen(endpoint, nodes(n2=replace(silent, lost=True))) == ("n3",)
    alone = nodes(n2=replace(silent, lost=True))
    del alone["n3"]
    assert replicas.chosen(endpoint, alone) == ("n2",), "nobody takes it"


def test_variants_stay_on_their_node_even_where_that_is_drained() -> None:
    of_variant = replace(VERSION, variant="small")
    endpoint = replace(ENDPOINT, versions=(of_variant,), live_versions={"small": 1}, replicas=1)
    drained = nodes(n1=ServingNode("n1", leaving=True))
    assert replicas.chosen(endpoint, drained) == ()
    delivery = Delivery("j-tier-1", "j", 1, 0.9, "digits", 1, DeliveryState.LOADING, 0.0, variant="small", sha256="ab")
    empty = Endpoint("digits", "alice")
    assert replicas.upcoming(empty, delivery, "n1", drained).members == ()
    assert replicas.upcoming(empty, replace(delivery, variant=""), "n1", drained).members != ()


def told(endpoint: Endpoint, known: dict[str, ServingNode], name: str) -> int:
    (model,) = replicas.wanted(endpoint, known)[name]
    return model.version


def test_what_is_old_answers_on_where_nobody_answers_with_what_is_live() -> None:
    newer = replace(VERSION, version=2, sha256="cd")
    endpoint = replace(ENDPOINT, versions=(VERSION, newer), live_versions={"": 2}, replica_nodes=("n2",))
    away = nodes(n2=ServingNode("n2", answering=1, copies={1: "ab"}))
    away["n1"] = ServingNode("n1", online=False)
    assert told(endpoint, away, "n2") == 1
    back = away | {"n1": ServingNode("n1", answering=2)}
    assert told(endpoint, back, "n2") == 0


def test_a_copy_that_is_not_wanted_any_more_answers_until_somebody_else_does() -> None:
    endpoint = replace(ENDPOINT, replicas=1, left=(("n2", ""),))
    alone = nodes(n2=ServingNode("n2", answering=1, copies={1: "ab"}))
    assert told(endpoint, alone, "n2") == 0
    assert told(endpoint, alone | {"n1": ServingNode("n1")}, "n2") == 1


def test_a_drained_copy_answers_until_all_others_do_and_the_home_is_one_of_them() -> None:
    drained = nodes(n2=ServingNode("n2", leaving=True, answering=1, copies={1: "ab"}))
    del drained["n3"]
    endpoint = replicas.spread(replace(ENDPOINT, replica_nodes=("n2",)), drained)
    assert (endpoint.replica_nodes, told(endpoint, drained, "n2")) == ((), 0), "there is no third node to wait for"
    silent = drained | {"n1": ServingNode("n1")}
    assert told(endpoint, silent, "n2") == 1
    third = drained | {"n3": ServingNode("n3")}
    endpoint = replicas.spread(replace(ENDPOINT, replica_nodes=("n2",)), third)
    assert (endpoint.replica_nodes, told(endpoint, third, "n2")) == (("n3",), 1), "it waits for the third"


def test_a_home_that_lost_the_files_of_what_is_live_gets_them_from_who_has_them() -> None:
    endpoint = replace(ENDPOINT, replica_nodes=("n2",))
    files = VersionFiles(1, "ab")
    known = nodes(n2=ServingNode("n2", answering=1, copies={1: "ab"})) | {"n1": ServingNode("n1")}
    (home,) = replicas.wanted(endpoint, known, held={1: "ab"})["n1"]
    assert (home.version, home.copies) == (1, (files,))
    assert replicas.wanted(endpoint, known)["n2"][0].sends == (files,), "the broker lacks them as well"
    answering = known | {"n1": ServingNode("n1", answering=1)}
    assert replicas.wanted(endpoint, answering, held={1: "ab"})["n1"][0].copies == ()


def test_what_only_a_removed_node_had_is_refused_and_what_another_has_is_at_home_there() -> None:
    second = replace(VERSION, version=2, sha256="cd", node_id="n2")
    before = Endpoint("digits", "alice", 3, (VERSION, second), "n2", live_versions={"": 2})
    after = versions.rolled_back(before, None)
    gone = {"n1": ServingNode("n1", online=False, lost=True, removed=True), "n2": ServingNode("n2", answering=2)}
    away = gone | {"n1": ServingNode("n1", online=False, lost=True)}

    def why(known: dict[str, ServingNode], then: Endpoint = after, *, has_store: bool = False) -> str:
        return homes.why_gone(before, then, known, has_store=has_store)

    assert why(gone) == (
        "the files of version 1 are on no node but n1, which was removed or has not connected since the broker began; "
        "start its agent again, or choose another version: 'tiercel models ls digits' names them"
    )
    assert why({"n2": gone["n2"]}) == why(gone)
    assert (why(away), why(gone, versions.keeping(before, 3))) == ("", ""), "it may come back; nothing was chosen"
    stored = replace(after, versions=(replace(VERSION, stored=Artefact("ef", 9)), second))
    assert (why(gone, stored, has_store=True), why(gone, stored) == why(gone)) == ("", True)
    assert homes.at_home(after, away) is homes.at_home(after, away | {"n2": gone["n2"]}) is after

    known = gone | {"n2": ServingNode("n2", answering=2, copies={1: "ab", 2: "cd"})}
    assert why(known) == ""
    there = homes.at_home(after, known)
    assert (there.node_id, there.live_version, [each.node_id for each in there.versions]) == ("n2", 1, ["n2", "n2"])
    assert told(there, known, "n2") == 1
    assert why(gone | {"n2": ServingNode("n2", answering=2, copies={1: "another's"})}) == why(gone)
