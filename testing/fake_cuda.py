"""A device that does things in order and at its own time, behind the part of ``torch.cuda`` that clocks use."""

from __future__ import annotations


class FakeCuda:
    """One device in simulated time.

    Attributes:
        now: The script's time, in seconds; moved by whoever plays the script.
        free_at: When the device will have done all that was issued.
        made: How many events were made.
        held_bytes: Memory that the script holds on the device.
        on_idle_stream: Whether the current stream is one on which nothing was issued.
        has_failed: Whether a kernel has failed, after which CUDA answers everything with that error.
    """

    def __init__(self) -> None:
        self.now = self.free_at = 0.0
        self.made = 0
        self.held_bytes = 1 << 20
        self.on_idle_stream = self.has_failed = False

    def check(self) -> None:
        """Raise what PyTorch raises, from whatever call, once a kernel has failed."""
        if self.has_failed:
            raise RuntimeError("CUDA error: device-side assert triggered")

    def issue(self, seconds: float) -> None:
        """Let the device do something as soon as it is free."""
        self.free_at = max(self.now, self.free_at) + seconds

    def is_initialized(self) -> bool:
        """As ``torch.cuda`` has it."""
        return self.held_bytes > 0

    def memory_reserved(self, index: int) -> int:
        """As ``torch.cuda`` has it."""
        del index
        return self.held_bytes

    def current_stream(self, index: int) -> int:
        """Nothing is done with it but to record events on it, so that its name does not matter."""
        return index

    def Event(self, *, enable_timing: bool) -> FakeEvent:  # noqa: N802 - PyTorch's name
        """An event of this device."""
        assert enable_timing
        self.made += 1
        return FakeEvent(self)


class FakeEvent:
    """Happens when the device has done all that was issued before it was recorded."""

    def __init__(self, cuda: FakeCuda) -> None:
        self._cuda = cuda
        self.at: float | None = None

    def record(self, stream: int) -> None:
        """Put it behind what was issued."""
        del stream
        self._cuda.check()
        self.at = self._cuda.now if self._cuda.on_idle_stream else max(self._cuda.now, self._cuda.free_at)

    def query(self) -> bool:
        """Whether it has happened."""
        self._cuda.check()
        return self.at is not None and self.at <= self._cuda.now

    def elapsed_time(self, end: FakeEvent) -> float:
        """Milliseconds from this one to another; both must have happened."""
        assert self.query()
        assert end.query()
        assert self.at is not None
        assert end.at is not None
        return 1000.0 * (end.at - self.at)
