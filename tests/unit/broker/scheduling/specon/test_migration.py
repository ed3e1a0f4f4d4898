"""Which job goes where, computed by hand.

A letter is a job: F a fast learner, c one that has converged; ``FFFc`` is a node with four jobs.
"""

from __future__ import annotations

import dataclasses

import pytest

from testing.scheduling import GIB, job, node, reports, tiers
from tiercel.broker.scheduling.interface import JobView, NodeView, RestartCost, Snapshot, Trigger
from tiercel.broker.scheduling.specon.migration import Migration, MigrationSettings, SpeconRule, choose_migration
from tiercel.broker.scheduling.specon.readings import Category, Reading
from tiercel.core.jobs import Observation

SETTINGS = MigrationSettings(SpeconRule.GROWTH, 2, 120.0, 1, 12.0, 1.0)
BY_LOAD = dataclasses.replace(SETTINGS, rule=SpeconRule.LOAD)


class Cluster:
    """Nodes n1, n2 … with the jobs written down for each; a job is called after its node and place: ``n1.0``."""

    def __init__(self, *crowds: str) -> None:
        self.nodes: list[NodeView] = [node(f"n{number}") for number, _ in enumerate(crowds, start=1)]
        self.jobs_of: dict[str, list[JobView]] = {}
        self.readings: dict[str, Reading] = {}
        self.restarts: dict[str, RestartCost] = {}
        for home, crowd in zip(self.nodes, crowds, strict=True):
            self.jobs_of[home.id] = [
                dataclasses.replace(job(f"{home.id}.{place}", node_id=home.id), migratable=True)
                for place, _ in enumerate(crowd)
            ]
            for place, letter in enumerate(crowd):
                fast = Reading(Category.PROGRESSING if place % 2 else Category.WATCHING)
                self.readings[f"{home.id}.{place}"] = fast if letter == "F" else Reading(Category.CONVERGED)

    def change(self, job_id: str, **changes: object) -> None:
        """Change a job."""
        jobs = self.jobs_of[job_id.split(".")[0]]
        place = int(job_id.split(".")[1])
        jobs[place] = dataclasses.replace(jobs[place], **changes)  # type: ignore[arg-type]

    def migration(self, settings: MigrationSettings = SETTINGS, now: float = 1000.0) -> Migration | None:
        """What is decided."""
        seen = Snapshot(now, Trigger.INTERVAL, (), tuple(self.nodes), restarts=self.restarts)
        return choose_migration(seen, self.jobs_of, self.readings, settings, {})


def where(migration: Migration | None) -> tuple[str, str] | None:
    return None if migration is None else (migration.job.id, migration.target)


@pytest.mark.parametrize(
    ("crowds", "expected"),
    [
        (("FFc", "c"), ("n1.2", "n2")),
        (("FFc", "F"), None),  # the difference is 1
        (("FFFc", "F"), ("n1.3", "n2")),
        (("FFF", ""), None),  # nobody has converged
        (("ccc", ""), None),  # nobody would be relieved
        (("FFc", "c", ""), ("n1.2", "n3")),  # a tie of 2, 2: the emptier one
        (("FFFc", "FFFFc", "F"), ("n2.4", "n3")),
        (("cFF", "cFF", ""), ("n1.0", "n3")),  # all alike: the first
        (("FFc", "", "FFcc"), ("n3.2", "n2")),  # a tie of 2, 2: the fuller one is left
    ],
)
def test_the_pair_that_relieves_the_most_fast_learners_is_chosen(
    crowds: tuple[str, ...], expected: tuple[str, str] | None
) -> None:
    assert where(Cluster(*crowds).migration()) == expected


@pytest.mark.parametrize(
    ("crowds", "expected"),
    [
        (("ccc", ""), ("n1.0", "n2")),
        (("FFc", "cc"), None),
        (("FFFFc", "ccc"), ("n1.4", "n2")),
        (("cccc", "FFFc", ""), ("n2.3", "n3")),
    ],
)
def test_by_load_the_number_of_jobs_counts_first(crowds: tuple[str, ...], expected: tuple[str, str] | None) -> None:
    assert where(Cluster(*crowds).migration(BY_LOAD)) == expected


@pytest.mark.parametrize(
    "changes",
    [
        {"migratable": False},
        {"migrations": 1, "migrated_at": 0.0},
        # Its last tier, 0.9, is 0.1 away; at 0.01 a second it is there before a move would be over.
        {"observations": reports(0.8), "tiers": tiers(0.5, 0.9, reached=1)},
        # An epoch took 2 s and 3 are left.
        {"max_epochs": 6, "observations": (Observation(1.0, 1, 0.1, 1.0), Observation(5.0, 3, 0.1, 1.0))},
        {"observations": reports(0.8), "tiers": tiers(0.5, reached=1)},
    ],
)
def test_who_may_not_be_moved_or_is_not_worth_it_stays(changes: dict[str, object]) -> None:
    cluster = Cluster("FFc", "")
    cluster.readings["n1.2"] = Reading(Category.CONVERGED, growth=0.01)
    assert where(cluster.migration()) == ("n1.2", "n2")
    cluster.change("n1.2", **changes)
    assert cluster.migration() is None


def test_a_job_that_goes_on_after_its_last_tier_is_not_nearly_done_there() -> None:
    cluster = Cluster("FFc", "")
    cluster.readings["n1.2"] = Reading(Category.CONVERGED, growth=0.01)
    cluster.change("n1.2", observations=reports(0.8), tiers=tiers(0.9), continues=True)
    assert where(cluster.migration()) == ("n1.2", "n2")


def test_a_job_that_was_moved_stays_until_it_has_cooled_down() -> None:
    cluster = Cluster("FFc", "")
    cluster.change("n1.2", migrations=3, migrated_at=900.0)
    often = dataclasses.replace(SETTINGS, max_migrations=0)
    assert cluster.migration(often, now=1019.0) is None
    assert where(cluster.migration(often, now=1020.0)) == ("n1.2", "n2")


def test_a_job_that_restarts_quickly_is_worth_moving_with_little_left() -> None:
    cluster = Cluster("FFc", "")
    cluster.readings["n1.2"] = Reading(Category.CONVERGED, growth=0.01)
    # An epoch took 2 s and 3 are left: less than the 12 s that a move is held to cost.
    cluster.change("n1.2", max_epochs=6, observations=(Observation(1.0, 1, 0.1, 1.0), Observation(5.0, 3, 0.1, 1.0)))
    cluster.change("n1.2", workload="w")
    assert cluster.migration() is None
    cluster.restarts["w"] = RestartCost(stop_seconds=1.0, cold_seconds=4.0)
    assert where(cluster.migration()) == ("n1.2", "n2")
    cluster.restarts["w"] = RestartCost(stop_seconds=1.0, cold_seconds=40.0)
    assert cluster.migration() is None


def test_a_node_without_room_is_passed_over() -> None:
    cluster = Cluster("FFc", "", "c")
    cluster.nodes[1] = node("n2", memory_bytes=GIB // 2)
    assert where(cluster.migration()) == ("n1.2", "n3")
    cluster.nodes[2] = node("n3", memory_bytes=GIB)
    assert cluster.migration() is None


def test_the_reason_tells_where_from_and_why() -> None:
    migration = Cluster("FFFc", "Fc").migration()
    assert migration is not None
    assert migration.reason == (
        "moved from n1 to n2 because it hardly improves any more: there it held up 3 of 4 jobs that do, here 1 of 2"
    )
