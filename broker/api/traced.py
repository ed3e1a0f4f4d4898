"""Calls as spans of the traces that their callers are in."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tiercel.core.errors import TiercelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tiercel.core.traces import Tracing

    Metadata = Iterable[tuple[str, str | bytes]] | None

_PARENT: Final = "traceparent"
_CONTEXT: Final = (_PARENT, "tracestate")


@contextmanager
def joined(tracing: Tracing | None, name: str, metadata: Metadata) -> Iterator[Callable[[str], None]]:
    """The block as a span of the caller's trace, where traces are made and the caller is in one.

    Args:
        tracing: Makes spans; None for none.
        name: What is called.
        metadata: Of the call, with what the caller says of its trace.

    Yields:
        To be called with the id of the job that came of it.
    """
    told = {key: text for key, text in metadata or () if key in _CONTEXT and isinstance(text, str)}
    if tracing is None or _PARENT not in told:
        yield lambda _: None
        return
    span = tracing.begin(name, told, 0.0, {})
    try:
        with span.current():
            yield span.leads_to
    except TiercelError as error:
        span.end(error.message)
        raise
    except BaseException as error:
        span.end(repr(error))
        raise
    finally:
        span.end()
