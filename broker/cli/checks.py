"""What ``tiercel doctor`` looks at. A check never raises: whatever it meets becomes a finding."""

from __future__ import annotations

import ctypes
import enum
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import tiercel
from tiercel.broker.client.state_dir import default_state_dir, read_addresses
from tiercel.core.addresses import port_in, split_address
from tiercel.core.errors import TiercelError
from tiercel.core.figures import size

if TYPE_CHECKING:
    from tiercel.broker.cli.session import Target

_SECONDS = 5.0
_LEAST_FREE_BYTES = 2 * 1024**3
_WARN_FREE_PART = 0.05
_LEAST_PYTHON = (3, 11)
_CLOCK_IS_OFF = 5  # TIME_ERROR of adjtimex(2)


class State(enum.Enum):
    """How a check came out."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found."""

    state: State  # how it came out
    found: str  # what is there
    mend: str = ""  # what to do about it, in a sentence; empty where nothing is


def _python(_: Target) -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < _LEAST_PYTHON:
        return Finding(State.FAIL, version, "Install Python 3.11 or newer, and Tiercel for it.")
    return Finding(State.OK, f"{version} in {sys.prefix}")


def _packages(_: Target) -> Finding:
    from tiercel.broker.cli.up.packages import SERVING, TRAINING, missing_of

    if missing := missing_of(SERVING):
        words = f"the inference server lacks {', '.join(missing)}"
        return Finding(State.FAIL, words, "On a machine that serves: pip install 'tiercel[serve]'.")
    if missing := missing_of(TRAINING):
        words = f"training scripts lack {', '.join(missing)}"
        return Finding(State.WARN, words, "If jobs run as processes here: pip install 'tiercel[train]'.")
    return Finding(State.OK, "for serving and training")


def _docker(_: Target) -> Finding:
    mend = "Jobs run as processes; for containers install Docker, and let this user talk to it."
    if shutil.which("docker") is None:
        return Finding(State.WARN, "not installed", mend)
    answer = _output("docker", "version", "--format", "{{.Server.Version}}")
    return Finding(State.OK, f"engine {answer}") if answer else Finding(State.WARN, "its engine does not answer", mend)


def _cgroups(_: Target) -> Finding:
    root = Path("/sys/fs/cgroup")
    mend = "CPU shares are kept by the training library alone; as root, or in a delegated group, the kernel keeps them."
    if (root / "cgroup.controllers").exists():
        kind, folder = "v2", root
    elif (root / "cpu").exists():
        kind, folder = "v1", root / "cpu"
    else:
        return Finding(State.WARN, "none", mend)
    if not os.access(folder, os.W_OK) or os.statvfs(folder).f_flag & os.ST_RDONLY:
        return Finding(State.WARN, f"{kind}, and this user may not make groups", mend)
    return Finding(State.OK, kind)


def _gpu(_: Target) -> Finding:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if not Path("/proc/driver/nvidia").exists():
            return Finding(State.OK, "none")
        return Finding(State.WARN, f"the driver does not answer ({error})", "Try nvidia-smi; install its driver again.")
    try:
        devices = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        names = [pynvml.nvmlDeviceGetName(device) for device in devices]
        driver = pynvml.nvmlSystemGetDriverVersion()
        return Finding(State.OK, f"{', '.join(map(str, names)) or 'none'}; driver {driver}")
    except pynvml.NVMLError as error:
        return Finding(State.WARN, f"the driver says {error}", "Look at what nvidia-smi says of the device.")
    finally:
        pynvml.nvmlShutdown()


def _uv(_: Target) -> Finding:
    from importlib.util import find_spec

    if shutil.which("uv") or find_spec("uv"):
        return Finding(State.OK, "installed")
    mend = "Environments of jobs are built by pip, which takes longer; pip install 'tiercel[envs]'."
    return Finding(State.WARN, "not installed", mend)


