"""What gives way when there is too much to publish."""

from __future__ import annotations

from tiercel.broker.progress.buffer import Buffer, BufferLimits
from tiercel.broker.progress.topics import Message


def state(topic: str, payload: bytes = b"{}") -> Message:
    return Message(topic, payload, qos=1, retain=True)


def progress(payload: bytes) -> Message:
    return Message("progress", payload, qos=0, retain=False)


def drained(buffer: Buffer) -> list[Message]:
    return list(iter(buffer.take, None))


def test_messages_keep_their_order() -> None:
    buffer = Buffer()
    messages = [state("a", b"1"), progress(b"2"), state("a", b"3")]
    for message in messages:
        buffer.add(message)

    assert drained(buffer) == messages


def test_the_oldest_progress_gives_way() -> None:
    buffer = Buffer(BufferLimits(waiting=3))
    for message in [state("a"), progress(b"1"), progress(b"2"), state("b")]:
        buffer.add(message)

    assert drained(buffer) == [state("a"), progress(b"2"), state("b")]


def test_what_waits_is_bounded_in_bytes_too() -> None:
    buffer = Buffer(BufferLimits(size_bytes=1000))
    for _ in range(100):
        buffer.add(progress(b"x" * 92))
    for number in range(100):
        buffer.add(state(f"topic-{number:02}", b"x" * 92))
    messages = drained(buffer)
    assert sum(len(message.topic) + len(message.payload) for message in messages) <= 1000
    assert messages[-1].topic == "topic-99"
    buffer.resend_state()
    assert [message.topic for message in drained(buffer)] == [f"topic-{number}" for number in range(90, 100)]


def test_state_never_gives_way() -> None:
    buffer = Buffer(BufferLimits(waiting=2))
    for message in [state("a"), state("b", b"old"), state("c"), state("b", b"new")]:
        buffer.add(message)

    assert {(message.topic, message.payload) for message in drained(buffer)} == {
        ("a", b"{}"),
        ("b", b"new"),
        ("c", b"{}"),
    }


def test_sending_again_tells_the_latest_of_each_topic_and_the_progress_that_waits() -> None:
    buffer = Buffer()
    for message in [state("a", b"old"), state("b")]:
        buffer.add(message)
    drained(buffer)
    for message in [state("a", b"newer"), progress(b"1"), state("a", b"newest")]:
        buffer.add(message)

    buffer.resend_state()

    assert drained(buffer) == [state("b"), state("a", b"newest"), progress(b"1")]


def test_the_topics_remembered_are_bounded() -> None:
    buffer = Buffer(BufferLimits(topics=2))
    for topic in ["a", "b", "a", "c"]:
        buffer.add(state(topic))
    drained(buffer)

    buffer.resend_state()

    assert [message.topic for message in drained(buffer)] == ["a", "c"]
