"""Which requests are answered with what, over a buffer that nobody empties but the test."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn

from tiercel.trainer_agent.trainer.any_model import AnyModel
from tiercel.trainer_agent.trainer.channel import AgentChannel
from tiercel.trainer_agent.trainer.deliveries import Deliveries
from tiercel.trainer_agent.trainer.handover import Handover
from tiercel.trainer_agent.trainer.message_buffer import MessageBuffer, StreamCursor
from tiercel.trainer_agent.trainer.pytorch.models import Weights
from tiercel.trainer_agent.trainer.pytorch.pytorch_model import PyTorchModel
from tiercel.trainer_agent.trainer.restoring import Report
from tiercel.trainer_agent.trainer.signature import Signature
from tiercel.trainer_agent.trainer.tiers import TierTracker
from tiercel.trainer_agent.trainer.trained import Trained
from tiercel.v1 import trainer_pb2

TARGET = 0.9
SHORT = trainer_pb2.ExportDone(error="has 0.8995, which misses the target 0.9", falls_short=True)
GOOD = trainer_pb2.ExportDone(value=0.905, sha256="ab")
NO_MODEL = trainer_pb2.ExportDone(error="cannot be handed over as ONNX")


class ScriptedHandover(Handover):
    """Answers what the test says, in that order."""

    def __init__(self, *answers: trainer_pb2.ExportDone) -> None:
        self.answers = list(answers)

    def hand_over(
        self, request: trainer_pb2.ExportRequest, copy: Weights, tiers: TierTracker
    ) -> trainer_pb2.ExportDone:
        """The next answer."""
        done = trainer_pb2.ExportDone(delivery_id=request.delivery_id)
        done.MergeFrom(self.answers.pop(0))
        return done

    def forget(self) -> None:
        """There is nothing."""


class UnconnectedChannel(AgentChannel):
    """A channel whose one stream is read by the test."""

    def __init__(self) -> None:
        self._buffer, self._cursor = MessageBuffer(), StreamCursor()
        self._buffer.welcome(self._cursor)
        self._buffer.close()  # so that reading ends where nothing is left

    def sent(self) -> list[tuple[int, str]]:
        """Number and error of each answer that goes out now."""
        messages = self._buffer.messages(self._cursor)
        return [(message.export_done.request_number, message.export_done.error) for message in messages]

    def sent_on_a_new_stream(self) -> list[tuple[int, str]]:
        """The same after the connection broke."""
        self._cursor = StreamCursor()
        self._buffer.welcome(self._cursor)
        return self.sent()


class Trainer:
    """Deliveries of a model that reports what the test says."""

    def __init__(
        self, *answers: trainer_pb2.ExportDone, trained: Trained | None = None, keep_from: float | None = None
    ) -> None:
        self.channel, self.now = UnconnectedChannel(), 100.0
        self.trained = trained or PyTorchModel(nn.Linear(1, 1), Signature.from_example(np.ones((1, 1), np.float32)))
        self.deliveries = Deliveries(
            self.trained,
            TierTracker(smaller_is_better=False, targets=[TARGET], keep_from=keep_from),
            ScriptedHandover(*answers),
            self.channel,
            metric="accuracy",
            clock=lambda: self.now,
        )

    def report(self, value: float, *, epoch: int = 1, is_last: bool = False) -> tuple[float, ...]:
        return self.deliveries.observe(Report(epoch, {"accuracy": value}), is_last=is_last)

    @property
    def kept(self) -> float:
        """What was reported of the model that is kept."""
        assert self.deliveries.kept is not None
        return self.deliveries.kept.report.metrics["accuracy"]

    def ask(self, number: int, *, tier: int = 1, target: float = TARGET) -> None:
        request = trainer_pb2.ExportRequest(delivery_id=f"job-{tier}", tier=tier, target=target, request_number=number)
        self.deliveries.submit(request)
        self.deliveries.serve()


def test_a_target_that_the_model_falls_short_of_stays_open_for_a_better_report() -> None:
    trainer = Trainer(SHORT, GOOD)
    assert trainer.report(0.9002) == (TARGET,)
    trainer.ask(1)
    assert trainer.channel.sent() == [(1, SHORT.error)]
    assert not trainer.deliveries.handed_over
    assert not trainer.deliveries.expected, "a run that ends now waits for no request"
    assert trainer.report(0.9001) == ()
    assert not trainer.deliveries.expected
    assert trainer.report(0.907) == (TARGET,), "the report that its model can be made of waits for the request"
    assert trainer.deliveries.expected == (TARGET,)
    trainer.ask(2)
    assert trainer.channel.sent() == [(2, "")]
    assert trainer.deliveries.handed_over == (TARGET,)
    assert not trainer.deliveries.expected


def test_the_same_request_gets_the_same_answer_until_there_is_a_better_model() -> None:
    trainer = Trainer(SHORT, GOOD)
    trainer.report(0.9002)
    trainer.ask(1)
    assert trainer.channel.sent() == [(1, SHORT.error)]
    trainer.ask(1)  # an agent that was attached to again, or whose broker changed its mind twice
    assert trainer.channel.sent() == [(1, SHORT.error)]
    trainer.report(0.907)
    trainer.ask(1)
    assert trainer.channel.sent() == [(1, "")]
    trainer.ask(2)
    assert trainer.channel.sent_on_a_new_stream() == [(1, "")]


def test_any_other_error_is_final() -> None:
    trainer = Trainer(NO_MODEL)
    trainer.report(0.9002)
    trainer.ask(1)
    assert trainer.deliveries.handed_over == (TARGET,)
    assert trainer.report(0.95) == ()
    trainer.ask(2)
    assert trainer.channel.sent() == [(1, NO_MODEL.error)]


def test_a_restored_run_offers_the_model_that_fell_short_again() -> None:
    trainer = Trainer(SHORT)
    trainer.report(0.9002)
    trainer.ask(1)
    successor = Trainer(SHORT)
    successor.deliveries.restore(trainer.deliveries.kept, trainer.deliveries.handed_over)
    assert successor.deliveries.expected == (TARGET,)
    successor.ask(2)
    assert not successor.deliveries.expected


def slow_trainer(seconds: float, *answers: trainer_pb2.ExportDone) -> Trainer:
    """Of a model whose export takes so long; all from 0.5 on may be wanted."""
    trainer: Trainer

    def export() -> bytes:
        trainer.now += seconds
        return b"a file"

    model = AnyModel(export, example_input=np.ones((1, 1), np.float32))
    trainer = Trainer(*answers, trained=model, keep_from=0.5)
    return trainer


def test_after_a_long_export_the_next_waits_until_training_has_gone_on_for_four_times_as_long(
    caplog: pytest.LogCaptureFixture,
) -> None:
    trainer = slow_trainer(10.0)
    trainer.report(0.6)
    trainer.now += 39.5
    for value in (0.7, 0.8):
        trainer.report(value, epoch=2)
        assert trainer.kept == 0.6
    (said,) = caplog.messages
    assert "epoch 2 is the best so far and was not exported: export() took 10.0 s" in said
    trainer.now += 0.5
    trainer.report(0.65, epoch=3)
    assert trainer.kept == 0.65, "it is better than what is kept, if not the best that was reported"


def test_a_long_export_keeps_no_tier_waiting_and_not_the_model_of_the_last_epoch() -> None:
    trainer = slow_trainer(10.0)
    trainer.report(0.6)
    assert trainer.report(0.92) == (TARGET,)
    assert trainer.kept == 0.92
    trainer.report(0.93, epoch=5, is_last=True)
    assert trainer.kept == 0.93
    trainer.report(0.94, epoch=5, is_last=True)
    assert trainer.kept == 0.93, "of many reports in the last epoch one is exported"


def test_a_short_export_is_never_waited_for() -> None:
    trainer = slow_trainer(1.0)
    for value in (0.6, 0.7):
        trainer.report(value)
    assert trainer.kept == 0.7


def test_a_file_that_the_script_hands_over_is_always_taken() -> None:
    trainer = slow_trainer(10.0)
    trainer.report(0.6)
    with trainer.trained.offering(b"another file", None, None):
        trainer.report(0.7)
    assert trainer.kept == 0.7


def test_who_wants_better_than_the_tiers_does_not_get_what_was_delivered_before() -> None:
    trainer = slow_trainer(10.0, GOOD, trainer_pb2.ExportDone(value=0.95))
    trainer.report(0.905)
    trainer.ask(1)
    assert trainer.channel.sent() == [(1, "")]
    trainer.report(0.94)  # the broker hears of it, and does not know that it was not exported
    trainer.ask(1, tier=0, target=0.905)
    assert trainer.channel.sent_on_a_new_stream() == [(1, "")]
    trainer.now += 40.0
    trainer.report(0.95)
    trainer.deliveries.serve()
    assert trainer.channel.sent() == [(1, "")]
