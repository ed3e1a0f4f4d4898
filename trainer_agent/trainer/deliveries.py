"""Which models the agent wants, which it is expected to want, and the weights they will be made of."""

from __future__ import annotations

import time
from collections.abc import Callable

from tiercel.trainer_agent.trainer.channel import AgentChannel
from tiercel.trainer_agent.trainer.export_pauses import ExportPauses
from tiercel.trainer_agent.trainer.handover import Handover
from tiercel.trainer_agent.trainer.restoring import Kept, Report
from tiercel.trainer_agent.trainer.tiers import TierTracker
from tiercel.trainer_agent.trainer.trained import Trained
from tiercel.v1 import trainer_pb2


class Deliveries:
    """Keeps the best weights that reached a tier, and hands them over on request.

    A request for a target that no report has reached waits for one that does: it may have been made because of an
    earlier run of the job, whose weights are lost. A target that a model fell short of stays open; the agent asks again
    once a report is better.
    """

    def __init__(
        self,
        trained: Trained,
        tiers: TierTracker,
        handover: Handover,
        channel: AgentChannel,
        *,
        metric: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._trained, self._tiers, self._handover, self._channel = trained, tiers, handover, channel
        self._metric = metric
        self._pauses = ExportPauses(clock)
        self._has_left_out = False  # a report that is better than what is kept
        self._kept: Kept | None = None
        self._wanted: dict[str, trainer_pb2.ExportRequest] = {}

    @property
    def expected(self) -> tuple[float, ...]:
        """Targets whose model can be had and that nobody has asked for yet."""
        return self._tiers.expected

    @property
    def has_better(self) -> bool:
        """Whether there is a model that may be wanted beyond the tiers: better than all that was handed over."""
        return self._tiers.has_better

    @property
    def shipped_value(self) -> float | None:
        """The best metric of what was handed over; None while nothing was."""
        return self._tiers.shipped_value

    @property
    def kept(self) -> Kept | None:
        """The weights that are kept, or None while no tier was reached."""
        return self._kept

    @property
    def handed_over(self) -> tuple[float, ...]:
        """Targets whose request was answered."""
        return tuple(sorted(self._tiers.handed_over))

    def restore(self, kept: Kept | None, handed_over: tuple[float, ...], shipped_value: float | None = None) -> None:
        """Go on where an earlier run was."""
        self._kept = kept
        value = kept.report.metrics[self._metric] if kept is not None else None
        self._tiers.restore(kept_value=value, handed_over=handed_over, shipped_value=shipped_value)

    def observe(self, report: Report, *, is_last: bool = False) -> tuple[float, ...]:
        """Take in a report, and keep a copy of the weights if they are the ones to hand over.

        After an export that took long, only what a tier needs is kept for a while.

        Args:
            report: What was reported.
            is_last: Whether the training ends with this epoch, of which one model is kept in any case.

        Returns:
            Targets whose model can be had from now on.
        """
        if not self._trained.has_model:  # a later report that comes with one may reach the same tiers
            return ()
        is_needed = is_last and (self._kept is None or self._kept.report.epoch != report.epoch)
        is_paused = self._trained.keeping_exports and not (is_needed or self._pauses.is_over)
        observation = self._tiers.observe(report.metrics[self._metric], only_if_reached=is_paused)
        if observation.is_best:
            self._handover.forget()
            with self._pauses.measuring():
                self._kept = Kept(report, self._trained.keep())
            self._has_left_out = False
        elif observation.is_left_out:
            self._has_left_out = True
            self._pauses.say_so(report.epoch)
        return observation.reached

    def update_tiers(self, tiers: list[float]) -> None:
        """The agent says which tiers are not delivered yet."""
        self._tiers.update_targets(tiers)

    def submit(self, request: trainer_pb2.ExportRequest) -> None:
        """The agent wants a model, or wants to hear the answer again."""
        if (request.tier and request.target in self.expected) or not self._channel.repeat_export_done(request):
            self._wanted[request.delivery_id] = request

    def serve(self) -> None:
        """Hand over what is wanted and can be had."""
        for request in list(self._wanted.values()):
            if self._kept is not None and self._can_have(request):
                done = self._handover.hand_over(request, self._kept.weights, self._tiers)
                self._answer(request, done)

    def refuse_rest(self, reason: Callable[[trainer_pb2.ExportRequest], str]) -> None:
        """Answer what is wanted and cannot be had any more."""
        for request in list(self._wanted.values()):
            self._answer(request, trainer_pb2.ExportDone(delivery_id=request.delivery_id, error=reason(request)))

    def _can_have(self, request: trainer_pb2.ExportRequest) -> bool:
        # What is wanted beyond the tiers may be a report that was left out: not the model that is delivered already.
        is_newer = bool(request.tier) or not self._has_left_out or self._tiers.has_better
        return is_newer and self._tiers.has_reached(request.target)

    def _answer(self, request: trainer_pb2.ExportRequest, done: trainer_pb2.ExportDone) -> None:
        del self._wanted[request.delivery_id]
        if not request.tier or not done.error:
            self._tiers.mark_shipped(request.target if done.error else done.value)
        if done.falls_short and request.tier:
            self._tiers.mark_fallen_short(request.target)
        elif request.tier:
            self._tiers.mark_handed_over(request.target)
        done.request_number = request.request_number
        self._channel.send_export_done(done)
