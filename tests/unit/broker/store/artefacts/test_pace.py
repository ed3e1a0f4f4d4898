"""What is stored is read no faster than it may be sent."""

from __future__ import annotations

import io

from tiercel.broker.store.artefacts.pace import PacedFile


def test_what_is_read_waits_until_it_is_due() -> None:
    now, waits = [0.0], list[float]()

    def wait(seconds: float) -> None:
        waits.append(seconds)
        now[0] += seconds

    file = PacedFile(io.BytesIO(bytes(3000)), 1000.0, lambda: now[0], wait)
    assert [len(file.read(1000)) for _ in range(4)] == [1000, 1000, 1000, 0]
    assert waits == [1.0, 1.0, 1.0]
    now[0] += 10  # a rest is no credit
    file.seek(0)
    assert [len(file.read(1500)), len(file.read(1500))] == [1500, 1500]
    assert waits[3:] == [1.5]
