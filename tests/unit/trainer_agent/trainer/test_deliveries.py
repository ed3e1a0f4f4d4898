"""Which requests are answered with what, over a buffer that nobody empties but the test."""

from __future__ import annotations

import numpy as np
from torch import nn

from tiercel.trainer_agent.trainer.channel import AgentChannel
from tiercel.trainer_agent.trainer.deliveries import Deliveries
from tiercel.trainer_agent.trainer.handover import Handover
from tiercel.trainer_agent.trainer.message_buffer import MessageBuffer, StreamCursor
from tiercel.trainer_agent.trainer.pytorch.models import Weights
from tiercel.trainer_agent.trainer.pytorch.pytorch_model import PyTorchModel
from tiercel.trainer_agent.trainer.restoring import Report
from tiercel.trainer_agent.trainer.signature import Signature
from tiercel.trainer_agent.trainer.tiers import TierTracker
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

    def __init__(self, *answers: trainer_pb2.ExportDone) -> None:
        self.channel = UnconnectedChannel()
        tiers = TierTracker(smaller_is_better=False, targets=[TARGET])
        trained = PyTorchModel(nn.Linear(1, 1), Signature.from_example(np.ones((1, 1), np.float32)))
        self.deliveries = Deliveries(trained, tiers, ScriptedHandover(*answers), self.channel, metric="accuracy")

    def report(self, value: float) -> tuple[float, ...]:
        return self.deliveries.observe(Report(1, {"accuracy": value}))

    def ask(self, number: int) -> None:
        request = trainer_pb2.ExportRequest(delivery_id="job-tier-1", tier=1, target=TARGET, request_number=number)
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
