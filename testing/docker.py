"""A real Docker engine with a real training image in it.

The engine at DOCKER_HOST or at the default socket is used if it answers; else this starts one of its own, whose images
are kept in ``build/docker`` so that only the first session on a machine has to make them. Sessions that run at the same
time share it, the last one stops it, and one that was killed leaves nothing that the next cannot use.

``python -m testing.docker`` makes the image, which takes minutes: ``make test`` does so beside its first tests.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from testing.needs import need
from tiercel.trainer_agent.limits.cpu_priority import KERNEL_DEFAULT, CpuPriority
from tiercel.trainer_agent.runtimes.containers.runtime import DockerRuntime

REPOSITORY = Path(__file__).resolve().parents[1]
BASE_IMAGE = "tiercel-test-base:bookworm"
IMAGE_NAME = "tiercel-test"

_START_SECONDS = 60.0
_STOP_SECONDS = 30.0
_MAKE_SECONDS = 1800.0
# Half of what the image installs; no script of a test imports it in a container.
_UNNEEDED = "fontTools|matplotlib|mlxtend|pandas|PIL|pip|pygments|scipy|setuptools|sklearn|sqlalchemy|testing/_internal"
_UNCOMPILED = f"/(tests?|{_UNNEEDED})/"
_IMAGE_SOURCES = (
    "pyproject.toml",
    "constraints.txt",
    "Dockerfile",
    "tools",
    "tiercel/__init__.py",
    "protos",
    "trainer_agent",
)


@dataclass(frozen=True, slots=True)
class DockerEngine:
    """An engine that answers, with the training image in it."""

    host: str  # where it listens
    image: str  # the image's name with tag

    def command(self, *arguments: str) -> str:
        """What the client's command prints."""
        return _client(self.host, *arguments)


@contextmanager
def docker_engine() -> Iterator[DockerEngine]:
    """An engine for as long as the block lasts. Skips the test where there can be none, but never on CI."""
    given = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    if _answers(given):
        yield DockerEngine(given, _ensure_image(given))
        return
    need(os.geteuid() == 0, "a Docker engine that answers, or root, who may start one")
    missing = [command for command in ("dockerd", "docker", "mmdebstrap") if shutil.which(command) is None]
    need(not missing, "a Docker engine", "docker.io mmdebstrap")
    with _own_engine() as host:
        yield DockerEngine(host, _ensure_image(host))


@asynccontextmanager
async def docker_runtime(
    engine: DockerEngine, node_id: str, *, cgroup_parent: str | None = None, priority: CpuPriority = KERNEL_DEFAULT
) -> AsyncIterator[DockerRuntime]:
    """The runtime over an engine; what it leaves there is removed, and no other process's containers are touched."""
    runtime = await DockerRuntime.connect(
        engine.host,
        node_id=node_id,
        instance=f"{node_id}-{os.getpid()}",
        image=engine.image,
        cgroup_parent=cgroup_parent,
        priority=priority,
    )
    try:
        yield runtime
    finally:
        await runtime.remove_leftovers(())
        await runtime.close()


@contextmanager
def _own_engine() -> Iterator[str]:
    """An engine of ours: who uses it shares one lock, who starts or stops it holds another."""
    data = REPOSITORY / "build" / "docker"
    data.mkdir(parents=True, exist_ok=True)
    # Socket paths are short, whatever the checkout's is.
    runtime = Path("/tmp") / f"tiercel-docker-{hashlib.sha256(os.fsencode(data)).hexdigest()[:12]}"
    host = f"unix://{runtime}/docker.sock"
    with (data / "users.lock").open("a") as users:
        with _exclusive(data / "changes.lock"):
            fcntl.flock(users, fcntl.LOCK_SH)
            if not _answers(host):
                _stop(runtime)
                _start(data, runtime, host)
        try:
            yield host
        finally:
            with _exclusive(data / "changes.lock"), contextlib.suppress(BlockingIOError):  # somebody else uses it still
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _stop(runtime)


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _start(data: Path, runtime: Path, host: str) -> None:
    runtime.mkdir(mode=0o700, exist_ok=True)
    log = data / "dockerd.log"
    for driver in ("overlay2", "vfs"):
        command = ["dockerd", "--data-root", str(data / driver), "--exec-root", str(runtime / "exec")]
        command += ["--pidfile", str(runtime / "pid"), "--host", host, "--storage-driver", driver]
        command += ["--bridge=none", "--iptables=false", "--ip6tables=false", "--default-ulimit", "nofile=1024:1024"]
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        give_up_at = time.monotonic() + _START_SECONDS
        while process.poll() is None and time.monotonic() < give_up_at:
            if _answers(host):
                # It lives on without us, and whoever uses it last ends it: what Popen would warn of is what is wanted.
                process.returncode = 0
                return
            time.sleep(0.1)  # another program: it tells nobody when it is ready
        process.kill()
        process.wait()
    pytest.fail("The Docker engine does not start:\n" + log.read_text()[-3000:])


