"""Which packages are missing here, before anything that needs them is started and waited for in vain."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.util import find_spec

from tiercel.core.errors import UnavailableError

# Import names of what the extras of pyproject.toml bring; a test holds the two together.
SERVING = (
    "httptools",
    "ml_dtypes",
    "numpy",
    "onnx",
    "onnxruntime",
    "orjson",
    "prometheus_client",
    "simdjson",
    "uvloop",
)
TRAINING = ("mlxtend", "numpy", "onnx", "onnxruntime", "onnxscript", "sklearn", "torch")


def check_packages(runtimes: tuple[str, ...], tell: Callable[[str], None]) -> None:
    """See to it that the inference server can start, and say what jobs will not find.

    Args:
        runtimes: What jobs run with, as asked for; empty for the agent's choice.
        tell: Says a sentence to the user.

    Raises:
        UnavailableError: The inference server would not start; names the command that installs what is missing.
    """
    if missing := missing_of(SERVING):
        raise UnavailableError(
            f"The inference server needs packages that are not installed here ({', '.join(missing)}); install them "
            "with: pip install 'tiercel[serve]'"
        )
    # Containers bring their own.
    if runtimes != ("docker",) and (missing := missing_of(TRAINING)):
        tell(
            f"Training scripts that are run as processes will not find {', '.join(missing)}; to export models they "
            "need them: pip install 'tiercel[train]'"
        )


def missing_of(names: Iterable[str]) -> list[str]:
    """Those of some packages, by import names, that are not installed here."""
    return [name for name in names if find_spec(name) is None]
