from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tiercel.trainer_agent.reports.kept import KeptReports
from tiercel.trainer_agent.reports.sieve import Goal
from tiercel.v1 import nodes_pb2


def report(sequence: int, value: float, *, padding: int = 0) -> nodes_pb2.Progress:
    return nodes_pb2.Progress(run_id="a-1" + "x" * padding, sequence=sequence, metrics={"score": value})


@given(
    st.lists(st.tuples(st.floats(allow_infinity=False), st.integers(0, 300)), min_size=1, max_size=60),
    st.booleans(),
)
def test_kept_reports_are_bounded_in_number_and_bytes_and_have_the_best_and_the_newest(
    reported: list[tuple[float, int]], less_is_better: bool
) -> None:
    goal = Goal("score", smaller_is_better=less_is_better, targets=())
    kept = KeptReports(goal, limit=8, limit_bytes=1000)
    for sequence, (value, padding) in enumerate(reported, start=1):
        kept.add(report(sequence, value, padding=padding))
    sequences = [each.sequence for each in kept]
    assert sequences == sorted(set(sequences))
    assert sequences[-1] == len(reported)
    # The first that is no number fails the job, and stays beside the others.
    assert len(kept) <= 9
    assert sum(each.ByteSize() for each in kept) <= 1000 or len(kept) <= 3
    numbers = [value for value, _ in reported if value == value]
    if numbers:
        best = min(numbers) if less_is_better else max(numbers)
        assert best in [each.metrics["score"] for each in kept]


def test_the_next_one_is_found_by_its_sequence() -> None:
    kept = KeptReports(Goal("score", smaller_is_better=False, targets=()))
    for sequence in (3, 5, 9):
        kept.add(report(sequence, 0.5))
    following = [kept.after(sequence) for sequence in (0, 3, 4, 5, 9)]
    assert [each.sequence if each is not None else None for each in following] == [3, 5, 5, 9, None]
