"""How what has imported modules becomes a script that knows nothing of it, and does as one that was started by itself.

It is a fork of a template, or the process of a container that waited. Imports as little as it can: all of it is in the
runs.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib.machinery
import io
import json
import os
import random
import runpy
import signal
import site
import sys
import sysconfig
import types
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

ENTERED: Final = b"entered\n"
"""Said when the next thing to happen is the script's first line."""

COLD: Final = b"cold: "
"""How it begins to say that this very run is to be started cold; other reasons are about what has imported modules."""

_NO_SUCH_FILE: Final = 2


@dataclass(frozen=True, slots=True)
class WarmOrder:
    """What is to become a run needs to know of it."""

    script: str  # the script's path, or empty
    module: str  # the module's name, or empty
    arguments: Sequence[str]  # command-line arguments
    working_directory: str  # of the script
    environment: Mapping[str, str]  # of the script
    threads: int  # threads that compute
    ended_first: int  # how much earlier than others the kernel ends the script when memory runs out, up to 1000
    umask: int = 0o022  # permissions that the files of the script do not have
    folder: str = ""  # the minder's, there and empty; none where there is no minder
    minder_entry: Sequence[str] = ()  # files that the minder writes its own pid to, in order to be where others are
    script_entry: Sequence[str] = ()  # files that the script writes its own pid to, in order to enter its confines

    def to_bytes(self) -> bytes:
        """As :meth:`from_bytes` takes it."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, stored: bytes) -> Self:
        """The inverse of :meth:`to_bytes`."""
        return cls(**json.loads(stored))

    @property
    def imports_from(self) -> Path:
        """Where its own modules are looked for first."""
        return Path(os.path.realpath(self.script)).parent if self.script else Path(self.working_directory)


def reset_signals() -> None:
    """Have every signal do what it does in an interpreter that has just begun."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError, ValueError):  # some are the C library's own
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def close_all_but(kept: Collection[int]) -> None:
    """Close every descriptor that is not to be kept, whoever opened it."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names are wanted
        if int(name) not in kept:
            with contextlib.suppress(OSError):  # the one of the listing
                os.close(int(name))


def enter(files: Sequence[str]) -> None:
    """Enter control groups."""
    for file in files:
        Path(file).write_text(str(os.getpid()))


def become(order: WarmOrder, entered: int, set_variables: Mapping[str, str]) -> None:
    """Turn into the script, up to its first line.

    Args:
        order: What it is.
        entered: Where to say so; closed then.
        set_variables: What packages have set in their environment, unless somebody else had.

    Raises:
        OSError: It cannot be done; nothing of the script has run.
    """
    reset_signals()
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(order.ended_first))
    enter(order.script_entry)
    close_all_but({0, 1, 2, entered})
    os.umask(order.umask)
    os.chdir(order.working_directory)
    os.environ.__class__ = os._Environ  # noqa: SLF001 - as it was before it was watched
    os.environ.clear()
    os.environ.update(set_variables)
    os.environ.update(order.environment)
    _forget()
    _use_threads(order.threads)
    _draw_anew()
    own = [order.script] if order.script else ["-m", order.module]
    sys.argv = [own[0], *order.arguments]
    sys.orig_argv = [sys.orig_argv[0], *own, *order.arguments]
    sys.path.insert(0, str(order.imports_from))
    importlib.invalidate_caches()
    os.write(entered, ENTERED)
    os.close(entered)


def run(order: WarmOrder) -> None:
    """Run the script; the end of the interpreter follows, as it does for a script that was started by itself."""
    main = types.ModuleType("__main__")
    vars(main).update(__builtins__=builtins, __annotations__={}, __doc__=None, __package__=None)
    sys.modules["__main__"] = main
    try:
        if order.module:
            runpy._run_module_as_main(order.module)  # type: ignore[attr-defined]  # noqa: SLF001 - what -m calls
        else:
            _point(main, order.script)
            with io.open_code(order.script) as file:
                source = file.read()
            exec(compile(source, order.script, "exec", dont_inherit=True), vars(main))  # noqa: S102 - it is the job
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        _tell(error)
    else:
        return
    raise SystemExit(1)


def _point(main: types.ModuleType, script: str) -> None:
    """Say in a main module which file it is."""
    if not os.access(script, os.R_OK):
        sys.stderr.write(f"{sys.executable}: can't open file {script!r}\n")
        raise SystemExit(_NO_SUCH_FILE)
    loader = importlib.machinery.SourceFileLoader("__main__", script)
    vars(main).update(__file__=script, __cached__=None, __loader__=loader)


def _tell(error: BaseException) -> None:
    own = error.__traceback__
    error.with_traceback(own.tb_next if own is not None else None)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    sys.excepthook(type(error), error, error.__traceback__)


def _forget() -> None:
    """Put right what packages keep of where and who the template was."""
    sysconfig.get_config_vars()["userbase"] = os.path.expanduser("~/.local")  # noqa: PTH111 - as Python itself does
    site.USER_BASE = site.USER_SITE = None
    site.getusersitepackages()
    if (tempfile := sys.modules.get("tempfile")) is not None:
        tempfile.tempdir = None  # type: ignore[attr-defined]
    if (processes := sys.modules.get("multiprocessing.process")) is not None:
        processes.ORIGINAL_DIR = os.getcwd()  # type: ignore[attr-defined]  # noqa: PTH109 - a string is wanted
        processes.current_process().authkey = os.urandom(32)


def _use_threads(threads: int) -> None:
    """What the environment would say, had it been there when the libraries were loaded."""
    if threads == 1:
        return
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(threads)
    if "numpy" in sys.modules:
        before = dict(os.environ)  # it sets some when it is imported
        importlib.import_module("threadpoolctl").threadpool_limits(threads)
        os.environ.clear()
        os.environ.update(before)


def _draw_anew() -> None:
    """Have random numbers of its own, where the script does not seed them."""
    random.seed()
    if (of_numpy := sys.modules.get("numpy.random")) is not None:
        of_numpy.seed()
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.seed()
