from __future__ import annotations

import threading

from tiercel.trainer_agent.trainer.outbox import Outbox, StreamCursor
from tiercel.v1 import trainer_pb2


def report(sequence: int) -> trainer_pb2.TrainerReport:
    return trainer_pb2.TrainerReport(sequence=sequence, epoch=sequence)


def sent(outbox: Outbox, cursor: StreamCursor | None = None) -> list[int | str]:
    """What a stream sends until the outbox is closed."""
    outbox.close()
    cursor = cursor or StreamCursor()
    outbox.welcome(cursor)
    return [
        message.report.sequence if message.HasField("report") else message.export_done.delivery_id
        for message in outbox.messages(cursor)
    ]


def test_reports_go_out_in_order_and_once_a_stream() -> None:
    outbox = Outbox()
    for number in (1, 2, 3):
        outbox.add_report(report(number))
    assert sent(outbox) == [1, 2, 3]


def test_a_new_stream_repeats_what_is_not_acknowledged_and_every_answer() -> None:
    outbox = Outbox()
    for number in (1, 2, 3):
        outbox.add_report(report(number))
    outbox.add_export_done(trainer_pb2.ExportDone(delivery_id="job-tier-1"))
    assert sent(outbox) == [1, 2, 3, "job-tier-1"]
    assert not outbox.acknowledge(2)
    assert sent(outbox) == [3, "job-tier-1"]
    assert outbox.acknowledge(3)
    assert sent(outbox) == ["job-tier-1"]


def test_an_answer_is_repeated_when_asked_for_again() -> None:
    outbox, cursor = Outbox(), StreamCursor()
    outbox.add_export_done(trainer_pb2.ExportDone(delivery_id="job-tier-1", value=0.9))
    assert sent(outbox, cursor) == ["job-tier-1"]
    outbox.repeat_export_done("job-tier-1", cursor)
    assert sent(outbox, cursor) == ["job-tier-1"]
    known = outbox.export_done("job-tier-1")
    assert known is not None
    assert known.value == 0.9
    assert outbox.export_done("job-tier-2") is None


def test_a_newer_answer_replaces_the_older_one_also_on_a_stream_that_has_had_that() -> None:
    outbox, cursor = Outbox(), StreamCursor()
    outbox.add_export_done(trainer_pb2.ExportDone(delivery_id="job-tier-1", falls_short=True))
    assert sent(outbox, cursor) == ["job-tier-1"]
    outbox.add_export_done(trainer_pb2.ExportDone(delivery_id="job-tier-1", value=0.9))
    assert sent(outbox, cursor) == ["job-tier-1"]
    assert sent(outbox) == ["job-tier-1"]
    known = outbox.export_done("job-tier-1")
    assert known is not None
    assert known.value == 0.9


def test_when_full_the_oldest_report_goes() -> None:
    outbox = Outbox(report_limit=3)
    for number in range(1, 6):
        outbox.add_report(report(number))
    assert [kept.sequence for kept in outbox.unacknowledged()] == [3, 4, 5]


def test_when_full_what_reached_a_tier_stays() -> None:
    outbox = Outbox(report_limit=3)
    for number in range(1, 9):
        outbox.add_report(report(number), reached=number == 2)
    assert [kept.sequence for kept in outbox.unacknowledged()] == [2, 6, 7, 8]
    assert not outbox.acknowledge(7)
    for number in (9, 10, 11):
        outbox.add_report(report(number))
    assert [kept.sequence for kept in outbox.unacknowledged()] == [9, 10, 11]


def test_nothing_is_sent_before_the_welcome_and_a_broken_stream_lets_go() -> None:
    outbox, cursor = Outbox(), StreamCursor()
    outbox.add_report(report(1))
    messages: list[trainer_pb2.AttachRequest] = []
    reader = threading.Thread(target=lambda: messages.extend(outbox.messages(cursor)))
    reader.start()
    outbox.end(cursor)
    reader.join(30)
    assert not reader.is_alive()
    assert messages == []


def test_of_what_was_used_the_newest_goes_out_once_a_stream() -> None:
    outbox = Outbox()
    for seconds in (1.0, 2.0):
        outbox.set_use(trainer_pb2.AcceleratorUse(accelerator_seconds=seconds))
    outbox.close()
    for _ in range(2):
        cursor = StreamCursor()
        outbox.welcome(cursor)
        assert [message.use.accelerator_seconds for message in outbox.messages(cursor)] == [2.0]
        assert list(outbox.messages(cursor)) == []