def _stop(runtime: Path) -> None:
    """End an engine of ours, if one lives, and what is left of one that was killed."""
    # The engine ends its own helper, unless it was killed; the helper holds locks that a next engine waits for.
    for pid_file, name in ((runtime / "pid", b"dockerd"), (runtime / "exec/containerd/containerd.pid", b"containerd")):
        with contextlib.suppress(FileNotFoundError, ValueError):
            pid = int(pid_file.read_text())
            if name in Path(f"/proc/{pid}/cmdline").read_bytes():
                _end(pid)
    _end_containers(runtime)
    shutil.rmtree(runtime, ignore_errors=True)


def _end_containers(runtime: Path) -> None:
    """End containers that outlived an engine that was killed."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.name().startswith("containerd-shim") and any(str(runtime) in word for word in process.cmdline()):
                for one in (*process.children(recursive=True), process):
                    one.kill()


def _end(pid: int) -> None:
    os.kill(pid, signal.SIGTERM)
    give_up_at = time.monotonic() + _STOP_SECONDS
    while not _is_zombie(pid) and time.monotonic() < give_up_at:
        time.sleep(0.05)  # likewise when it has ended, being no child of ours
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


def _is_zombie(pid: int) -> bool:
    """Whether a process has ended."""
    with contextlib.suppress(FileNotFoundError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


def _ensure_image(host: str) -> str:
    """The training image of this very source, made if need be. One at a time: two would do the work twice."""
    (REPOSITORY / "build").mkdir(exist_ok=True)
    with _exclusive(REPOSITORY / "build" / "image.lock"):
        return _make_image(host)


def _make_image(host: str) -> str:
    image = f"{IMAGE_NAME}:{_source_digest()}"
    if _client(host, "images", "--quiet", image).strip():
        return image
    environment = os.environ | {"DOCKER_HOST": host, "PYTHON": sys.executable, "UNCOMPILED": _UNCOMPILED}
    if os.geteuid() == 0 and shutil.which("mmdebstrap"):
        if not _client(host, "images", "--quiet", BASE_IMAGE).strip():
            _run([str(REPOSITORY / "tools" / "debian_base.sh"), BASE_IMAGE], environment)
        environment["BASE"] = BASE_IMAGE
    older = _client(host, "images", "--format", "{{.Repository}}:{{.Tag}}", IMAGE_NAME).split()
    _run([str(REPOSITORY / "tools" / "build_image.sh"), image], environment)
    for name in set(older) - {image}:
        # One may be in use by a session that runs at the same time; the next session removes it.
        subprocess.run(["docker", "--host", host, "rmi", name], check=False, capture_output=True)
    return image


def _source_digest() -> str:
    digest = hashlib.sha256()
    for source in _IMAGE_SOURCES:
        path = REPOSITORY / source
        files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.suffix in {".py", ".sh"})
        for file in files:
            digest.update(str(file.relative_to(REPOSITORY)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def _answers(host: str) -> bool:
    command = ["docker", "--host", host, "version", "--format", "{{.Server.Version}}"]
    try:
        return subprocess.run(command, check=False, capture_output=True, timeout=10).returncode == 0
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return False


def _client(host: str, *arguments: str) -> str:
    return _run(["docker", "--host", host, *arguments], dict(os.environ))


def _run(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=_MAKE_SECONDS)
    if done.returncode != 0:
        pytest.fail(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout


def main() -> int:
    """Make the image, if it can be made here.

    Returns:
        0 also where there can be no engine: the tests that need one say so.
    """
    try:
        with docker_engine() as engine:
            sys.stdout.write(f"The image for tests in containers is made: {engine.image}\n")
    except pytest.skip.Exception:
        return 0
    except pytest.fail.Exception as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
