"""A run that an agent started: reports, hands over models, keeps checkpoints, and obeys pace and stop requests.

Everything here happens in the script's own thread, at its boundaries: between two steps, at the end of an epoch, in a
report, and at the exit. Only the connection has a thread of its own.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType

from tiercel.core.figures import number
from tiercel.trainer_agent.reports.metric_names import MetricNames
from tiercel.trainer_agent.trainer.accelerators import Accelerators
from tiercel.trainer_agent.trainer.channel import Acknowledged, AgentChannel, Request, Terminated
from tiercel.trainer_agent.trainer.deliveries import Deliveries
from tiercel.trainer_agent.trainer.job import Item, Job
from tiercel.trainer_agent.trainer.leading import Follower, Leader
from tiercel.trainer_agent.trainer.pacing import Pacer
from tiercel.trainer_agent.trainer.rank_link import END_OF_EPOCH, Decision, Place
from tiercel.trainer_agent.trainer.reporting import as_numbers, epoch_of, report_line, require_metric, say
from tiercel.trainer_agent.trainer.restoring import Report, RunKeeper, RunState
from tiercel.trainer_agent.trainer.trained import Trained
from tiercel.v1 import trainer_pb2

logger = logging.getLogger(__name__)

# How long a report that reached a tier waits for the request for its model. It is enough when nothing is wrong, and
# the request is then served at once instead of at the next boundary.
REQUEST_WAIT_SECONDS = 0.25
# How long a finished run waits for the agent to have its reports and to ask for the models of the tiers it reached.
# Waiting costs a reservation, leaving costs a trained model: a broker that is being restarted should find it.
EXIT_WAIT_SECONDS = 60.0
# The same for a run that was told to stop or crashed; whoever wants it gone does not wait for long either.
HASTY_EXIT_WAIT_SECONDS = 5.0


class AttachedJob(Job):
    """A job with an agent.

    Args:
        leader: Tells the other ranks of the run what to do; None where there are none.
        resources: What is to be let go of when the job is closed.
        at_first_report: Called then.
    """

    def __init__(
        self,
        trained: Trained,
        *,
        channel: AgentChannel,
        welcome: trainer_pb2.TrainerWelcome,
        deliveries: Deliveries,
        keeper: RunKeeper,
        accelerators: Accelerators,
        resources: contextlib.ExitStack,
        exit_wait_seconds: float = EXIT_WAIT_SECONDS,
        at_first_report: Callable[[], None] = lambda: None,
        leader: Leader | None = None,
    ) -> None:
        super().__init__(trained)
        self._leader = leader
        self._channel, self._deliveries, self._keeper = channel, deliveries, keeper
        self._run_id, self._metric, self._max_epochs = welcome.run_id, welcome.metric, welcome.max_epochs
        self._resources, self._exit_wait_seconds = resources, exit_wait_seconds
        self._at_first_report: Callable[[], None] | None = at_first_report
        self._pacer, self._accelerators = Pacer(cpu=self._cpu_seconds), accelerators
        self._finished_epochs = self._epoch = self._step = self._sequence = self._last_epoch = 0
        self._told_epoch = 0  # by a script that does not go through epochs()
        # What all ranks have been told, and the random states of the others at the place of the next checkpoint.
        self._agreed, self._other_ranks = Decision.GO_ON, dict[int, bytes]()
        self._stopping = self._interrupted = self._crashed = self._gave_up = self._closed = False
        # Told to end the training as after its last epoch, which is unlike being stopped for all that comes then.
        self._finishing = False
        self._unsettled_in_checkpoint = self._offers_best = self._begun = False
        self._names, self._said = MetricNames(welcome.metric), set[str]()

    @property
    def is_attached(self) -> bool:
        """Always."""
        return True

    @property
    def is_stopping(self) -> bool:
        """Whether the agent, or a signal, asked to stop; of several ranks, whether all know it."""
        return self._decision() is not Decision.GO_ON if self._leader is None else self._agreed is not Decision.GO_ON

    def restore(self) -> None:
        """Go on from the newest checkpoint, if there is one.

        Raises:
            CheckpointError: If it does not fit the script.
        """
        run = self._keeper.restore(self._run_id)
        if run is None:
            return
        self._finished_epochs = self._epoch = run.finished_epochs
        self._deliveries.restore(run.kept, run.handed_over, run.shipped_value)
        if run.run_id == self._run_id:  # what it repeats under the same number is ignored
            self._sequence = run.sequence - len(run.unacknowledged)
        elif run.kept is not None and self._deliveries.expected and run.kept.report not in run.unacknowledged:
            # A new attempt counts from 1, and begins by saying that it has a model that nobody took from the last one.
            self._send_report(run.kept.report)
        for report in run.unacknowledged:
            self._send_report(report)
        say(f"going on after epoch {run.finished_epochs}")

    def epochs(self, count: int) -> Iterator[int]:
        """The epochs that are left, counted from 1; ends early when the run is asked to stop."""
        limit = self._last_epoch = min(count, self._max_epochs) if self._max_epochs else count
        while self._finished_epochs < limit and self._goes_on(self._finished_epochs + 1, 0):
            self._epoch, self._step = self._finished_epochs + 1, 0
            self._interrupted = False
            with self._accelerators.counting():
                yield self._epoch
            self._end_epoch(limit)
        if limit <= self._finished_epochs < count:
            say(f"training ends here, as the job's max_epochs is {limit}; the script asks for more")
        self._save()
        self._settle()
        self._ship_best()
        if self._unsettled_in_checkpoint:
            self._save()  # what has arrived meanwhile need not be sent again by the next run

    def steps(self, batches: Iterable[Item]) -> Iterator[Item]:
        """The batches; ends early when the run is asked to stop."""
        with self._accelerators.not_counting():  # to fetch a batch, or to rest, is no work of an accelerator
            for batch in batches:
                self._begin()
                self._boundary()
                self._step += 1
                if not self._goes_on(self._epoch, self._step):
                    self._interrupted = True
                    self._save()
                    return
                with self._accelerators.counting():
                    yield batch

    def report(self, **metrics: float) -> None:
        """Send the metrics, print them, and hand over the model if a tier was reached and its model is asked for."""
        numbers = as_numbers(metrics)
        require_metric(self._metric, numbers)
        self._begin()
        self._told_epoch = self._epoch if self._last_epoch else epoch_of(numbers, self._told_epoch or self._epoch)
        say(report_line(self._told_epoch, numbers))
        report = Report(self._told_epoch, self._accepted(numbers))
        is_last = self._decision() is not Decision.GO_ON or 0 < self._last_epoch <= self._epoch
        reached = self._deliveries.observe(report, is_last=is_last)
        self._send_report(report, reached=bool(reached))
        if self._at_first_report is not None:
            self._at_first_report()
            self._at_first_report = None
        with self._accelerators.not_counting():
            self._take_requests()
            if reached:
                self._wait_handed_over(reached)

    def close(self) -> None:
        """Wait, within bounds, until the agent has the reports and the models of the tiers that were reached."""
        if self._closed:
            return
        self._closed = True
        self._send_use(last=True)
        self._settle()
        self._ship_best()
        if not (self._stopping or self._crashed):
            self._deliveries.refuse_rest(self._why_not)
        self._resources.close()

    def close_at_exit(self) -> None:
        """The same when the interpreter ends, which may be because of an error: says so if that was about a limit."""
        error = getattr(sys, "last_value", None)
        self._crashed = self._crashed or error is not None
        if message := self._accelerators.explain(error):
            say(message, sys.stderr)
        self.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._crashed = error is not None
        self.close()

    def _why_not(self, request: trainer_pb2.ExportRequest) -> str:
        if self._deliveries.kept is None and not self._trained.has_model:
            return "the training ended without a model: call job.deliver(), or give export= to connect()"
        if not request.tier:
            return "the training ended before a better model was exported"
        return f"the training ended and no report of this run reached the target {number(request.target)}"

    def _begin(self) -> None:
        """Say, once, that the training begins."""
        if not self._begun:
            self._begun = True
            self._channel.send_begun()

    def _accepted(self, numbers: dict[str, float]) -> dict[str, float]:
        """The metrics that the agent takes; says once why the others are left out."""
        accepted, left_out = self._names.accepted(numbers)
        for reason in left_out.keys() - self._said:
            self._said.add(reason)
            logger.warning("%s", reason)
        return accepted

    def _send_report(self, report: Report, *, reached: bool = False, ended: bool = False) -> None:
        self._sequence += 1
        self._gave_up = False
        message = trainer_pb2.TrainerReport(
            sequence=self._sequence, epoch=report.epoch, metrics=report.metrics, ended=ended
        )
        # The last word of a training is as little to be lost as a tier.
        self._channel.send_report(message, reached=reached or ended)

    def _end_epoch(self, limit: int) -> None:
        self._take_requests()
        if not self._interrupted:
            self._finished_epochs = self._epoch
        is_due = self._keeper.is_due
        self._goes_on(self._epoch, END_OF_EPOCH, saves=is_due or self._finished_epochs >= limit)
        if is_due and not self._stopping:
            self._save()
        self._boundary()

    def _goes_on(self, epoch: int, step: int, *, saves: bool = False) -> bool:
        """Whether training goes on here, in all ranks; where it does not, a checkpoint follows, too."""
        decision = self._decision()
        if self._leader is not None and self._agreed is Decision.GO_ON:
            saves = saves or decision is not Decision.GO_ON
            self._other_ranks = self._leader.agree(Place(epoch, step), decision, saves=saves)
            self._agreed = decision
        return decision is Decision.GO_ON if self._leader is None else self._agreed is Decision.GO_ON

    def _decision(self) -> Decision:
        if self._stopping:
            return Decision.STOP
        return Decision.FINISH if self._finishing else Decision.GO_ON

    def _boundary(self) -> None:
        """Do what the agent asks for; then rest for as long as the paces demand, the longer one of them."""
        self._take_requests()
        self._send_use()
        while self._decision() is Decision.GO_ON and (delay := self._delay_seconds()) > 0:
            self._wait_request(delay)

    def _delay_seconds(self) -> float:
        return max(self._pacer.delay_seconds(), self._accelerators.delay_seconds())

    def _send_use(self, *, last: bool = False) -> None:
        held_elsewhere = max((follower.use.memory_bytes for follower in self._followers), default=0)
        if (use := self._accelerators.use(last=last, held_elsewhere=held_elsewhere)) is not None:
            self._channel.send_use(use)

    @property
    def _followers(self) -> list[Follower]:
        return [] if self._leader is None else self._leader.followers

    def _cpu_seconds(self) -> float:
        """Of all ranks, which are paced together."""
        return time.process_time() + sum(follower.use.cpu_seconds for follower in self._followers)

    def _take_requests(self) -> None:
        if self._leader is not None:
            self._leader.listen()
            if self._leader.was_terminated:
                self._stop("one of its ranks was sent SIGTERM")
        while (request := self._channel.next_request_nowait()) is not None:
            self._handle(request)
        self._deliveries.serve()

    def _wait_request(self, timeout: float) -> None:
        request = self._channel.wait_request(timeout)
        if request is not None:
            self._handle(request)
            self._deliveries.serve()

    def _handle(self, request: Request) -> None:
        match request:
            case trainer_pb2.ExportRequest():
                self._deliveries.submit(request)
            case trainer_pb2.PaceRequest():
                self._pacer.limit(request.cores)
                self._accelerators.limit(request.accelerator_fraction)
            case trainer_pb2.StopRequest():
                self._stop(request.reason, finish=request.finish)
            case trainer_pb2.TrainerWelcome():
                self._deliveries.update_tiers([tier.target for tier in request.tiers])
            case Terminated():
                self._stop("the process was sent SIGTERM")
            case Acknowledged():
                logger.debug("the agent has every report")

    def _stop(self, reason: str, *, finish: bool = False) -> None:
        if finish and self._decision() is Decision.GO_ON:
            self._finishing = True
            say(f"finishing: {reason}")
        elif not (finish or self._stopping):
            self._stopping = True
            say(f"stopping: {reason or 'the agent asks for it'}")

    def _wait_handed_over(self, targets: tuple[float, ...]) -> None:
        deadline = time.monotonic() + REQUEST_WAIT_SECONDS
        while set(targets) & set(self._deliveries.expected) and self._channel.is_connected and not self._stopping:
            if (remaining := deadline - time.monotonic()) <= 0:
                return
            self._wait_request(remaining)

    def _settle(self) -> None:
        """Wait until the agent has every report and a model for every tier that was reached, within bounds."""
        started = time.monotonic()
        self._take_requests()
        while not self._gave_up and not self._is_settled():
            hasty = self._stopping or self._crashed
            limit = min(HASTY_EXIT_WAIT_SECONDS, self._exit_wait_seconds) if hasty else self._exit_wait_seconds
            if (remaining := started + limit - time.monotonic()) <= 0:
                self._gave_up = True
                logger.warning("the agent did not take all reports and models within %g s", limit)
                return
            self._wait_request(remaining)

    def _ship_best(self) -> None:
        """Say that the training has ended with a model which is better than all that were handed over, and wait."""
        kept = self._deliveries.kept
        if kept is None or not self._deliveries.has_better or self._stopping or self._crashed or self._gave_up:
            return
        self._offers_best = True
        self._send_report(kept.report, ended=True)
        self._settle()

    def _is_settled(self) -> bool:
        expected = self._deliveries.expected or (self._offers_best and self._deliveries.has_better)
        nothing_expected = self._stopping or self._crashed or not expected
        return nothing_expected and self._channel.all_acknowledged

    def _save(self) -> None:
        self._unsettled_in_checkpoint = not self._is_settled()
        reports = tuple(Report(r.epoch, dict(r.metrics)) for r in self._channel.unacknowledged())
        run = RunState(
            run_id=self._run_id,
            finished_epochs=self._finished_epochs,
            sequence=self._sequence,
            unacknowledged=reports,
            kept=self._deliveries.kept,
            handed_over=self._deliveries.handed_over,
            shipped_value=self._deliveries.shipped_value,
        )
        try:
            self._keeper.save(run, self._other_ranks)
        except OSError as error:
            logger.warning("no checkpoint could be written: %s; training goes on", error)
