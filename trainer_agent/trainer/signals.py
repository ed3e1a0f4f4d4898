"""What is called when somebody asks the process to end (SIGTERM), beside what the script has arranged."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType


def call_on_sigterm(call: Callable[[], None], resources: contextlib.ExitStack) -> None:
    """Have something called on SIGTERM instead of an end at once; only the main thread may ask for it.

    Args:
        call: Safe in a signal handler.
        resources: With which it is taken back.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    previous, owner = signal.getsignal(signal.SIGTERM), os.getpid()

    def stop(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:  # a forked data-loading worker inherits the handler and has to end
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        call()
        if callable(previous):
            previous(number, frame)

    def restore() -> None:
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is stop:
            signal.signal(signal.SIGTERM, previous)

    signal.signal(signal.SIGTERM, stop)
    resources.callback(restore)
