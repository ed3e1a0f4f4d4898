"""A function as a job: ``@tiercel.job``, for notebooks and scripts; it travels by value, as a project of its own."""

from __future__ import annotations

import functools
import hashlib
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Generic, ParamSpec, TypeVar

from tiercel.broker.client.spec_file import parse_spec
from tiercel.core.errors import InvalidSpecError
from tiercel.core.jobs import JobSpec

_P = ParamSpec("_P")
_T = TypeVar("_T")

FUNCTION: Final = "function.pickle"
PROGRAM: Final = "run_function.py"
_CALL: Final = """\
\"\"\"Calls the function that was submitted; written by tiercel.job.\"\"\"

import sys

if sys.version_info[:2] != {version}:
    sys.exit("The function was submitted by Python {version[0]}.{version[1]} and this is %d.%d, which cannot read it: "
             "submit it from the same version, or use an image that has it." % sys.version_info[:2])

import pickle
from pathlib import Path

function, arguments, named = pickle.loads((Path(__file__).parent / "{function}").read_bytes())
function(*arguments, **named)
"""


@functools.cache
def _folders() -> tempfile.TemporaryDirectory[str]:
    """Where projects of functions lie until this program ends."""
    return tempfile.TemporaryDirectory(prefix="tiercel-")


class FunctionJob(Generic[_P, _T]):
    """A function that can be called here, and submitted.

    Args:
        function: The function; of what it refers to, what its own module or notebook defines travels with it.
        fields: Of the job's spec, as in a spec's file; ``endpoint``, ``metric`` and ``tiers`` at least.
    """

    def __init__(self, function: Callable[_P, _T], fields: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._fields = fields

    def __call__(self, *arguments: _P.args, **named: _P.kwargs) -> _T:
        """Call it here."""
        return self._function(*arguments, **named)

    def with_arguments(self, *arguments: _P.args, **named: _P.kwargs) -> JobSpec:
        """The job that calls it with these arguments, to be submitted by this program.

        Raises:
            InvalidSpecError: A field is wrong, or something that the function needs cannot travel; names it.
        """
        import cloudpickle  # for programs that submit functions alone

        module = sys.modules.get(self._function.__module__)
        by_value = module is not None and module.__name__ != "__main__"
        try:
            if by_value:
                cloudpickle.register_pickle_by_value(module)
            content = cloudpickle.dumps((self._function, arguments, named))
        except Exception as error:  # whatever an object of the user's raises while it is pickled
            name = self._function.__name__
            message = f"project: the function {name!r} cannot be sent ({error}); make what it needs inside of it"
            raise InvalidSpecError(message, field="project") from error
        finally:
            if by_value:
                cloudpickle.unregister_pickle_by_value(module)
        # What reads the pickle goes along, so that any Python of this version can.
        return _spec(content, Path(cloudpickle.__file__).parent, {"name": self._function.__name__} | self._fields)


def job(**fields: Any) -> Callable[[Callable[_P, _T]], FunctionJob[_P, _T]]:
    """Make a function a job that can be submitted: ``client.submit(train.with_arguments(width=128))``.

    Args:
        fields: Of the job's spec, as in a spec's file, but for its program.

    Raises:
        InvalidSpecError: A field says what to run.
    """
    for name in ("script", "module", "command", "project", "arguments"):
        if name in fields:
            raise InvalidSpecError(f"{name}: the function itself is what runs; leave it out", field=name)
    return lambda function: FunctionJob(function, fields)


def _spec(content: bytes, library: Path, fields: dict[str, Any]) -> JobSpec:
    folder = Path(_folders().name) / hashlib.sha256(content).hexdigest()
    if not folder.exists():
        folder.mkdir()
        shutil.copytree(library, folder / library.name, ignore=shutil.ignore_patterns("__pycache__"))
        (folder / PROGRAM).write_text(_CALL.format(version=tuple(sys.version_info[:2]), function=FUNCTION))
        (folder / FUNCTION).write_bytes(content)
    return parse_spec({**fields, "project": str(folder), "command": ["python", PROGRAM]})
