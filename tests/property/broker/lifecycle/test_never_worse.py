"""Whatever is delivered, in whatever order, and whatever is chosen between: no worse version answers by itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tiercel.broker.lifecycle import versions
from tiercel.core.endpoints import Endpoint, Signature, Tensor, Version
from tiercel.core.errors import TiercelError
from tiercel.core.jobs import Direction
from tiercel.core.storage import from_json, to_json

SHAPES = st.sampled_from([None, (-1, 4), (1, 4), (-1, -1), (-1, 5), (4,)])
DELIVERED = st.tuples(st.integers(0, 5), st.sampled_from(["accuracy", "f1"]), SHAPES, st.sampled_from(["n1", "n2"]))
STEPS = st.lists(st.one_of(DELIVERED, st.integers(0, 12), st.just("back")), max_size=30)
REQUESTS = [(rows, columns) for rows in (1, 2) for columns in (4, 5)]


def takes(version: Version, request: tuple[int, ...]) -> bool:
    assert version.signature is not None
    shape = version.signature.inputs[0].shape
    return shape is None or (
        len(shape) == len(request) and all(axis in (-1, size) for axis, size in zip(shape, request, strict=True))
    )


@given(STEPS, st.sampled_from(Direction))
def test_never_worse(
    steps: list[tuple[int, str, tuple[int, ...] | None, str] | int | str], direction: Direction
) -> None:
    endpoint = Endpoint("digits", "alice")
    for number, step in enumerate(steps, start=1):
        before = endpoint.live_of("")
        if isinstance(step, tuple):
            value, metric, shape, node_id = step
            signature = Signature((Tensor("x", "FP32", shape),), ())
            new = Version(
                number, "j", 1, metric, float(value), 1.0, "ab", direction, node_id=node_id, signature=signature
            )
            endpoint, held = versions.with_version(endpoint, new, may_replace=False)
            live = endpoint.live_of("")
            assert live is not None
            assert (live.version == number) == (not held)
            if before is not None and live != before:
                assert not endpoint.pinned
                assert live.value is not None
                assert before.value is not None
                assert (live.metric, direction.reaches(live.value, before.value)) == (before.metric, True)
                assert all(takes(live, request) for request in REQUESTS if takes(before, request))
        else:
            try:
                chosen = (
                    versions.rolled_back(endpoint, None)
                    if isinstance(step, str)
                    else versions.promoted(endpoint, step or None)
                )
            except TiercelError:
                continue
            endpoint = chosen
            if isinstance(step, int) and step:
                assert endpoint.live_version == step
        endpoint = from_json(Endpoint, to_json(endpoint))  # the broker is killed at any moment
        answering = [model.version for models in versions.wanted_models(endpoint).values() for model in models]
        assert sorted(filter(None, answering)) == [endpoint.live_version], "one node answers, with the live version"
        assert endpoint.live_version in {each.version for each in versions.kept(endpoint)}
