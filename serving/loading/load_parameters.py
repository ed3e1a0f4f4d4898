"""What a load may be given beside the model's name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tiercel.core.errors import InvalidRequestError
from tiercel.serving import canary_plan as canary
from tiercel.serving.canary_plan import CanaryPlan
from tiercel.serving.models import repository


@dataclass(frozen=True, slots=True)
class LoadParameters:
    """How a model is loaded."""

    # The version that is wanted, such as an earlier one to go back to; None for the newest on disk.
    version: int | None = None
    canary: CanaryPlan | None = None  # how it is tried first; None for what is set for the model, else for the server
    goes_on: bool = False  # whether it answered in the process before this one, and does so whatever was chosen since


def read_load_parameters(parameters: Mapping[str, Any]) -> LoadParameters:
    """The parameters of a load, of REST or gRPC.

    Args:
        parameters: ``version`` and those of :data:`tiercel.serving.canary_plan.PARAMETERS`.

    Raises:
        InvalidRequestError: One is unknown or impossible; the message names it.
    """
    known = {"version", *canary.PARAMETERS}
    unknown = sorted(set(parameters) - known)
    if unknown:
        raise InvalidRequestError(
            f"parameters: {unknown[0][:100]!r} is unknown; a load takes {', '.join(sorted(known))}"
        )
    version = parameters.get("version")
    if version is not None and (isinstance(version, bool) or not repository.is_version(str(version))):
        raise InvalidRequestError(f"parameters: version {str(version)[:40]!r} is not a number from 1")
    return LoadParameters(None if version is None else int(version), canary.plan_from(parameters))
