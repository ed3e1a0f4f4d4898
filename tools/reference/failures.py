"""The catalogue of errors."""

from __future__ import annotations

from collections.abc import Iterator

import tiercel.trainer_agent.errors
from tiercel.core.errors import ERRORS, TiercelError
from tiercel.serving.rest.messages import HttpRefusedError
from tools.reference.text import code, described, docstring_of, table


def page() -> str:
    """The page of errors."""
    parts = [
        "# Errors\n",
        (
            "Every error has a `code` that programs may rely on, and a message that names the field and says what to "
            "do. The broker sends the code in the trailing metadata `tiercel-error-code`, the field in "
            "`tiercel-error-field`.\n"
        ),
        "## Of calls\n",
    ]
    own = {kind for kind in ERRORS.values() if kind.__module__ == TiercelError.__module__}
    rows = [
        (code(kind.code), code(kind.__name__), code(kind.grpc_status), code(kind.http_status), _words(kind))
        for kind in sorted(own, key=lambda kind: (kind.http_status, kind.code))
    ]
    parts.append(table(("code", "in Python", "gRPC", "HTTP", "means"), rows))
    parts.append(f"Over HTTP there is also what only HTTP can get wrong: {_words(HttpRefusedError)}\n")
    parts.append("## In an agent and in training scripts\n")
    parts.append("They become the reason of a run or of a delivery, or are raised in a script.\n")
    parts.append(table(("in Python", "means"), [(code(kind.__name__), _words(kind)) for kind in _of_agents()]))
    return "\n".join(parts)


def _words(kind: type) -> str:
    return described(kind.__name__, docstring_of(kind).text)


def _of_agents() -> Iterator[type[Exception]]:
    module = tiercel.trainer_agent.errors
    for thing in vars(module).values():
        if isinstance(thing, type) and issubclass(thing, Exception) and thing.__module__ == module.__name__:
            yield thing
