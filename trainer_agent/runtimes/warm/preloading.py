"""What a template imports before runs are forked from it, and what makes a package unfit for that.

Imports as little as it can: all of it is in the runs.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import random
import sys
import sysconfig
from collections.abc import Collection, ItemsView, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

_OF_ONE_RUN: Final = ("HOME", "CUDA_VISIBLE_DEVICES", "TIERCEL_")
"""Variables that each run has of its own, or how their names begin."""

# Read by the loader, the interpreter and native libraries, where no one sees it.
_READ_NATIVELY: Final = (
    *("PYTHON", "LANG", "LC_", "LD_", "TZ", "MALLOC_", "GLIBC_", "OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "GOTO_"),
    *("BLIS_", "DNNL_", "ONEDNN_", "ATEN_", "TORCH_", "PYTORCH_", "NCCL_"),
)
# A fork sets what they say by a call instead.
_SET_BY_CALL: Final = frozenset({"OMP_NUM_THREADS", "MKL_NUM_THREADS"})
_ONLY_OF_TEMPLATES: Final = frozenset({"OPENBLAS_NUM_THREADS"})


class UnfitError(Exception):
    """A module must not be imported before runs are forked."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name = name
        self.reason = reason


class WatchedVariables(os._Environ):  # type: ignore[type-arg]  # noqa: SLF001 - what os.environ is
    """The environment of this process, which notes who is asked for.

    Who looks through all of it, as tqdm does, looks for those that begin with its own name: nobody else's matter to it.
    """

    read: ClassVar[set[str]] = set()
    beginnings: ClassVar[set[str]] = set()

    def __getitem__(self, name: str) -> str:
        """See :data:`os.environ`."""
        self.read.add(name)
        value: str = super().__getitem__(name)
        return value

    def items(self) -> ItemsView[str, str]:
        """See :data:`os.environ`."""
        package = str(sys._getframe(1).f_globals.get("__name__", "")).partition(".")[0]  # noqa: SLF001 - who asks
        self.beginnings.add(f"{package.upper()}_")
        return {name: super(WatchedVariables, self).__getitem__(name) for name in self}.items()


class Preloader:
    """Imports modules, and looks what that did to the process. To be made before any of them is imported."""

    def __init__(self) -> None:
        sysconfig.get_config_vars()  # asks for HOME, and a fork puts that right
        os.environ.__class__ = WatchedVariables
        self._descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - the number is wanted
        self._generators = _generators()
        self._packages = _packages()
        self._variables = dict(os.environb)  # to look there is not noted

    def load(self, names: Iterable[str]) -> dict[str, str]:
        """Import modules in their order.

        Returns:
            Those that cannot be imported, with the reason; what lies below them is left out.

        Raises:
            UnfitError: One of them must not be imported here. It is, so that this process is of no use any more.
        """
        failed: dict[str, str] = {}
        for name in (each for given in names for each in _with_packages(given)):
            if name in sys.modules or any(name == lost or name.startswith(f"{lost}.") for lost in failed):
                continue
            try:
                importlib.import_module(name)
            except BaseException as error:
                failed[name] = f"it cannot be imported ({type(error).__name__})"
            if name == "torch" and name in sys.modules:
                _build_optimizer()
            self._check(name)
        return failed

    @property
    def set_variables(self) -> dict[str, str]:
        """Variables that packages have set when they were imported."""
        new = {name: value for name, value in os.environb.items() if self._variables.get(name) != value}
        return {os.fsdecode(name): os.fsdecode(value) for name, value in new.items()}

    def why_unfit(self) -> str:
        """Why nothing may be forked from this process, in plain words; empty if it may."""
        if (threads := _threads()) != 1:
            return f"the template has {threads} threads"
        if _has_device():
            return "the template has opened a device"
        if _packages() != self._packages:
            return "packages were changed since the template imported them"
        return ""

    def _check(self, name: str) -> None:
        if _threads() != 1:
            raise UnfitError(name, "it starts a thread when it is imported")
        if _has_device():
            raise UnfitError(name, "it opens a device when it is imported")
        if len(os.listdir("/proc/self/fd")) > self._descriptors:  # noqa: PTH208 - the number is wanted
            raise UnfitError(name, "it keeps a file open when it is imported")
        if own := sorted(each for each in WatchedVariables.read if each.startswith(_OF_ONE_RUN)):
            raise UnfitError(name, f"it reads {own[0]} when it is imported")
        now = _generators(self._generators)
        if any(now[each] != state for each, state in self._generators.items()):
            raise UnfitError(name, "it seeds random numbers when it is imported")
        self._generators = now


