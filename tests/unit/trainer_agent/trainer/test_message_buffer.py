from __future__ import annotations

import threading

from tiercel.trainer_agent.trainer.message_buffer import MessageBuffer, StreamCursor
from tiercel.v1 import trainer_pb2


def report(sequence: int) -> trainer_pb2.TrainerReport:
    return trainer_pb2.TrainerReport(sequence=sequence, epoch=sequence)


def sent(buffer: MessageBuffer, cursor: StreamCursor | None = None) -> list[int | str]:
    """What a stream sends until the buffer is closed."""
    buffer.close()
    cursor = cursor or StreamCursor()
    buffer.welcome(cursor)
    return [
        message.report.sequence if message.HasField("report") else message.export_done.delivery_id
        for message in buffer.messages(cursor)
    ]


def test_reports_go_out_in_order_and_once_a_stream() -> None:
    buffer = MessageBuffer()
    for number in (1, 2, 3):
        buffer.add_report(report(number))
    assert sent(buffer) == [1, 2, 3]


def test_a_new_stream_repeats_what_is_not_acknowledged_and_every_answer() -> None:
    buffer = MessageBuffer()
    for number in (1, 2, 3):
        buffer.add_report(report(number))
    buffer.add_export_done(trainer_pb2.ExportDone(delivery_id="job-tier-1"))
    assert sent(buffer) == [1, 2, 3, "job-tier-1"]
    assert not buffer.acknowledge(2)
    assert sent(buffer) == [3, "job-tier-1"]
    assert buffer.acknowledge(3)
    assert sent(buffer) == ["job-tier-1"]


def test_an_answer_is_repeated_when_asked_for_again() -> None:
    buffer, cursor = MessageBuffer(), StreamCursor()
    buffer.add_export_done(trainer_pb2.ExportDone(delivery_id="job-tier-1", value=0.9))
    assert sent(buffer, cursor) == ["job-tier-1"]
    buffer.repeat_export_done("job-tier-1", cursor)
    assert sent(buffer, cursor) == ["job-tier-1"]
    known = buffer.export_done("job-tier-1")
    assert known is not None
    assert known.value == 0.9
    assert buffer.export_done("job-tier-2") is None


def test_a_newer_answer_replaces_the_older_one_also_on_a_stream_that_has_had_that() -> None:
    buffer, cursor = MessageBuffer(), StreamCursor()
    buffer.add_export_done(trainer_pb2.ExportDone(delivery_id="job-tier-1", falls_short=True))
    assert sent(buffer, cursor) == ["job-tier-1"]
    buffer.add_export_done(trainer_pb2.ExportDone(delivery_id="job-tier-1", value=0.9))
    assert sent(buffer, cursor) == ["job-tier-1"]
    assert sent(buffer) == ["job-tier-1"]
    known = buffer.export_done("job-tier-1")
    assert known is not None
    assert known.value == 0.9


def test_when_full_the_oldest_report_goes() -> None:
    buffer = MessageBuffer(report_limit=3)
    for number in range(1, 6):
        buffer.add_report(report(number))
    assert [kept.sequence for kept in buffer.unacknowledged()] == [3, 4, 5]


def test_when_full_what_reached_a_tier_stays() -> None:
    buffer = MessageBuffer(report_limit=3)
    for number in range(1, 9):
        buffer.add_report(report(number), reached=number == 2)
    assert [kept.sequence for kept in buffer.unacknowledged()] == [2, 6, 7, 8]
    assert not buffer.acknowledge(7)
    for number in (9, 10, 11):
        buffer.add_report(report(number))
    assert [kept.sequence for kept in buffer.unacknowledged()] == [9, 10, 11]


def test_nothing_is_sent_before_the_welcome_and_a_broken_stream_lets_go() -> None:
    buffer, cursor = MessageBuffer(), StreamCursor()
    buffer.add_report(report(1))
    messages: list[trainer_pb2.AttachRequest] = []
    reader = threading.Thread(target=lambda: messages.extend(buffer.messages(cursor)))
    reader.start()
    buffer.end(cursor)
    reader.join(30)
    assert not reader.is_alive()
    assert messages == []


def test_of_what_was_used_the_newest_goes_out_once_a_stream() -> None:
    buffer = MessageBuffer()
    for seconds in (1.0, 2.0):
        buffer.set_use(trainer_pb2.AcceleratorUse(accelerator_seconds=seconds))
    buffer.close()
    for _ in range(2):
        cursor = StreamCursor()
        buffer.welcome(cursor)
        assert [message.use.accelerator_seconds for message in buffer.messages(cursor)] == [2.0]
        assert list(buffer.messages(cursor)) == []


def test_that_a_training_begins_goes_out_once_a_stream_and_before_its_reports() -> None:
    buffer = MessageBuffer()
    buffer.add_report(report(1))
    buffer.set_begun()
    buffer.set_begun()
    buffer.close()
    for _ in range(2):
        cursor = StreamCursor()
        buffer.welcome(cursor)
        assert [message.WhichOneof("message") for message in buffer.messages(cursor)] == ["begun", "report"]
