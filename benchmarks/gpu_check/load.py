"""Requests at a constant rate in a process of its own: ``python -m benchmarks.gpu_check.load``.

``PORT PATH BODY-FILE HEADERS-JSON RATE SECONDS`` on the command line. Prints when the first request was due, in seconds
of ``time.monotonic``, and the delay of each since it was due, in seconds and in the order in which they were due; null
without a good answer. Requests are due whether or not others were answered, so that a server that stalls cannot hide
it; see :mod:`benchmarks.serving.open_loop`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop

from benchmarks.serving.open_loop import Load, request_bytes

CONNECTIONS = 64


class EvenLoad(Load):
    """Remembers the delay of each good answer by the number of its request.

    Args:
        port: Where, on this machine.
        request: The bytes of a request.
        rate: Requests a second.
    """

    def __init__(self, port: int, request: bytes, rate: float) -> None:
        super().__init__("127.0.0.1", port, request, CONNECTIONS)
        self.delays: dict[int, float] = {}
        self._rate = rate
        self._first_due: float | None = None

    @property
    def began(self) -> float:
        """When the first request was due, in seconds of ``time.monotonic``."""
        now = time.perf_counter()
        return time.monotonic() - (now - self._first_due) if self._first_due is not None else time.monotonic()

    async def ask(self, seconds: float) -> list[float | None]:
        """Send them; delays in the order in which requests were due."""
        count = round(self._rate * seconds)
        await self.run([number / self._rate for number in range(count)])
        return [self.delays.get(number) for number in range(count)]

    def answered(self, status: int, due: float, sent: float, at: float) -> None:
        """See :class:`~benchmarks.serving.open_loop.Load`."""
        super().answered(status, due, sent, at)
        if status == 200 and self._first_due is not None:
            self.delays[round((due - self._first_due) * self._rate)] = at - due

    def _send(self, due: float) -> None:
        if self._first_due is None:
            self._first_due = due
        super()._send(due)


def main(arguments: Sequence[str]) -> None:
    """Load a server and print what came of it."""
    port, path, body, headers, rate, seconds = arguments
    request = request_bytes(path, Path(body).read_bytes(), json.loads(headers))
    load = EvenLoad(int(port), request, float(rate))
    delays = uvloop.run(load.ask(float(seconds)))
    print(json.dumps({"began": load.began, "delays": delays}))


if __name__ == "__main__":
    main(sys.argv[1:])
