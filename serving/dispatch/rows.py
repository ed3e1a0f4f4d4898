"""From calls to one run and back: inputs are joined along the first axis, outputs are handed out as views. Blocking."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiercel.core.errors import InferenceFailedError, TiercelError, TooLargeError
from tiercel.serving.accounting.model_statistics import ModelStatistics
from tiercel.serving.dispatch.call import Call, Outcome
from tiercel.serving.explaining.recent_requests import RunTimes
from tiercel.serving.runtime.engine import Session
from tiercel.serving.tensors import Array

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Ran:
    """What a run gave."""

    outcomes: Sequence[Outcome]  # outputs, or the error, of each call, in the order of the calls
    rows: int  # rows of all calls together
    together: bool  # whether it was one run; not after a batch failed and each call was run again by itself
    compute_input: float  # seconds in which inputs were joined
    compute_infer: float  # seconds in which the model ran
    compute_output: float  # seconds in which outputs were taken apart
    began: float  # when inputs began to be joined, seconds of ``time.perf_counter``
    cpu: float = 0.0  # CPU seconds of all that; 0 where it was not measured
    # Seconds that an accelerator was kept for it, and for runs of that session that nobody counted yet.
    accelerator: float = 0.0

    def times(self, requests: int) -> RunTimes:
        """For those who ask what became of one of so many requests."""
        joining = self.compute_input + self.compute_output
        return RunTimes(self.began, joining, self.compute_infer, requests, self.rows)

    def count(self, statistics: ModelStatistics, answered: int, rows: int, delays: float, now: float) -> None:
        """Count the run and what it answered.

        Args:
            statistics: Of the version that ran.
            answered: How many requests it answered; those that failed are counted by whoever answers them.
            rows: Their rows, added up.
            delays: Seconds from their arrival, added up.
            now: The clock.
        """
        if not answered:
            return
        infer = self.compute_infer
        if self.together:
            statistics.executed(self.rows, infer, self.compute_input, self.compute_output)
        else:
            for _ in range(answered):
                statistics.executed(1, infer / answered)
        statistics.succeeded(now, delays, infer, rows, self.compute_input, self.compute_output, answered)


def ran_or_failed(result: Ran | Exception, calls: Sequence[Call], rows: int) -> Ran:
    """What a worker gave, where a defect of the server's is a run that failed for all of its calls."""
    if not isinstance(result, Exception):
        return result
    known = {"request": trace.request_id} if (trace := calls[0].trace) is not None else {}
    _logger.error("Running a batch failed", exc_info=result, extra={"model": calls[0].account.name, **known})
    failed = InferenceFailedError("the server failed to run the model; its log says more")
    return Ran([failed] * len(calls), rows, False, 0.0, 0.0, 0.0, time.perf_counter())


def run_calls(session: Session, calls: Sequence[Call], options: Any = None) -> Ran:
    """Run calls of one key together, or the only call as it is.

    A batch that fails is run again call by call, so that only the one fails whose fault it was.

    Args:
        session: The model.
        calls: At least one.
        options: ``ort.RunOptions``, by which another thread can end the run.
    """
    clock = time.perf_counter
    begin = clock()
    if len(calls) == 1:
        call = calls[0]
        outcome = _outcome(session, call, options)
        return Ran((outcome,), call.rows, True, 0.0, clock() - begin, 0.0, begin)
    first = calls[0]
    rows = sum([call.rows for call in calls])
    try:
        feeds = {name: np.concatenate([call.feeds[name] for call in calls]) for name in first.feeds}
        joined = clock()
        outputs = session.run(first.outputs, feeds, options)
        done = clock()
        outcomes: Sequence[Outcome] = scattered(outputs, [call.rows for call in calls])
        if session.gives_strings or _bytes(outputs) > session.answer_bytes:
            outcomes = [_unless_too_large(session, each) for each in outcomes if isinstance(each, list)]
    except (TiercelError, ValueError, MemoryError) as error:  # NumPy raises these where arrays cannot be joined
        return _one_by_one(session, calls, options, error)
    return Ran(outcomes, rows, True, joined - begin, done - joined, clock() - done, begin)


def run_calls_measured(session: Session, calls: Sequence[Call], options: Any = None) -> Ran:
    """Like :func:`run_calls`, and measure the CPU time and the accelerator's.

    A session of several threads is held to keep each of them as busy as the one that can be looked at.
    """
    begin = time.thread_time()
    ran = run_calls(session, calls, options)
    ran.cpu = (time.thread_time() - begin) * session.threads
    ran.accelerator = session.take_accelerator_seconds()
    return ran


def scattered(outputs: Sequence[Array], rows: Sequence[int]) -> list[list[Array]]:
    """The outputs of each call, as views.

    Args:
        outputs: Of the batch; the first axis of each has as many rows as all calls together.
        rows: Of each call.

    Raises:
        InferenceFailedError: An output has another number of rows.
    """
    total = sum(rows)
    for output in outputs:
        if not output.ndim or len(output) != total:
            raise InferenceFailedError(f"an output of shape {list(output.shape)} does not belong to {total} rows")
    result: list[list[Array]] = []
    start = 0
    if len(outputs) == 1:
        (only,) = outputs
        for each in rows:
            result.append([only[start : start + each]])
            start += each
        return result
    for each in rows:
        result.append([output[start : start + each] for output in outputs])
        start += each
    return result


def _one_by_one(session: Session, calls: Sequence[Call], options: Any, error: Exception) -> Ran:
    if not all(call.ended for call in calls):  # else it was broken off, since nobody waited for it any more
        _logger.warning("A batch of %d calls failed and is run again call by call: %s", len(calls), error)
    begin = time.perf_counter()
    # Whoever was answered meanwhile, after a timeout, is not asked for again.
    gone = InferenceFailedError("nobody wanted the answer any more")
    outcomes = [gone if call.ended else _outcome(session, call, options) for call in calls]
    rows = sum(call.rows for call in calls)
    return Ran(outcomes, rows, False, 0.0, time.perf_counter() - begin, 0.0, begin)


def _outcome(session: Session, call: Call, options: Any) -> Outcome:
    try:
        outputs = call.compute(session, options)
    except TiercelError as error:
        return error
    if session.gives_strings or _bytes(outputs) > session.answer_bytes:
        return _unless_too_large(session, outputs)
    return outputs


def _bytes(outputs: Sequence[Array]) -> int:
    return outputs[0].nbytes if len(outputs) == 1 else sum([output.nbytes for output in outputs])


def _unless_too_large(session: Session, outputs: list[Array]) -> Outcome:
    size = _bytes(outputs)
    for output in outputs:
        if output.dtype.hasobject:
            size += sum(map(len, output.flat))
    if size <= session.answer_bytes:
        return outputs
    return TooLargeError(
        f"the answer would have {size} bytes of outputs; {session.answer_bytes} are possible. "
        "Ask for fewer outputs, or send fewer rows"
    )
