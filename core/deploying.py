"""What somebody says of an ONNX file that is to be the next version of an endpoint, without any job."""

from __future__ import annotations

from dataclasses import dataclass

from tiercel.core.blobs import is_sha256
from tiercel.core.cheap_variants import CHEAP, CheapVariant
from tiercel.core.checkpoints import Artefact
from tiercel.core.endpoint_access import EndpointAccess
from tiercel.core.errors import wrong_field
from tiercel.core.jobs import Direction

# What a node takes of a model's own file, and of what it is tried with.
MAX_MODEL_BYTES = 2 * 1024**3
MAX_REFERENCE_BYTES = 256 * 1024**2
# What can be said of the file with a model's weights; brokers and nodes take less.
MAX_DATA_BYTES = 2**48
# What a model may have with its weights beside it, unless somebody set another limit.
DEFAULT_MODEL_BYTES = 16 * 1024**3
# What a cheap variant may have beyond its original: the scales of a small one are many beside its weights.
VARIANT_MORE_BYTES = 64 * 1024
MAX_FILE_NAME_CHARACTERS = 200
# Files of one endpoint that may be on their way at once; they become versions in the order in which they came.
MAX_COMING = 4


@dataclass(frozen=True, slots=True)
class Deploy:
    """What is to be deployed."""

    endpoint: str  # it is made where there is none of the name
    file: str  # the file's name, for the version's card
    model: Artefact  # the ONNX file
    metric: str = ""  # name of the metric by which the model was measured; empty where it was not
    value: float | None = None  # what was measured; None where nothing was
    direction: Direction = Direction.MAX  # whether a larger or a smaller metric is better
    data: Artefact | None = None  # the file with its weights, where these are not in the model's own
    # What came of its cheap variants; the files of those without a reason come with it, in this order.
    cheap_variants: tuple[CheapVariant, ...] = ()
    reference: Artefact | None = None  # inputs, and perhaps outputs, that the model is tried with (``.npz``)
    replace: bool = False  # let it answer even where it is worse, or takes or gives something else, than what answers
    node_id: str = ""  # the node that shall answer with it; empty where the endpoint does, or the broker chooses
    # On how many nodes the endpoint answers; :data:`.AUTO_REPLICAS` leaves it to the broker, None as it is.
    replicas: int | None = None
    objective_seconds: float | None = None  # delay that is wanted of the endpoint, or None to leave it as it is
    access: EndpointAccess | None = None  # who may ask the endpoint, or None to leave it as it is

    @property
    def variant_files(self) -> dict[str, Artefact]:
        """The files of its cheap variants, by name."""
        return {
            each.kind.file: Artefact(each.sha256, each.size_bytes) for each in self.cheap_variants if not each.reason
        }

    @property
    def model_bytes(self) -> int:
        """What the model has with its weights beside it."""
        return self.model.size_bytes + (0 if self.data is None else self.data.size_bytes)


def most_version_bytes(model_bytes: int) -> int:
    """What the files of a version may have together: a model, its cheap variants, and what they are verified with.

    Args:
        model_bytes: What a model may have with its weights beside it.
    """
    return model_bytes + len(CHEAP) * (MAX_MODEL_BYTES + VARIANT_MORE_BYTES) + MAX_REFERENCE_BYTES


def check_size(field: str, file: Artefact, most_bytes: int) -> None:
    """Check that a file has content, not too much of it, and a hash.

    Raises:
        InvalidSpecError: It has not; names the field.
    """
    if not 0 < file.size_bytes <= most_bytes:
        raise wrong_field(field, f"it has {file.size_bytes} bytes; 1 to {most_bytes} are taken")
    if not is_sha256(file.sha256):
        raise wrong_field(field, "its SHA-256 is missing; send it in hexadecimal")
