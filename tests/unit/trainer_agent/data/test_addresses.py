"""What holds a whole process to the internet: in a process of its own, as there is no way back."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, socket, sys
from tiercel.trainer_agent.data.addresses import InternetOnly

guard = InternetOnly()
guard.install()
left, right = socket.socketpair()      # as event loops make them
left.sendall(b"x")


def fails(connect):
    try:
        connect()
    except OSError as error:
        return str(error)
    return "connected"


def by_udp(address):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.sendto(b"x", address)


def by_unix():
    with socket.socket(socket.AF_UNIX) as one:
        one.connect("/run/docker.sock")


place = ("127.0.0.1", 9)
print(fails(lambda: socket.create_connection(place, 5)))
print(fails(lambda: socket.create_connection(("localhost", 9), 5)))
print(fails(lambda: asyncio.run(asyncio.open_connection(*place))))
print(fails(lambda: by_udp(("169.254.169.254", 80))))
print(fails(by_unix))
print(guard.refused)
"""


@pytest.fixture(scope="module")
def said() -> list[str]:
    """What each attempt met."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.splitlines()


def test_nothing_on_this_machine_or_its_network_is_reached(said: list[str]) -> None:
    assert said[0] == said[2] == "127.0.0.1 is no address of the internet"
    assert said[1].endswith("is no address of the internet")
    assert said[3] == "169.254.169.254 is no address of the internet"
    assert said[4:] == ["a socket of the node is no address of the internet", "a socket of the node"]
