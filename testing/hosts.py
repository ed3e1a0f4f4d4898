"""Hosts on one machine: network namespaces on a switch, whose cables are cut, narrowed and put back.

Each network is one of its own: two of them, as of two tests at a time, have the same addresses and hear nothing of
each other, and neither this machine's firewall nor its container engine has a say. Processes see this machine's files,
control groups and other processes.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import psutil

from testing.needs import need

ADDRESSES: Final = "10.83.0"
"""The first three numbers of every host's address."""

_PREFIX: Final = "tiercel-test"
_NAMESPACES: Final = Path("/run/netns")
_OWN_NAMESPACE: Final = Path("/proc/thread-self/ns/net")
_CABLE: Final = "eth0"
_COMMAND_SECONDS: Final = 30.0
_NET: Final = 0x40000000  # CLONE_NEWNET
_NUMBERS = itertools.count(1)


class Host:
    """A machine with an address of its own; made by :func:`hosts`.

    Attributes:
        name: What the test calls it.
        address: Where the other hosts reach it.
    """

    def __init__(self, network: str, name: str, number: int) -> None:
        self.name = name
        self.address = f"{ADDRESSES}.{number}"
        self._switch = network
        self._namespace = f"{network}-{name}"
        self._port = f"port{number}"
        _ip("netns", "add", self._namespace)
        _in(self._namespace, "ip", "link", "set", "lo", "up")
        peer = ("peer", "name", _CABLE, "netns", self._namespace)
        _in(self._switch, "ip", "link", "add", self._port, "type", "veth", *peer)
        _in(self._switch, "ip", "link", "set", self._port, "master", "switch", "up")
        _in(self._namespace, "ip", "address", "add", f"{self.address}/24", "dev", _CABLE)
        _in(self._namespace, "ip", "link", "set", _CABLE, "up")

    def command(self, *arguments: str) -> list[str]:
        """The command line that runs ``arguments`` there; it becomes that program, with the same process id."""
        return ["nsenter", f"--net={_NAMESPACES / self._namespace}", *arguments]

    def socket(self, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
        """An IPv4 socket of that host in this process; other hosts see its address."""
        with _entered(_NAMESPACES / self._namespace):
            return socket.socket(socket.AF_INET, kind)

    def received_bytes(self) -> int:
        """How much has come over its cable since it was made."""
        (told,) = json.loads(_in(self._namespace, "ip", "-s", "-j", "link", "show", _CABLE))
        return int(told["stats64"]["rx"]["bytes"])

    def cut_off(self) -> None:
        """Pull its cable: packets either way vanish, and nobody is told."""
        _in(self._switch, "ip", "link", "set", self._port, "nomaster")

    def connect(self) -> None:
        """Put its cable back."""
        _in(self._switch, "ip", "link", "set", self._port, "master", "switch")

    def kill(self) -> None:
        """Kill all that runs there at once, as a machine does that loses its power."""
        _kill(self._namespace)

    def deafen(self) -> None:
        """From now on it hears nobody, while all hear it."""
        _in(self._namespace, "iptables", "--wait", "-A", "INPUT", "-i", _CABLE, "-j", "DROP")

    def hear(self) -> None:
        """It hears again."""
        _in(self._namespace, "iptables", "--wait", "-D", "INPUT", "-i", _CABLE, "-j", "DROP")

    def narrow(self, bits_per_second: int) -> None:
        """Bound what it sends and what it receives, each, to so much."""
        for place, link in ((self._namespace, _CABLE), (self._switch, self._port)):
            rule = ("tbf", "rate", f"{bits_per_second}bit", "burst", "32kb", "latency", "50ms")
            _in(place, "tc", "qdisc", "replace", "dev", link, "root", *rule)

    def widen(self) -> None:
        """Take the bound away."""
        for place, link in ((self._namespace, _CABLE), (self._switch, self._port)):
            _in(place, "tc", "qdisc", "del", "dev", link, "root")


@contextlib.contextmanager
def hosts(*names: str) -> Iterator[tuple[Host, ...]]:
    """Hosts that reach each other and nothing else; what still runs there at the end is killed.

    What processes that died have left of theirs goes first.
    """
    need_hosts()
    remove_leftovers()
    network = f"{_PREFIX}-{os.getpid()}-{next(_NUMBERS)}"
    try:
        _ip("netns", "add", network)
        _in(network, "ip", "link", "add", "switch", "type", "bridge")
        _in(network, "ip", "link", "set", "switch", "up")
        yield tuple(Host(network, name, number) for number, name in enumerate(names, start=1))
    finally:
        _remove(each for each in _namespaces() if each == network or each.startswith(f"{network}-"))


def need_hosts() -> None:
    """Only where hosts can be made."""
    tools = [tool for tool in ("ip", "tc", "iptables") if shutil.which(tool) is None]
    need(not tools, "hosts of their own", "iproute2 iptables")
    need(os.geteuid() == 0, "to be root, to make network namespaces")


def remove_leftovers() -> None:
    """Remove the hosts of processes that have died, with all that runs there."""
    _remove(
        each for each in _namespaces() if not psutil.pid_exists(int(each.removeprefix(f"{_PREFIX}-").split("-")[0]))
    )


def _namespaces() -> list[str]:
    return sorted(path.name for path in _NAMESPACES.glob(f"{_PREFIX}-*"))


def _remove(namespaces: Iterator[str]) -> None:
    """Kill and remove; another process may be at it as well."""
    for namespace in namespaces:
        _kill(namespace)
        subprocess.run(["ip", "netns", "del", namespace], check=False, capture_output=True, timeout=_COMMAND_SECONDS)


def _kill(namespace: str) -> None:
    for _ in range(3):  # one that is killed may just have started another
        found = subprocess.run(
            ["ip", "netns", "pids", namespace],
            check=False,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
        )
        for pid in map(int, found.stdout.split()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def _entered(namespace: Path) -> Iterator[None]:
    """This thread's new sockets belong there."""
    with _OWN_NAMESPACE.open() as before, namespace.open() as wanted:
        _set_namespace(wanted.fileno())
        try:
            yield
        finally:
            _set_namespace(before.fileno())


def _set_namespace(descriptor: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, _NET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _ip(*arguments: str) -> None:
    _run(["ip", *arguments])


def _in(namespace: str, *command: str) -> str:
    return _run(["nsenter", f"--net={_NAMESPACES / namespace}", *command])


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_COMMAND_SECONDS)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
