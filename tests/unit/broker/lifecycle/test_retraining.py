"""What is submitted again, what its models have to be better than, and what is told where nothing is done."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testing.jobs import AT, after, assigned, new_job, run_of
from tiercel.broker.lifecycle import machine, retraining, versions
from tiercel.broker.lifecycle.job_events import RunIsAlive, Ticked, UsageMeasured
from tiercel.broker.lifecycle.promises import judged
from tiercel.core.endpoints import Endpoint, Signature, Tensor, Version
from tiercel.core.feedback import VersionFeedback
from tiercel.core.figures import compared
from tiercel.core.jobs import Direction, Job, JobState, Tier
from tiercel.core.retraining import Retrain, Retraining, RetrainingState, Retrains

TERMS = Retrain(2.0, below=0.9)
VERSION = Version(1, "j1", 1, "accuracy", 0.93, 1.0, "ab", Direction.MAX, target=0.9, retrain=TERMS)
DIGITS = Endpoint("digits", "alice", 2, (VERSION,), "n1")
BAD = {1: VersionFeedback(1, 400, 280)}  # 0.653 to 0.743
MISSED = judged(DIGITS, BAD, AT)[0]
HOUR = 3600.0


def words_of(endpoint: Endpoint, heard: dict[int, VersionFeedback] | None = None, now: float = AT) -> str:
    one, words = retraining.decided(endpoint, BAD if heard is None else heard, {}, now, "j9")
    assert one is None
    return words


def over(state: RetrainingState, at: float = AT, used: float = HOUR / 2) -> Retraining:
    return Retraining(f"j{at:g}", 1, 0.75, at, HOUR, state, used, at)


def test_a_version_that_is_too_seldom_right_is_trained_again_and_what_that_may_use_is_set_aside() -> None:
    one, words = retraining.decided(MISSED, BAD, {}, AT, "j9")
    assert one == Retraining("j9", 1, 0.7429, AT, 2 * HOUR)
    assert words == "version 1 is less often right in use than it should be, 0.7429 at most: job j9 trains it again"
    assert words_of(replace(MISSED, retrainings=(one,))) == words, "one at a time"


def test_whoever_asked_is_told_why_nothing_is_done() -> None:
    late = AT + 10 * HOUR
    failed = over(RetrainingState.FAILED)
    vain = (failed, replace(failed, job_id="j8", state=RetrainingState.REPLACED))
    cancelled = (over(RetrainingState.CANCELLED),)
    few = tuple(over(RetrainingState.HELPED, AT + n * HOUR, 0.0) for n in range(3))
    some = over(RetrainingState.HELPED, used=1.5 * HOUR)
    for endpoint, heard, now, words in (
        (replace(DIGITS, versions=(replace(VERSION, retrain=None),)), BAD, AT, ""),
        (DIGITS, {}, AT, "applications have not said of 30 rows yet what was right"),
        (DIGITS, {1: VersionFeedback(1, 400, 370)}, AT, "version 1 is right as often as 0.9, as far as can be told"),
        (MISSED, {}, AT, "less often right than 0.9: nothing begins before feedback on 30 rows"),
        (replace(MISSED, pinned=frozenset({""})), BAD, AT, "it was chosen and stays; promote the newest"),
        (replace(MISSED, retrainings=cancelled), BAD, late * 9, "was cancelled; 'tiercel retry"),
        (replace(MISSED, retrainings=vain[:1]), BAD, AT + 3 * HOUR, "did not help; the next from 1970-01-01 04:16"),
        (replace(MISSED, retrainings=vain), BAD, AT + 7 * HOUR, "the next from 1970-01-01 08:16"),
        (replace(MISSED, retrainings=few), BAD, late, "3 retrainings in 1d is what retrain.at_most allows"),
        (
            replace(MISSED, retrainings=(some,)),
            BAD,
            late,
            "0.5 of 2 core-hours in 1d are left, and none",
        ),
    ):
        assert words in words_of(endpoint, heard, now)
        assert bool(words) == bool(words_of(endpoint, heard, now))
    feeding = retraining.decided(MISSED, BAD, {"": "j5"}, AT, "j9")
    assert feeding == (None, "version 1 is less often right than 0.9: job j5 feeds the endpoint already")


def test_what_answered_before_retrainings_that_did_not_help_can_be_gone_back_to() -> None:
    endpoint = replace(DIGITS, keep=2)
    for number in range(2, 9):
        new = replace(VERSION, version=number, job_id=f"j{number}", value=0.93 + number / 1000)
        vain = replace(over(RetrainingState.REPLACED, AT + number), job_id=new.job_id, version=number - 1)
        endpoint = versions.with_version(endpoint, new, may_replace=False)[0]
        endpoint = replace(endpoint, retrainings=retraining.with_one(endpoint.retrainings, vain))
    assert [each.version for each in versions.kept(endpoint)] == [1, 7, 8]
    assert versions.rolled_back(endpoint, 1).live_version == 1
    helped = replace(endpoint.retrainings[-1], state=RetrainingState.HELPED)
    helped_at_last = replace(endpoint, retrainings=retraining.with_one(endpoint.retrainings, helped))
    assert [each.version for each in versions.kept(helped_at_last)] == [7, 8]


def test_a_clock_that_was_ahead_holds_nothing_up_for_longer_than_a_window() -> None:
    ahead = AT + 3650 * 24 * HOUR
    future = tuple(over(RetrainingState.FAILED, ahead + n * HOUR, 2 * HOUR) for n in range(3))
    one, _ = retraining.decided(replace(MISSED, retrainings=future), BAD, {}, AT, "j9")
    assert one is not None
    assert one.granted_seconds == 2 * HOUR
    begun = retraining.with_one(future, one)
    assert begun[-1] == one, "the last is the one that was decided on last, whatever the clock said before"
    failed = replace(one, state=RetrainingState.FAILED, over_at=AT + HOUR)
    known = retraining.with_one(begun, failed)
    assert known == (*future, failed)
    assert f"the last retraining ({one.job_id}) did not help" in words_of(
        replace(MISSED, retrainings=known), now=AT + HOUR
    )
    an_hour = tuple(over(RetrainingState.HELPED, AT + n * HOUR, 0.0) for n in range(3))
    assert "retrain.at_most allows" in words_of(replace(MISSED, retrainings=an_hour), now=AT - HOUR)


def test_a_retraining_has_helped_once_what_it_brought_is_known_to_be_right() -> None:
    known = over(RetrainingState.REPLACED)
    brought = replace(VERSION, version=2, job_id=known.job_id)
    endpoint = replace(DIGITS, versions=(VERSION, brought), retrainings=(known,))
    for right, rows, is_known in ((29, 29, False), (80, 100, False), (90, 100, True)):
        found = retraining.helped(endpoint, {2: VersionFeedback(2, rows, right)}, {})
        assert found == (known if is_known else None)
    assert retraining.helped(DIGITS, {}, {}) is None


def test_what_a_retraining_did_not_use_is_free_again() -> None:
    one, _ = retraining.decided(
        replace(MISSED, retrainings=(over(RetrainingState.HELPED, used=HOUR / 4),)), BAD, {}, AT + HOUR, "j9"
    )
    assert one is not None
    assert one.granted_seconds == 1.75 * HOUR


def test_its_first_tier_is_to_be_better_than_what_answers_and_the_tenants_own_come_back_with_the_next() -> None:
    job = new_job(tiers=(Tier(0.7), Tier(0.9, 3.0), Tier(0.95)), retrain=TERMS, labels={"sweep": "7"}, queue=True)
    spec, retrains = retraining.again(job, over(RetrainingState.DECIDED))
    assert spec.tiers == (Tier(0.75, 3.0), Tier(0.9, 3.0), Tier(0.95))
    assert spec.labels == {"sweep": "7", "tiercel/repeats": "j1", "tiercel/retrains": "1"}
    assert (retrains, spec.queue) == (Retrains(1, 0.75, HOUR, job.spec.tiers), False)
    second = machine.create("j2", "alice", spec, AT, retrains=retrains)[0]
    lower = replace(over(RetrainingState.DECIDED), floor=0.6)
    assert retraining.again(second, lower)[0].tiers == (Tier(0.6), *job.spec.tiers)
    higher = replace(lower, floor=0.97)
    assert retraining.again(second, higher)[0].tiers == (Tier(0.97),)


@pytest.mark.parametrize(
    ("value", "target", "below"),
    [
        (0.93, 0.9, 0.9),
        (0.96, 0.9, 0.95),  # two tiers that one model reaches
        (0.93, None, 0.9),  # beyond the tiers
        (0.949, 0.95, 0.95),  # as measured on the exported model
        (0.86, 0.7, 0.9),  # a retraining that is better than what answered
        (0.86, None, 0.9),
    ],
)
def test_a_version_is_trained_again_below_the_hardest_tier_that_it_reaches_and_else_below_the_easiest(
    value: float, target: float | None, below: float
) -> None:
    assert retraining.Terms(Retrain(1.0), (0.9, 0.95)).of_version(value, target).below == below
    assert retraining.Terms(Retrain(1.0, below=0.8), (0.9,)).of_version(value, target).below == 0.8


def test_the_best_model_of_a_retraining_is_judged_by_what_answers_is_worth_now() -> None:
    known = over(RetrainingState.UNDERWAY)
    trained = replace(new_job(), id=known.job_id, state=JobState.MISSED)
    spent = replace(trained, retrains=Retrains(1, 0.75, 0.0))

    def better(
        *values: float, endpoint: Endpoint = MISSED, heard: dict[int, VersionFeedback] | None = None, job: Job = trained
    ) -> int | None:
        for number, value in enumerate(values, start=2):
            new = replace(VERSION, version=number, job_id=known.job_id, value=value, signature=Signature((), ()))
            endpoint, held = versions.with_version(endpoint, new, may_replace=False)
            assert (
                held == f"{compared(value, 0.93)[0]} is worse than {compared(value, 0.93)[1]} of version 1"
                or endpoint.pinned
            )
        found = retraining.better_one(endpoint, known, BAD if heard is None else heard, job)
        after = versions.let_answer(endpoint, found.version, 1) if found is not None else endpoint
        assert (after.live_version, after.pinned) == (found.version if found else 1, endpoint.pinned)
        return found.version if found is not None else None

    assert better(0.75, 0.85) == 3, "0.93 was measured on data of before"
    assert better(0.72) is None, "version 1 may be right as often as 0.743"
    assert better(0.72, heard={}) is None, "a broker that began anew knows what it heard"
    assert better(0.72, heard={1: VersionFeedback(1, 400, 200)}) == 2, "version 1 got worse since"
    assert better(0.85, endpoint=DIGITS) is None, "its promise is kept"
    assert better(0.85, endpoint=replace(MISSED, pinned=frozenset({""}))) is None
    running = replace(trained, state=JobState.RUNNING)
    assert (better(0.75, 0.85, job=running), better(0.75, 0.91, job=running)) == (None, 3), "0.9 was promised"
    assert (better(0.85, job=spent), better(0.91, job=spent)) == (None, 2), "cut short, as if labels were wrong"
    assert better(0.85, job=replace(trained, state=JobState.CANCELLED)) is None
    other = replace(VERSION, signature=Signature((Tensor("x", "FP32", (-1, 4)),), ()))
    assert better(0.85, endpoint=replace(MISSED, versions=(other,))) is None, "it takes something else"
    moved = versions.with_version(MISSED, replace(VERSION, version=2, value=0.95), may_replace=False)[0]
    assert versions.let_answer(moved, 1, 1) is moved, "something else answers meanwhile"


def test_a_retraining_that_has_used_all_that_it_may_ends_as_after_its_last_epoch() -> None:
    job = replace(new_job(), retrains=Retrains(1, 0.75, 100.0, ()))
    job = after(job, assigned(), RunIsAlive("j1-1"), UsageMeasured("j1-1", 99.0))
    assert run_of(after(job, Ticked())).finishing_from is None
    job = after(job, UsageMeasured("j1-1", 101.0), Ticked())
    assert run_of(job).finishing_from is not None
    assert (job.state, job.stop_outcome) == (JobState.RUNNING, None)
    assert job.reason.startswith("the 0.0278 core-hours that this retraining may use are spent")


def test_what_became_of_a_retraining_follows_from_its_job_and_from_what_it_replaced() -> None:
    known = over(RetrainingState.UNDERWAY)
    job = replace(new_job(), state=JobState.MISSED)
    answers = replace(VERSION, version=2, job_id=known.job_id)
    for endpoint, found, state in (
        (DIGITS, replace(job, state=JobState.RUNNING), RetrainingState.UNDERWAY),
        (DIGITS, job, RetrainingState.FAILED),
        (DIGITS, replace(job, state=JobState.CANCELLED), RetrainingState.CANCELLED),
        (DIGITS, None, RetrainingState.FAILED),
        (replace(DIGITS, versions=(VERSION, answers)), job, RetrainingState.REPLACED),
        (replace(DIGITS, versions=(VERSION, replace(answers, held="worse"))), job, RetrainingState.FAILED),
    ):
        assert retraining.settled(endpoint, known, found, AT).state is state
    assert retraining.settled(DIGITS, known, None, AT).cost_seconds == HOUR, "nobody knows what it used"
