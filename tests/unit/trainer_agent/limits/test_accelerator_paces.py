"""Runs that share a made-up accelerator which gives equal turns: what they get after some seconds of pacing."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tiercel.core.shares import AcceleratorShare
from tiercel.trainer_agent.limits.accelerator_paces import AcceleratorPaces
from tiercel.trainer_agent.limits.accelerator_time import turns_of


@dataclass
class Run:
    """A run that wants so much of the accelerator's time, by itself."""

    fraction: float
    wants: float = 1.0
    cap: float | None = None
    accelerator: str = "GPU-a"
    pace: float = 0.0
    busy_seconds: float = 0.0
    got: float = 0.0


class Node:
    """Runs that report once a second."""

    def __init__(self, **runs: Run) -> None:
        self.runs = runs
        self.paces = AcceleratorPaces()
        self.now = 1000.0
        self.repace()

    def repace(self) -> None:
        shares = {
            name: [AcceleratorShare(run.accelerator, run.fraction, cap=run.cap)] for name, run in self.runs.items()
        }
        for name, pace in self.paces.paces(shares).items():
            self.runs[name].pace = pace

    def live(self, seconds: int) -> None:
        for _ in range(seconds):
            active = self.active()
            for name, run in self.runs.items():
                others = [
                    active[other]
                    for other in active
                    if other != name and self.runs[other].accelerator == run.accelerator
                ]
                run.got = active[name] * turns_of(others)
                run.busy_seconds += active[name]
            self.now += 1.0
            for name, run in self.runs.items():
                self.paces.note(name, self.now, run.busy_seconds)
            self.repace()

    def active(self) -> dict[str, float]:
        """How long each has work on the accelerator: what it wants takes the longer, the more others are there."""
        active = {name: run.wants for name, run in self.runs.items()}
        for _ in range(200):
            for name, run in self.runs.items():
                others = [
                    active[other]
                    for other in active
                    if other != name and self.runs[other].accelerator == run.accelerator
                ]
                active[name] = min(run.wants / turns_of(others), run.pace or 1.0, 1.0)
        return active

    def got(self) -> dict[str, float]:
        return {name: run.got for name, run in self.runs.items()}


def test_a_cap_holds_for_a_run_alone() -> None:
    node = Node(a=Run(1.0, cap=0.75))
    node.live(5)
    assert node.runs["a"].pace == 0.75
    node.runs["a"].cap = None
    node.repace()
    assert node.runs["a"].pace == 0.0


def test_what_caps_keep_free_is_lent_to_nobody_who_has_one() -> None:
    node = Node(a=Run(0.5, cap=0.3), b=Run(0.5, cap=0.3))
    node.live(10)
    assert max(node.got().values()) <= 0.3
    assert all(0 < run.pace <= 0.3 for run in node.runs.values())


def test_a_run_alone_is_not_paced() -> None:
    node = Node(a=Run(0.1))
    node.live(5)
    assert node.runs["a"].pace == 0.0
    assert node.got() == pytest.approx({"a": 1.0})


def test_a_run_that_was_hardly_limited_is_not_limited_when_it_is_alone() -> None:
    node = Node(a=Run(0.48), b=Run(0.52))
    node.live(5)
    node.runs["a"].fraction, node.runs["b"].fraction = 0.493, 0.507
    node.live(5)
    assert node.runs["a"].pace == pytest.approx(0.986, abs=1e-3)
    del node.runs["b"]
    node.repace()
    assert node.runs["a"].pace == 0.0


def test_runs_on_accelerators_of_their_own_are_not_paced() -> None:
    node = Node(a=Run(0.1), b=Run(0.1, accelerator="GPU-b"))
    node.live(5)
    assert (node.runs["a"].pace, node.runs["b"].pace) == (0.0, 0.0)


def test_a_run_without_accelerators_has_no_pace() -> None:
    assert AcceleratorPaces().paces({"a": []}) == {}


@pytest.mark.parametrize("fractions", [(0.7, 0.3), (0.5, 0.5), (0.9, 0.1), (0.5, 0.3, 0.2), (0.25, 0.25, 0.25, 0.25)])
def test_who_wants_all_gets_its_fraction(fractions: tuple[float, ...]) -> None:
    node = Node(**{f"run{number}": Run(fraction) for number, fraction in enumerate(fractions)})
    node.live(10)
    assert [run.got for run in node.runs.values()] == pytest.approx(fractions, abs=0.03)


def test_what_one_leaves_unused_is_lent_to_the_other_within_five_seconds() -> None:
    node = Node(a=Run(0.5, wants=0.1), b=Run(0.5))
    node.live(5)
    assert node.got() == pytest.approx({"a": 0.1, "b": 0.9}, abs=0.06)


def test_it_is_given_back_within_five_seconds() -> None:
    node = Node(a=Run(0.7, wants=0.1), b=Run(0.3))
    node.live(10)
    node.runs["a"].wants = 1.0
    node.live(5)
    assert node.got() == pytest.approx({"a": 0.7, "b": 0.3}, abs=0.03)


def test_a_change_of_fractions_is_followed_within_five_seconds() -> None:
    node = Node(a=Run(0.7), b=Run(0.3))
    node.live(10)
    node.runs["a"].fraction, node.runs["b"].fraction = 0.2, 0.8
    node.live(5)
    assert node.got() == pytest.approx({"a": 0.2, "b": 0.8}, abs=0.03)


def test_who_ends_leaves_all_to_the_others_at_once() -> None:
    node = Node(a=Run(0.7), b=Run(0.3))
    node.live(10)
    del node.runs["a"]
    node.repace()
    assert node.runs["b"].pace == 0.0


def test_nothing_swings_once_it_has_settled() -> None:
    node = Node(a=Run(0.4, wants=0.15), b=Run(0.4), c=Run(0.2, wants=0.05))
    node.live(20)
    settled = node.got()
    for _ in range(30):
        node.live(1)
        assert node.got() == pytest.approx(settled, abs=0.02)
    assert sum(settled.values()) == pytest.approx(1.0, abs=0.01)


def test_the_tightest_of_several_accelerators_counts() -> None:
    both = [AcceleratorShare("GPU-a", 0.3), AcceleratorShare("GPU-b", 0.3)]
    shares = {"wide": both, "a": [AcceleratorShare("GPU-a", 0.7)], "b": [AcceleratorShare("GPU-b", 0.3)]}
    assert AcceleratorPaces().paces(shares)["wide"] == pytest.approx(0.6, abs=0.01)
