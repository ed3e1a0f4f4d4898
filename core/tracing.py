"""Traces for OpenTelemetry, where the environment asks for them; else nothing of it is imported.

It has to be there, as the extra ``otel`` brings it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from tiercel.core.errors import SetupError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tiercel.core.traces import Tracing

_log = logging.getLogger(__name__)

_ASKS: Final = ("OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def open_tracing(service: str, environment: Mapping[str, str]) -> Tracing | None:
    """Traces as OpenTelemetry's variables say; None where they do not ask for any, or cannot be had.

    Args:
        service: Name of the process, where ``OTEL_SERVICE_NAME`` does not say another.
        environment: The process's.
    """
    asked = [environment[name] for name in _ASKS if environment.get(name)]
    is_off = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if not asked or is_off or environment.get("OTEL_TRACES_EXPORTER") == "none":
        return None
    try:
        from tiercel.core.spans import exporting

        tracing = exporting(service, environment)
    except ImportError as error:
        _log.warning("traces are asked for by OTEL_... and not sent: install 'tiercel[otel]' (%s)", error)
    except (SetupError, ValueError) as error:
        _log.warning("traces are asked for by OTEL_... and not sent: %s", error)
    else:
        _log.info("traces are sent as OTEL_... say")
        return tracing
    return None
