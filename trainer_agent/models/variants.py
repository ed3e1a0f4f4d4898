"""Where the variants of an endpoint are in the model repository, and how the inference server is told of them.

A variant is a model of its own, ``_ENDPOINT.VARIANT``: no endpoint's name begins with ``_`` and no variant's has a dot,
so that the two never meet. ``ENDPOINT/variants.json`` lists those that have versions; whatever else an operator has put
there (other models, a scheduler, an objective) is kept.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tiercel.core.model_files import VARIANTS_FILE
from tiercel.trainer_agent.disk.files import write_atomically
from tiercel.trainer_agent.errors import DeliveryFailedError
from tiercel.trainer_agent.models import record as model_record

DEFAULT_OBJECTIVE_SECONDS: Final = 1.0
"""What the scheduler aims at while the tenant has not said what it wants: few models take longer for an answer."""

_MODEL: Final = re.compile(r"_(?P<endpoint>[a-z0-9][a-z0-9._-]*)\.(?P<variant>[a-z0-9][a-z0-9_-]*)")


@dataclass(frozen=True, slots=True)
class Place:
    """What a model of the repository is to the broker.

    Attributes:
        endpoint: The endpoint that it answers for.
        variant: Which variant of it, or empty for an endpoint without variants.
    """

    endpoint: str
    variant: str = ""

    @property
    def model(self) -> str:
        """Name of the model in the repository."""
        return f"_{self.endpoint}.{self.variant}" if self.variant else self.endpoint


def place_of(model: str) -> Place:
    """What a model of the repository is to the broker."""
    found = _MODEL.fullmatch(model)
    return Place(model) if found is None else Place(found["endpoint"], found["variant"])


def list_variants(repository: Path, endpoint: str) -> None:
    """Write which variants of an endpoint there are; blocks.

    Doing it twice is doing it once. Without any variant left, a file that lists no other model is removed.

    Raises:
        DeliveryFailedError: There is a file that cannot be understood, which somebody else has put there.
    """
    path = repository / endpoint / VARIANTS_FILE
    content = _content(path)
    others = [entry for entry in content.get("variants", []) if not _is_ours(entry, endpoint)]
    entries = [*others, *({"name": place.variant, "model": place.model} for place in _present(repository, endpoint))]
    if not entries:
        path.unlink(missing_ok=True)
        return
    content = {"objective_seconds": DEFAULT_OBJECTIVE_SECONDS, **content, "variants": entries}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(content, indent=1).encode())


def _present(repository: Path, endpoint: str) -> list[Place]:
    """The variants of an endpoint that have a version which answers, by name."""
    places = (place_of(folder.name) for folder in repository.iterdir() if _answers(folder))
    return sorted((place for place in places if place.variant and place.endpoint == endpoint), key=lambda p: p.variant)


def _answers(model: Path) -> bool:
    record = model_record.read(model)
    return any(model.glob("[1-9]*/model.onnx")) and (record is None or record.live > 0)


def _is_ours(entry: object, endpoint: str) -> bool:
    model = entry.get("model", entry.get("name")) if isinstance(entry, dict) else entry
    place = place_of(str(model))
    return bool(place.variant) and place.endpoint == endpoint


def _content(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise _not_ours(path, str(error)) from error
    if not isinstance(content, dict) or not isinstance(content.get("variants"), list):
        raise _not_ours(path, "it does not list variants")
    return content


def _not_ours(path: Path, why: str) -> DeliveryFailedError:
    return DeliveryFailedError(
        f"The variants of endpoint {path.parent.name} cannot be listed in {path.name} beside what is there ({why}); "
        "mend or remove that file in the node's model repository."
    )
