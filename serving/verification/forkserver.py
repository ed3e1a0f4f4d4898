"""Forks readers with CPU that nobody wants, the fork itself included.

A fork of a process of this size keeps a core in the kernel for 2 ms. If the one who forks has a claim to that core, a
request that comes meanwhile waits so long. So the one who forks has none: a process of its own, which inherits what its
parent has imported, stays at the lowest priority, and so cannot look after what it has begun. Its parent does that.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from dataclasses import dataclass
from typing import Any, NoReturn

from tiercel.serving.verification import reader
from tiercel.serving.verification.verdict import MAX_MESSAGE_BYTES

# Whoever gets hardly any CPU keeps what was ordered, a model each, until it gets some.
_MOST_ORDERS = 2


@dataclass(frozen=True, slots=True)
class Begun:
    """A reader that was forked."""

    order: int  # number of the order that it is for
    pid: int  # its process id; it may have ended and be somebody else's by now
    # Descriptor of the process, which stays its own; closed by :meth:`kill`. None if it has ended already.
    handle: int | None

    def kill(self) -> None:
        """End it, if it has not ended; the process that forked it need not reap it. Call it once."""
        if self.handle is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.handle, signal.SIGKILL)
            os.close(self.handle)


class Forkserver:
    """The parent's side. It never waits for the other process, which may get no CPU for long.

    Attributes:
        socket: Readable when a reader has begun, or the other process is gone.
        pid: Of the other process, a child that has to be reaped when it is gone.
    """

    def __init__(self) -> None:
        self._waiting = 0
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        parent = os.getpid()
        with theirs:
            self.pid = os.fork()
            if self.pid == 0:
                _fork_for(theirs, parent)
        self.socket.setblocking(False)

    def order(self, number: int, request: dict[str, Any], model: int, answer_to: int) -> bool:
        """Have a reader forked.

        Returns:
            Whether it will be as soon as there is CPU; if not, the other process is gone or has enough to do.
        """
        if self._waiting >= _MOST_ORDERS:
            return False
        message = json.dumps({"order": number, "request": request}).encode()
        try:
            socket.send_fds(self.socket, [message], [model, answer_to])
        except OSError:
            return False
        self._waiting += 1
        return True

    def begun(self) -> Begun | None:
        """The next reader that has begun; None when the other process is gone."""
        try:
            message, descriptors, _, _ = socket.recv_fds(self.socket, MAX_MESSAGE_BYTES, 1)
        except OSError:
            return None
        if not message:
            return None
        self._waiting -= 1
        said = json.loads(message)
        return Begun(int(said["order"]), int(said["pid"]), descriptors[0] if descriptors else None)

    def close(self) -> None:
        """Let it go, and all its readers with it."""
        self.socket.close()


def _fork_for(orders: socket.socket, parent: int) -> NoReturn:
    """Fork a reader for each order, until nobody gives any."""
    try:
        reader.end_with_parent(parent)
        me = os.getpid()
        reader.leave_all_but(orders.fileno())
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps them
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        while True:
            message, descriptors, _, _ = socket.recv_fds(orders, MAX_MESSAGE_BYTES, 2)
            if not message:
                break
            order = json.loads(message)
            pid = os.fork()
            if pid == 0:
                reader.read_and_end(order["request"], *descriptors, parent=me)
            for descriptor in descriptors:
                os.close(descriptor)
            _say_begun(orders, order["order"], pid)
    finally:
        os._exit(0)


def _say_begun(orders: socket.socket, order: int, pid: int) -> None:
    try:
        handles = [os.pidfd_open(pid)]
    except ProcessLookupError:  # it has ended already
        handles = []
    try:
        socket.send_fds(orders, [json.dumps({"order": order, "pid": pid}).encode()], handles)
    finally:
        for handle in handles:
            os.close(handle)
