"""Which version of an endpoint answers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tiercel.broker.lifecycle import endpoint as machine
from tiercel.broker.lifecycle import versions
from tiercel.broker.lifecycle.endpoint import DeliveryReport
from tiercel.broker.lifecycle.versions import REMEMBERED_VERSIONS, WantedModel
from tiercel.core.endpoints import KEPT_VERSIONS, Delivery, DeliveryState, Endpoint, Signature, Tensor, Verdict, Version
from tiercel.core.errors import InvalidSpecError, NotFoundError
from tiercel.core.jobs import Direction

IMAGES = Signature((Tensor("x", "FP32", (-1, 28, 28)),), (Tensor("y", "FP32", (-1, 10)),))


def version(number: int, value: float = 0.9, **rest: object) -> Version:
    values = {"direction": Direction.MAX, "node_id": "n1", "signature": IMAGES, **rest}
    return Version(number, "j1", 1, str(values.pop("metric", "accuracy")), value, 5.0, "ab", **values)  # type: ignore[arg-type]


def endpoint(*delivered: Version) -> Endpoint:
    known = Endpoint("digits", "alice")
    for each in delivered:
        known, _ = versions.with_version(known, each, may_replace=False)
    return replace(known, next_version=len(delivered) + 1)


def why(live: Version, new: Version) -> str:
    return versions.why_held(endpoint(live), new, may_replace=False)


def inputs(*tensors: Tensor) -> Signature:
    return Signature(tensors, IMAGES.outputs)


def test_a_worse_version_is_kept_and_does_not_answer() -> None:
    known, held = versions.with_version(endpoint(version(1, 0.961)), version(3, 0.06), may_replace=False)
    assert held == "0.06 is worse than 0.961 of version 1"
    assert (known.live_version, [each.version for each in known.versions]) == (1, [1, 3])
    assert known.versions[1].held == held
    assert versions.held_words(known, 3, held) == (
        "version 3 is kept but not live: 0.06 is worse than 0.961 of version 1; "
        "'tiercel models promote digits 3' lets it answer all the same"
    )


@pytest.mark.parametrize(
    ("direction", "value", "answers"),
    [(Direction.MAX, 0.95, True), (Direction.MAX, 0.9, True), (Direction.MAX, 0.89, False),
     (Direction.MIN, 0.95, False), (Direction.MIN, 0.5, True)],
)  # fmt: skip
def test_what_is_as_good_or_better_answers(direction: Direction, value: float, *, answers: bool) -> None:
    assert (why(version(1, direction=direction), version(2, value, direction=direction)) == "") is answers


def test_another_metric_or_direction_cannot_be_compared() -> None:
    assert "f1 (max) cannot be compared with accuracy (max) of version 1" in why(version(1), version(2, metric="f1"))
    assert "cannot be compared" in why(version(1), version(2, direction=Direction.MIN))
    assert why(version(1, direction=None), version(2)) == "", "stored before versions had a direction"


@pytest.mark.parametrize(
    ("signature", "words"),
    [
        (inputs(Tensor("x", "FP32", (-1, 4))), "'x' as FP32 [-1, 4], and version 1 took 'x' as FP32 [-1, 28, 28]"),
        (inputs(Tensor("x", "FP64", (-1, 28, 28))), "it takes 'x' as FP64"),
        (inputs(Tensor("x", "FP32", (1, 28, 28))), "it takes 'x' as FP32 [1, 28, 28]"),
        (inputs(Tensor("z", "FP32", (-1, 28, 28))), "it takes no 'x'"),
        (inputs(*IMAGES.inputs, Tensor("z", "FP32", (-1,))), "'z' as FP32 [-1] as well, which version 1 did not"),
        (Signature(IMAGES.inputs, (Tensor("y", "FP32", (-1, 3)),)), "it gives 'y' as FP32 [-1, 3]"),
        (Signature(IMAGES.inputs, (Tensor("y", "INT64", (-1, 10)),)), "it gives 'y' as INT64"),
        (Signature(IMAGES.inputs, ()), "it gives no 'y'"),
        (IMAGES, ""),
        (inputs(Tensor("x", "FP32", (-1, -1, 28))), ""),
        (inputs(Tensor("x", "FP32", None)), ""),
        (Signature(IMAGES.inputs, (*IMAGES.outputs, Tensor("more", "FP32", (-1,)))), ""),
        (Signature(IMAGES.inputs, (Tensor("y", "FP32", (-1, -1)),)), ""),
        (None, ""),
    ],
)  # fmt: skip
def test_a_better_version_answers_only_if_every_request_stays_valid(signature: Signature | None, words: str) -> None:
    reason = why(version(1), version(2, 0.99, signature=signature))
    assert words in reason
    assert bool(words) == bool(reason)


def test_whoever_says_replace_gets_it_unless_the_version_was_chosen() -> None:
    known = endpoint(version(1, 0.9), version(2, 0.95))
    other = version(3, 0.1, metric="f1", signature=Signature((), ()))
    replaced, held = versions.with_version(known, other, may_replace=True)
    assert (replaced.live_version, held) == (3, "")
    kept, held = versions.with_version(versions.rolled_back(known, None), other, may_replace=True)
    assert (kept.live_version, held) == (1, "version 1 was chosen and stays")


def test_variants_are_judged_apart() -> None:
    small, large = version(1, 0.8, variant="small"), version(2, 0.95, variant="large")
    known = endpoint(small, large, version(3, 0.85, variant="small"), version(4, 0.9, variant="large"))
    assert [(each.variant, each.version) for each in known.live] == [("large", 2), ("small", 3)]


def test_what_is_chosen_stays_until_the_newest_is_promoted() -> None:
    known = versions.rolled_back(endpoint(version(1, 0.9), version(2, 0.95)), None)
    assert (known.live_version, known.pinned) == (1, frozenset({""}))
    known, _ = versions.with_version(known, version(3, 0.99), may_replace=False)
    assert known.live_version == 1
    known = versions.promoted(known, None)
    assert (known.live_version, known.pinned) == (3, frozenset())
    known, held = versions.with_version(known, version(4, 0.999), may_replace=False)
    assert (known.live_version, held) == (4, "")


def test_to_go_back_skips_what_never_answered() -> None:
    known = endpoint(version(1, 0.9), version(2, 0.5), version(3, 0.95))
    assert versions.rolled_back(known, None).live_version == 1
    promoted = versions.promoted(known, 2)
    assert (promoted.live_version, promoted.pinned, promoted.versions[1].held) == (2, frozenset({""}), "")


def test_what_was_replaced_can_be_gone_back_to_however_old_it_is() -> None:
    known = versions.promoted(endpoint(version(1, 0.9), version(2, 0.95)), 1)
    for number in range(3, 10):
        known, _ = versions.with_version(known, version(number, 0.99), may_replace=False)
    assert [each.version for each in versions.kept(known)] == [1, 5, 6, 7, 8, 9]
    newest = versions.promoted(known, None)
    assert [each.version for each in versions.kept(newest)] == [1, 5, 6, 7, 8, 9], "the others never answered"
    assert versions.rolled_back(newest, None).live_version == 1
    after, _ = versions.with_version(newest, version(10, 0.995), may_replace=False)
    assert [each.version for each in versions.kept(after)] == [6, 7, 8, 9, 10]
    back = versions.promoted(after, 6)
    assert [each.version for each in versions.kept(back)] == [6, 7, 8, 9, 10], "what is gone does not come back"


def test_two_who_go_back_at_once_go_back_once() -> None:
    known = endpoint(*(version(number, number / 10) for number in (1, 2, 3)))
    first = versions.rolled_back(known, None, instead_of=3)
    assert first.live_version == 2
    assert versions.rolled_back(first, None, instead_of=3) == first
    assert versions.rolled_back(first, None, instead_of=2).live_version == 1


def test_what_cannot_answer_is_refused_in_words() -> None:
    known = endpoint(*(version(number, number / 100) for number in range(1, 9)))
    with pytest.raises(NotFoundError, match=r"no version 2 that can answer; there is 4, 5, 6, 7, 8"):
        versions.promoted(known, 2)
    with pytest.raises(NotFoundError, match="no earlier version"):
        versions.rolled_back(endpoint(version(1)), None)
    with pytest.raises(NotFoundError, match="there is none"):
        versions.promoted(Endpoint("digits", "alice"), None)
    variants = endpoint(version(1, variant="small"), version(2, variant="large"))
    with pytest.raises(InvalidSpecError, match="say which version"):
        versions.rolled_back(variants, None)
    moved = endpoint(version(1, variant="small"), version(2, 0.95, variant="small", node_id="n2"))
    with pytest.raises(
        InvalidSpecError, match="are on node n1, and the variants of endpoint 'digits' answer on node n2"
    ):
        versions.promoted(moved, 1)


def test_files_of_a_few_versions_are_kept_and_of_the_one_that_answers() -> None:
    known = versions.promoted(endpoint(version(1, 0.9), version(2, 0.95)), 1)
    for number in range(3, REMEMBERED_VERSIONS + 20):
        known, _ = versions.with_version(known, version(number, 0.99), may_replace=False)
    newest = REMEMBERED_VERSIONS + 19
    expected = [1, *range(newest - KEPT_VERSIONS + 1, newest + 1)]
    assert [each.version for each in versions.kept(known)] == expected
    assert len(known.versions) == REMEMBERED_VERSIONS
    assert versions.wanted_models(known) == {"n1": (WantedModel("digits", "", 1, tuple(expected)),)}


def test_a_node_that_an_endpoint_has_left_is_told_that_none_shall_answer_there() -> None:
    known = endpoint(version(1, 0.9), version(2, 0.8, node_id="n2"))
    assert versions.wanted_models(known) == {
        "n1": (WantedModel("digits", "", 1, (1,)),),
        "n2": (WantedModel("digits", "", 0, (2,)),),
    }
    known, _ = versions.with_version(known, version(3, 0.95, node_id="n2"), may_replace=False)
    assert known.node_id == "n2"
    assert versions.wanted_models(known) == {
        "n1": (WantedModel("digits", "", 0, (1,)),),
        "n2": (WantedModel("digits", "", 3, (2, 3)),),
    }
    back = versions.rolled_back(known, None)
    assert (back.node_id, versions.wanted_models(back)["n2"]) == ("n1", (WantedModel("digits", "", 0, (2, 3)),))


def loading(value: float, sha256: str = "ab") -> DeliveryReport:
    return DeliveryReport(DeliveryState.LOADING, value=value, sha256=sha256, signature=IMAGES)


def hear(known: Endpoint, delivery: Delivery, report: DeliveryReport, *others: Delivery) -> tuple[Endpoint, Delivery]:
    return machine.progress(
        known, delivery, report, metric="accuracy", node_id="n1", now=9.0, direction=Direction.MAX, others=others
    )


def test_a_model_is_judged_before_it_answers() -> None:
    known, good = machine.request(endpoint(version(1, 0.9)), "j2", 1, 0.1, 1.0)
    _, bad = machine.request(known, "j2", 2, 0.1, 1.0)
    assert hear(known, good, DeliveryReport(DeliveryState.LOADING))[1].verdict is Verdict.OPEN, "nobody said what it is"
    assert hear(known, good, loading(0.95))[1].verdict is Verdict.LIVE
    known, bad = hear(known, bad, loading(0.2))
    assert (bad.verdict, bad.state, known.live_version) == (Verdict.HELD, DeliveryState.LOADING, 1)
    known, bad = hear(known, bad, DeliveryReport(DeliveryState.DELIVERED, 0.2, "ab", signature=IMAGES))
    assert (bad.state, known.live_version) == (DeliveryState.DELIVERED, 1)
    assert bad.reason.startswith("version 3 is kept but not live: 0.2 is worse")


def test_a_model_that_another_node_hands_over_is_judged_anew() -> None:
    known, delivery = machine.request(endpoint(version(1, 0.9)), "j2", 1, 0.1, 1.0)
    _, delivery = hear(known, delivery, loading(0.95))
    delivery = machine.forget_verdict(delivery)
    assert hear(known, delivery, loading(0.2))[1].verdict is Verdict.HELD


def test_two_tiers_of_one_model_are_one_version() -> None:
    known, first = machine.request(Endpoint("digits", "alice"), "j1", 1, 0.8, 1.0)
    known, second = machine.request(known, "j1", 2, 0.9, 1.0)
    known, first = hear(known, first, loading(0.95))
    known, second = hear(known, second, loading(0.95), first)
    assert (second.verdict, second.state) == (Verdict.OPEN, DeliveryState.LOADING), "it waits for the other one"
    known, first = hear(known, first, DeliveryReport(DeliveryState.DELIVERED, 0.95, "ab"))
    known, second = hear(known, second, machine.facts_of(second), first, second)
    assert (second.state, second.version, second.value) == (DeliveryState.DELIVERED, 1, 0.95)
    assert (known.next_version, [each.version for each in known.versions]) == (2, [1])


def test_a_tier_whose_twin_failed_is_delivered_by_itself() -> None:
    known, first = machine.request(Endpoint("digits", "alice"), "j1", 1, 0.8, 1.0)
    known, second = machine.request(known, "j1", 2, 0.9, 1.0)
    _, first = hear(known, first, loading(0.95))
    _, second = hear(known, second, loading(0.95), first)
    _, first = hear(known, first, DeliveryReport(DeliveryState.FAILED, reason="no room"))
    assert hear(known, second, machine.facts_of(second), first)[1].verdict is Verdict.LIVE
    other_job = replace(first, job_id="j9", state=DeliveryState.DELIVERED)
    assert hear(known, second, machine.facts_of(second), other_job)[1].verdict is Verdict.LIVE


def test_what_is_removed_or_beyond_what_is_kept_is_gone_for_good_and_what_answers_stays() -> None:
    known = endpoint(*(version(number, 0.9 + number / 100) for number in range(1, 8)))
    less = versions.removed(known, 5)
    assert [each.version for each in versions.kept(less)] == [3, 4, 6, 7]  # 2 is gone already, and does not come back
    assert next(each.removed for each in less.versions if each.version == 5)
    for number, error, words in (
        (7, InvalidSpecError, "version 7 is what answers"),
        (5, NotFoundError, "no files of version 5; it keeps 3, 4, 6, 7"),
        (8, NotFoundError, "no files of version 8"),
    ):
        with pytest.raises(error, match=words):
            versions.removed(less, number)
    with pytest.raises(NotFoundError, match="no version 5 that can answer"):
        versions.promoted(less, 5)
    few = versions.keeping(versions.promoted(less, 4), 1)
    assert [each.version for each in versions.kept(few)] == [4, 7]
    assert [each.version for each in versions.kept(versions.keeping(few, 100))] == [4, 7]
    for count in (0, -1, 101):
        with pytest.raises(InvalidSpecError, match="give 1 to 100"):
            versions.keeping(few, count)


def test_the_newest_version_can_be_pinned_until_another_one_is_promoted() -> None:
    known = versions.promoted(endpoint(version(1, 0.9), version(2, 0.95)), None, pin=True)
    assert (known.live_version, known.pinned) == (2, frozenset({""}))
    known, why_not = versions.with_version(known, version(3, 0.99), may_replace=True)
    assert (known.live_version, why_not) == (2, "version 2 was chosen and stays")
    assert versions.promoted(known, 1, pin=True).live_version == 1
    assert versions.promoted(known, None).pinned == frozenset()