def why_not_like_this(
    environment: Mapping[str, str], at_start: Mapping[str, str], set_variables: Mapping[str, str]
) -> str:
    """Why a run with an environment cannot be a fork of this process, in plain words; empty if it can."""
    for name in sorted(environment.keys() | at_start.keys()):
        if environment.get(name) == at_start.get(name) or name in _SET_BY_CALL:
            continue
        if name in _ONLY_OF_TEMPLATES and name not in environment:
            continue
        is_set = name in environment and name in set_variables
        is_read = name in WatchedVariables.read or name.upper().startswith(tuple(WatchedVariables.beginnings))
        if name.startswith(_READ_NATIVELY) or is_read or is_set:
            return f"the variable {name} takes effect when packages are imported"
    return ""


def why_not_threads(threads: int) -> str:
    """Why a fork of this process cannot compute with several threads; empty if it can."""
    if threads == 1 or "numpy" not in sys.modules or importlib.util.find_spec("threadpoolctl") is not None:
        return ""
    return "threadpoolctl is not installed, which several threads need"


def why_not_in(folder: Path, module: str, at_start: frozenset[str]) -> str:
    """Why a program whose modules lie in a folder cannot be a fork of this process; empty if it can."""
    if module in sys.modules:
        return f"the template has imported {module}, which is the program"
    loaded = {name.partition(".")[0] for name in sys.modules} - at_start
    try:
        own = {_as_module(entry) for entry in os.listdir(folder)}  # noqa: PTH208 - names are wanted
    except OSError:
        return ""
    both = sorted(loaded & own)
    return f"the program has a module {both[0]} of its own, as the template has" if both else ""


def _as_module(entry: str) -> str:
    """What a file or folder is imported as; a file that is no module, such as tiercel.yaml, keeps its name."""
    ending = next((each for each in importlib.machinery.all_suffixes() if entry.endswith(each)), "")
    return entry.removesuffix(ending)


def _with_packages(name: str) -> list[str]:
    """A module behind the packages that it is in, which an interpreter lists behind it."""
    parts = name.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts) + 1)]


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))  # noqa: PTH208 - the number is wanted


def _has_device() -> bool:
    cuda = sys.modules.get("torch.cuda")
    return cuda is not None and bool(cuda.is_initialized())


def _build_optimizer() -> None:
    """Have what the first optimizer imports; no step is made, as that may start threads and open devices."""
    torch: Any = sys.modules["torch"]
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)


def _generators(known: Collection[str] = ()) -> dict[str, int]:
    """What changes when generators of random numbers are seeded; of some also when they draw for long."""
    of_numpy, torch = sys.modules.get("numpy.random"), sys.modules.get("torch")
    if "random" not in known:
        random.random()  # noqa: S311 - the first draw mixes the state, in which the next hundreds go on
    states = {"random": hash(random.getstate()[1][:-1])}
    if of_numpy is not None:
        if "numpy" not in known:
            of_numpy.rand()
        states["numpy"] = hash(of_numpy.get_state()[1].tobytes())
    if torch is not None and hasattr(torch, "default_generator"):
        states["torch"] = hash(bytes(torch.default_generator.get_state().tolist()))
    return states


def _packages() -> dict[str, frozenset[str]]:
    """What lies in the folders that packages are imported from; what is installed has its version in its name."""
    found = {}
    for folder in sys.path:
        try:
            found[folder] = frozenset(os.listdir(folder)) - {"__pycache__"}  # noqa: PTH208 - names are wanted
        except OSError:
            continue
    return found
