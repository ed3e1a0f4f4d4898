"""The hosts that tests are run on: they reach each other until a cable is pulled, and nothing of them stays."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from testing.hosts import Host, hosts, need_hosts

_PORT = 5000
_SOON = 0.3
_NARROW_BITS = 2_000_000

pytestmark = pytest.mark.usefixtures("_able")


@pytest.fixture
def _able() -> None:
    need_hosts()


@contextlib.contextmanager
def a_pair(sender: Host, receiver: Host) -> Iterator[tuple[socket.socket, socket.socket]]:
    with sender.socket(socket.SOCK_DGRAM) as sending, receiver.socket(socket.SOCK_DGRAM) as receiving:
        receiving.bind((receiver.address, _PORT))
        receiving.settimeout(_SOON)
        yield sending, receiving


def is_heard(sender: Host, receiver: Host) -> bool:
    with a_pair(sender, receiver) as (sending, receiving):
        sending.sendto(b"x", (receiver.address, _PORT))
        try:
            content, peer = receiving.recvfrom(10)
        except TimeoutError:
            return False
        assert (content, peer[0]) == (b"x", sender.address)
        return True


def test_hosts_hear_each_other_until_one_is_cut_off_or_deaf() -> None:
    with hosts("a", "b", "c") as (a, b, c):
        assert all(is_heard(one, other) for one in (a, b, c) for other in (a, b, c))
        b.cut_off()
        assert [is_heard(a, b), is_heard(b, a), is_heard(a, c), is_heard(b, b)] == [False, False, True, True]
        b.connect()
        assert is_heard(a, b)
        b.deafen()
        assert [is_heard(a, b), is_heard(b, a)] == [False, True]
        b.hear()
        assert is_heard(a, b)


def test_a_connection_over_a_pulled_cable_is_silent_and_goes_on_when_it_is_back() -> None:
    with hosts("a", "b") as (a, b), a.socket() as client, b.socket() as listener:
        listener.bind((b.address, _PORT))
        listener.listen()
        client.settimeout(20.0)
        client.connect((b.address, _PORT))
        served, _ = listener.accept()
        with served:
            served.settimeout(_SOON)
            b.cut_off()
            client.sendall(b"still there?")
            with pytest.raises(TimeoutError):
                served.recv(20)
            b.connect()
            served.settimeout(20.0)
            assert served.recv(20) == b"still there?"


def test_a_narrow_cable_lets_no_more_through_than_it_may() -> None:
    with hosts("a", "b") as (a, b):
        b.narrow(_NARROW_BITS)
        with a.socket() as client, b.socket() as listener:
            listener.bind((b.address, _PORT))
            listener.listen()
            client.connect((b.address, _PORT))
            served, _ = listener.accept()
            size = 500_000
            with served, ThreadPoolExecutor() as pool:
                began = time.monotonic()
                sending = pool.submit(client.sendall, bytes(size))
                got = 0
                while got < size:
                    got += len(served.recv(65536))
                sending.result()
        # A bound from below alone: a busy machine takes longer.
        assert time.monotonic() - began > 0.8 * (size - 32_768) * 8 / _NARROW_BITS
        b.widen()
        assert is_heard(a, b)


def test_two_networks_with_the_same_addresses_hear_nothing_of_each_other() -> None:
    with hosts("a", "b") as (a, b), hosts("a", "b") as (_, other):
        assert other.address == b.address
        with a_pair(a, b) as (sending, receiving), other.socket(socket.SOCK_DGRAM) as elsewhere:
            elsewhere.bind((other.address, _PORT))
            elsewhere.settimeout(_SOON)
            sending.sendto(b"x", (b.address, _PORT))
            assert receiving.recv(10) == b"x"
            with pytest.raises(TimeoutError):
                elsewhere.recv(10)


def test_a_program_there_has_its_own_network_and_goes_with_it_and_with_nothing_elses() -> None:
    with hosts("a") as (a,):
        listed = subprocess.run(a.command("ip", "-br", "address"), check=True, capture_output=True, text=True)
        assert a.address in listed.stdout
        sleeper = subprocess.Popen(a.command("sleep", "600"))
        wait_entered(sleeper.pid)
        with hosts("other"):  # which removes what others left
            pass
        assert sleeper.poll() is None
    assert sleeper.wait(20) == -signal.SIGKILL
    assert not Path(a.command()[1].removeprefix("--net=")).exists()


def wait_entered(pid: int) -> None:
    deadline = time.monotonic() + 20
    while Path(f"/proc/{pid}/comm").read_text().strip() != "sleep":
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_a_killed_test_left_is_removed_by_the_next() -> None:
    program = (
        "import subprocess, sys, time\n"
        "from testing.hosts import hosts\n"
        "with hosts('a', 'b') as (a, b):\n"
        "    child = subprocess.Popen(a.command('sleep', '600'), start_new_session=True)\n"
        "    print(child.pid, a.command()[1].removeprefix('--net='), flush=True)\n"
        "    time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]
    ) as victim:
        assert victim.stdout is not None
        pid, namespace = victim.stdout.readline().split()
        wait_entered(int(pid))
        victim.send_signal(signal.SIGKILL)
    assert Path(namespace).exists()
    with hosts("a"):
        assert not Path(namespace).exists()
        assert not Path(f"/proc/{pid}").exists() or is_zombie(int(pid))


def is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_this_process_stays_where_it_is() -> None:
    before = Path("/proc/thread-self/ns/net").readlink()
    with hosts("a") as (a,):
        a.socket().close()
        assert Path("/proc/thread-self/ns/net").readlink() == before
