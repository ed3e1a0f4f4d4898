"""What somebody must say of a file that is deployed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tiercel.core.accuracy import accuracy_of
from tiercel.core.cheap_variants import CHEAP
from tiercel.core.deploying import (
    MAX_DATA_BYTES,
    MAX_FILE_NAME_CHARACTERS,
    MAX_MODEL_BYTES,
    MAX_REFERENCE_BYTES,
    VARIANT_MORE_BYTES,
    check_size,
)
from tiercel.core.errors import wrong_field
from tiercel.core.validation import validate_endpoint_name, validate_metric, validate_objective, validate_replicas

if TYPE_CHECKING:
    from tiercel.core.deploying import Deploy


def validate_deploy(deploy: Deploy) -> None:
    """Check what can be known without the file, the endpoint or any node.

    Raises:
        InvalidSpecError: A field is missing, malformed or impossible; names it and says what to do.
    """
    validate_endpoint_name(deploy.endpoint)
    if deploy.replicas is not None:
        validate_replicas(deploy.replicas)
    if deploy.objective_seconds is not None:
        validate_objective("objective_seconds", deploy.objective_seconds)
    name = deploy.file
    if not 0 < len(name) <= MAX_FILE_NAME_CHARACTERS or not name.isprintable() or "/" in name:
        raise wrong_field("file", f"{name[:80]!r} is no file's name of 1 to {MAX_FILE_NAME_CHARACTERS} characters")
    check_size("file", deploy.model, MAX_MODEL_BYTES)
    if deploy.data is not None:
        check_size("data", deploy.data, MAX_DATA_BYTES)
    if deploy.reference is not None:
        check_size("reference", deploy.reference, MAX_REFERENCE_BYTES)
    _check_cheap_variants(deploy)
    if deploy.value is None:
        if deploy.metric:
            raise wrong_field("value", f"of {deploy.metric!r} is missing; give a number, or leave out the metric")
        return
    validate_metric(deploy.metric)
    if not math.isfinite(deploy.value):
        raise wrong_field("value", f"{deploy.value} is not a finite number")


def _check_cheap_variants(deploy: Deploy) -> None:
    field, kinds = "cheap_variants", [each.kind for each in deploy.cheap_variants]
    if len(set(kinds)) < len(kinds) or not set(kinds) <= set(CHEAP):
        raise wrong_field(field, f"has one twice, or none of {', '.join(CHEAP)}; give each once")
    for file in deploy.variant_files.values():
        check_size(field, file, min(deploy.model_bytes, MAX_MODEL_BYTES) + VARIANT_MORE_BYTES)
    if kinds and accuracy_of(deploy.value, deploy.direction) is None:
        raise wrong_field(field, "need an accuracy above 0 and up to 1 that the model has; give it (--accuracy)")
