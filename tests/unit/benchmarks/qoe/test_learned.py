from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.qoe import learned
from benchmarks.qoe.learned import LearnedScheduler, Policy, PolicyRefusedError, kept_policy
from benchmarks.qoe.observation import FEATURES, HEURISTIC, KINDS, VARIANTS, WAIT, Observer, action_of, decision_of
from testing import onnx_models
from tiercel.serving.scheduling.heuristic import HeuristicScheduler
from tiercel.serving.scheduling.interface import BATCHES, Choice, Profile, View, WorkerKind
from tiercel.serving.scheduling.utility import utility

SLOW = Profile("slow", 0.9, tuple(0.02 + 0.08 * batch for batch in BATCHES))
FAST = Profile("fast", 0.6, tuple(0.005 + 0.005 * batch for batch in BATCHES))
VIEW = View((WorkerKind((SLOW, FAST), (0.0, 0.05)),), 0.5, utility("soft"), 6, 0.2, 0.15, 0.1, 40.0, 60.0)
QUICKER = tuple(Profile(each.name, each.accuracy, tuple(one / 3 for one in each.seconds)) for each in (SLOW, FAST))
MIXED = replace(VIEW, kinds=(*VIEW.kinds, WorkerKind(QUICKER, (0.02,))))


def scaled(view: View, factor: float) -> View:
    def slower(profile: Profile) -> Profile:
        return Profile(profile.name, profile.accuracy, tuple(one * factor for one in profile.seconds))

    return replace(
        view,
        kinds=tuple(
            WorkerKind(tuple(map(slower, kind.profiles)), tuple(each * factor for each in kind.busy))
            for kind in view.kinds
        ),
        objective=view.objective * factor,
        oldest=view.oldest * factor,
        p90=view.p90 * factor,
        median=view.median * factor,
        rate=view.rate / factor,
        recent_rate=view.recent_rate / factor,
    )


def observer_of(view: View) -> Observer:
    return Observer(view.kinds, view.objective, view.utility)


def test_the_policy_that_is_kept_is_small_and_decides_the_same_every_time() -> None:
    assert learned.POLICY.stat().st_size < 100_000
    decisions = {LearnedScheduler(kept_policy()).decide(VIEW) for _ in range(3)}
    assert len(decisions) == 1


@pytest.mark.parametrize("view", [VIEW, MIXED])
def test_the_observation_does_not_change_with_the_unit_of_time(view: View) -> None:
    rows = observer_of(view).observe(view)
    slower = scaled(view, 37.0)
    other = observer_of(slower).observe(slower)
    assert rows.shape == (1 + len(view.kinds) * VARIANTS * len(BATCHES), FEATURES)
    np.testing.assert_allclose(rows, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("view", [VIEW, MIXED])
def test_one_row_is_marked_as_the_heuristics_choice(view: View) -> None:
    rows = observer_of(view).observe(view)
    chosen = HeuristicScheduler().decide(view)
    assert np.flatnonzero(rows[:, HEURISTIC]).tolist() == [action_of(chosen, view.count)]


def test_two_kinds_that_take_equally_long_are_seen_as_one_with_all_of_the_workers_is() -> None:
    first, second = VIEW.kinds[0].busy
    split = replace(VIEW, kinds=tuple(WorkerKind(VIEW.variants, (each,)) for each in (first, second)))
    on_the_free_one = slice(1, 1 + len(VIEW.variants) * len(BATCHES))
    rows, together = (observer_of(view).observe(view)[on_the_free_one, :HEURISTIC] for view in (split, VIEW))
    np.testing.assert_allclose(rows, together, rtol=1e-5)


def test_only_free_workers_can_be_chosen() -> None:
    allowed = observer_of(MIXED).allowed(MIXED)
    decisions = [decision_of(action) for action in np.flatnonzero(allowed).tolist()]
    assert {decision.kind for decision in decisions if decision is not None} == {0}


@pytest.mark.parametrize("kind", range(KINDS))
def test_an_action_stands_for_one_decision(kind: int) -> None:
    decision = Choice(1, 4, kind)
    assert decision_of(action_of(decision, 64)) == decision


@pytest.mark.parametrize(("count", "largest"), [(1, 1), (2, 2), (3, 4), (64, 64), (500, 64)])
def test_no_batch_is_allowed_that_a_smaller_one_already_fills(count: int, largest: int) -> None:
    view = replace(VIEW, count=count)
    allowed = observer_of(view).allowed(view)
    decisions = [decision_of(action) for action in np.flatnonzero(allowed).tolist()]
    assert max(decision.batch for decision in decisions if decision is not None) == largest
    assert {decision.variant for decision in decisions if decision is not None} == {0, 1}


def test_waiting_is_allowed_only_while_nobody_is_late_for_it() -> None:
    observer = observer_of(VIEW)
    assert observer.allowed(VIEW)[WAIT]
    assert not observer.allowed(replace(VIEW, oldest=0.45))[WAIT]


def test_with_more_variants_than_fit_it_decides_like_the_heuristic() -> None:
    profiles = tuple(replace_accuracy(SLOW, index) for index in range(5))
    view = replace(VIEW, kinds=(WorkerKind(profiles, (0.0,)),))
    assert LearnedScheduler(kept_policy()).decide(view) == HeuristicScheduler().decide(view)


def replace_accuracy(profile: Profile, index: int) -> Profile:
    return Profile(f"{profile.name}{index}", 0.9 - 0.1 * index, profile.seconds)


def test_a_policy_that_was_changed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "policy.onnx"
    path.write_bytes(learned.POLICY.read_bytes() + b"x")
    with pytest.raises(PolicyRefusedError, match=r"policy policy.onnx has SHA-256 [0-9a-f]{64}, but 0+ is expected"):
        Policy(path, "0" * 64)


def test_a_policy_for_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "policy.onnx"
    for content, message in ((onnx_models.plus(1.0), "takes"), (b"x", "cannot be loaded")):
        path.write_bytes(content)
        with pytest.raises(PolicyRefusedError, match=message):
            Policy(path, hashlib.sha256(content).hexdigest())
    with pytest.raises(PolicyRefusedError, match="cannot be read"):
        Policy(tmp_path / "none.onnx", "")


def test_the_policy_that_is_kept_says_nothing_of_the_machine_that_made_it() -> None:
    assert b".py" not in learned.POLICY.read_bytes()
