"""Whatever is said of answers and becomes of jobs: never more than the budget, never two at a time, never worse."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from testing.jobs import new_job
from tiercel.broker.lifecycle import promises, retraining, versions
from tiercel.core.endpoints import Endpoint, Version
from tiercel.core.feedback import VersionFeedback
from tiercel.core.jobs import Direction, JobState
from tiercel.core.retraining import Retrain, RetrainingState
from tiercel.core.storage import from_json, to_json

TERMS = st.builds(
    Retrain,
    budget_core_hours=st.floats(0.01, 10.0),
    below=st.floats(0.5, 1.0),
    at_most=st.integers(1, 5),
    window_seconds=st.sampled_from([60.0, 3600.0, 86400.0]),
)
TRAINED = new_job()
SAID = st.tuples(st.integers(0, 300), st.floats(0.0, 1.0))  # rows of the live version, and the part that is right
OVER = st.tuples(
    st.sampled_from([RetrainingState.REPLACED, RetrainingState.FAILED, RetrainingState.CANCELLED]),
    st.floats(0.0, 1.0),  # of what it may use
    st.floats(0.0, 1.0),  # how good its model is
)
# A while passes, as a part of a window; then something is said, and a retraining that is open may end.
STEPS = st.lists(st.tuples(st.floats(0.0, 1.5), SAID, st.none() | OVER), max_size=40)


@given(TERMS, STEPS)
def test_never_more_than_the_budget_and_never_two_at_a_time(
    terms: Retrain, steps: list[tuple[float, tuple[int, float], tuple[RetrainingState, float, float] | None]]
) -> None:
    first = Version(1, "j0", 1, "accuracy", 0.9, 1.0, "ab", Direction.MAX, target=0.9, retrain=terms)
    endpoint, now, numbers = Endpoint("digits", "alice", 2, (first,), "n1"), 1e6, itertools.count(1)
    begun = {}
    for part, (rows, right), over in steps:
        now += part * terms.window_seconds
        live = before = endpoint.live[0]
        heard = {live.version: VersionFeedback(live.version, rows, round(rows * right))} if rows else {}
        endpoint, _ = promises.judged(endpoint, heard, now)
        known = retraining.open_one(endpoint)
        if known is not None and over is not None:
            state, used, value = over
            if state is RetrainingState.REPLACED:
                new = replace(live, version=live.version + 1, value=value, job_id=known.job_id, sha256=known.job_id)
                endpoint, _ = versions.with_version(endpoint, new, may_replace=False)
            job = replace(TRAINED, id=known.job_id, state=JobState.MISSED)
            if better := retraining.better_one(endpoint, known, heard, job):
                endpoint = versions.let_answer(endpoint, better.version, known.version)
                assert endpoint.live[0] == replace(better, held="")
            worth = promises.best_in_use(endpoint, known.version, heard)
            if (live := endpoint.live[0]).job_id == known.job_id:
                assert (live.value or 0.0) >= min(before.value or 0.0, worth if worth is not None else math.inf)
            state = retraining.settled(endpoint, known, job, now).state
            ended = replace(known, state=state, used_seconds=used * known.granted_seconds, over_at=now)
            endpoint = replace(endpoint, retrainings=retraining.with_one(endpoint.retrainings, ended))
            begun[known.job_id] = ended
        if last := retraining.helped(endpoint, heard, {}):
            good = replace(last, state=RetrainingState.HELPED)
            endpoint = replace(endpoint, retrainings=retraining.with_one(endpoint.retrainings, good))
        one, words = retraining.decided(endpoint, heard, {}, now, f"j{next(numbers)}")
        assert words, "somebody asked for it, and is told"
        if one is not None:
            assert retraining.open_one(endpoint) is None
            assert heard[endpoint.live[0].version].rows >= promises.LEAST_ROWS
            assert one.floor >= promises.best_in_use(endpoint, one.version, heard)  # type: ignore[operator]
            endpoint = replace(endpoint, retrainings=retraining.with_one(endpoint.retrainings, one))
            begun[one.job_id] = one
        endpoint = from_json(Endpoint, to_json(endpoint))  # all of it survives the broker
    for last in begun.values():
        window = [b for b in begun.values() if last.decided_at - terms.window_seconds < b.decided_at <= last.decided_at]
        assert len(window) <= terms.at_most
        assert math.fsum(b.cost_seconds for b in window) <= terms.budget_core_hours * 3600 * (1 + 1e-9)
