"""A thread for calls that may block for ever: nobody waits for it, not even at exit."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class DriverThread:
    """Runs calls one after the other on a thread of its own, which ends with the process whatever it is at.

    An executor's threads, asyncio's own included, are waited for when Python exits: a driver that hangs would keep the
    agent from leaving.
    """

    def __init__(self, name: str) -> None:
        # One may run while another waits; whoever calls holds back until the one before is done.
        self._calls: queue.Queue[tuple[Callable[[], Any], Future[Any]]] = queue.Queue(maxsize=2)
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Have ``call`` run; its future is resolved on the thread.

        Raises:
            queue.Full: Two calls are waiting already.
        """
        future: Future[T] = Future()
        self._calls.put_nowait((call, future))
        return future

    def _work(self) -> None:
        while True:
            call, future = self._calls.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = call()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