def _disk(target: Target) -> Finding:
    folder = target.state_dir or default_state_dir()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    use = shutil.disk_usage(folder)
    words = f"{size(use.free)} free of {size(use.total)} at {folder}"
    mend = "Make room; 'tiercel du' says what is Tiercel's, and --state-dir puts it elsewhere."
    if use.free < _LEAST_FREE_BYTES:
        return Finding(State.FAIL, words, mend)
    return Finding(State.WARN, words, mend) if use.free < _WARN_FREE_PART * use.total else Finding(State.OK, words)


def _clock(_: Target) -> Finding:
    # The structure that the kernel fills in is 208 bytes; all zeros ask and change nothing.
    state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))
    if state == _CLOCK_IS_OFF:
        mend = "Certificates and tokens need a right clock where machines are several: timedatectl set-ntp true."
        return Finding(State.WARN, "no program sets it by the network", mend)
    return Finding(State.OK, "kept right") if state >= 0 else Finding(State.OK, "it is not said who keeps it")


def _broker(target: Target) -> Finding:
    import asyncio

    if not (target.broker or _addresses(target)):
        return Finding(State.WARN, "none was started here", "Start one with 'tiercel up', or give --broker.")
    try:
        version = asyncio.run(_version(target))
    except TiercelError as error:
        return Finding(State.FAIL, error.message, "Start it with 'tiercel up', or look at broker.log.")
    if version != tiercel.__version__:
        words = f"{version}, and this command is {tiercel.__version__}"
        return Finding(State.WARN, words, "Have both of one version: pip install --upgrade tiercel, then 'tiercel up'.")
    return Finding(State.OK, version)


def _ports(target: Target) -> Finding:
    addresses = _addresses(target)
    if not addresses:
        return Finding(State.OK, "any free ones will be used")
    silent = [name for name, address in addresses.items() if not _answers(address)]
    if silent:
        mend = "If it does not run, 'tiercel up' opens them; if it does, another program or a firewall is in the way."
        places = ", ".join(f"{name} {addresses[name]}" for name in silent)
        return Finding(State.WARN, f"nobody answers at {places}", mend)
    return Finding(State.OK, "all of addresses.json answer")


def _mqtt(target: Target) -> Finding:
    address = _addresses(target).get("mqtt", "")
    if not address:
        return Finding(State.OK, "'tiercel up' brings one along")
    if _answers(address):
        return Finding(State.OK, f"answers at {address}")
    return Finding(State.WARN, f"does not answer at {address}", "No news is published; start 'tiercel up' or your own.")


async def _version(target: Target) -> str:
    from tiercel.broker.client.connection import Connection
    from tiercel.broker.client.given_token import given_token
    from tiercel.broker.client.options import ClientOptions
    from tiercel.broker.client.state_dir import read_broker, read_token
    from tiercel.broker.client.status import cluster_status
    from tiercel.core.trust.trust import Trust

    folder = target.state_dir or default_state_dir()
    address, trust = (target.broker, Trust.from_environment(os.environ)) if target.broker else read_broker(folder)
    token = given_token(os.environ) or read_token(folder, target.tenant)
    connection = await Connection.open(address, token, ClientOptions(), trust)
    try:
        return (await cluster_status(connection)).version
    finally:
        await connection.close()


def _addresses(target: Target) -> dict[str, str]:
    """Where ``up`` on this machine listens, by what it is; empty where none was started."""
    try:
        addresses = read_addresses(target.state_dir or default_state_dir())
    except TiercelError:
        return {}
    return {name: address for name, address in addresses.items() if port_in(address)}


def _answers(address: str) -> bool:
    try:
        socket.create_connection(split_address(address), timeout=_SECONDS).close()
    except (OSError, ValueError):
        return False
    return True


def _output(*words: str) -> str:
    """What a program prints; empty where it fails, or does not answer in time."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ""
    return done.stdout.strip()


CHECKS: Final[dict[str, Callable[[Target], Finding]]] = {
    "python": _python,
    "packages": _packages,
    "docker": _docker,
    "cgroups": _cgroups,
    "gpu": _gpu,
    "uv": _uv,
    "disk": _disk,
    "clock": _clock,
    "broker": _broker,
    "ports": _ports,
    "mqtt": _mqtt,
}
"""What is looked at, in this order."""
