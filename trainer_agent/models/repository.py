"""The model repository on disk, as the agent fills it: staged beside, then renamed into place."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tiercel.core.accuracy import ACCURACY_FILE, accuracies
from tiercel.core.cheap_variants import CHEAP, CheapVariant
from tiercel.core.deploying import DEFAULT_MODEL_BYTES, MAX_MODEL_BYTES, MAX_REFERENCE_BYTES, VARIANT_MORE_BYTES
from tiercel.core.endpoints import Signature, Tensor
from tiercel.core.model_files import MODEL_FILE, REFERENCE_FILE, VARIANTS_FILE
from tiercel.core.onnx_data import DATA_FILE, DataError, data_of
from tiercel.core.onnx_signature import UNREADABLE, read_signature
from tiercel.trainer_agent.disk.files import UntrustedFileError, copy_untrusted, open_folder, sync_folder
from tiercel.trainer_agent.disk.job_folder import EXPORTS, CopiedFile
from tiercel.trainer_agent.disk.parts import remove_all_but_parts
from tiercel.trainer_agent.errors import DeliveryFailedError
from tiercel.trainer_agent.models import record as model_record
from tiercel.trainer_agent.models import variants
from tiercel.trainer_agent.models.record import ModelRecord
from tiercel.v1 import nodes_pb2

_STAGING: Final = ".staging"
_ACCURACY_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class ModelRepository:
    """The folder ``models/`` in Triton's layout: ``MODEL/VERSION/model.onnx``. All calls block: use a thread.

    A model is an endpoint, or one of its variants (:mod:`.variants`).

    Attributes:
        path: Where it is.
        model_bytes: What a model may have, with its weights beside it.
    """

    path: Path
    model_bytes: int = DEFAULT_MODEL_BYTES

    @property
    def staging(self) -> Path:
        """Where what is not in its place yet is."""
        return self.path / _STAGING

    def staged(self, delivery_id: str) -> Path:
        """Where the files of a delivery wait to be put in place."""
        return self.staging / delivery_id

    def version(self, model: str, version: int) -> Path:
        """Where a version's files are."""
        return self.path / model / str(version)

    def stage(self, job_folder: Path, delivery_id: str, sha256: str, accuracy: float | None = None) -> None:
        """Copy what a run handed over, trusting nothing about it.

        Args:
            job_folder: The folder of the run's job.
            delivery_id: Names the folder in it with the files.
            sha256: What the ONNX file has to be, hexadecimal.
            accuracy: What the run measured of it, a fraction, which the inference server tells and chooses variants by;
                None where its metric is none.

        Raises:
            DeliveryFailedError: The files are not what they should be.
        """
        target = self.staged(delivery_id)
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True, mode=0o700)
        try:
            self._copy(job_folder, delivery_id, target, sha256)
            if accuracy is not None:
                self.note_accuracy(delivery_id, accuracy)
        except (OSError, UntrustedFileError) as error:
            shutil.rmtree(target, ignore_errors=True)
            raise DeliveryFailedError(f"The model that was handed over was refused: {error}.") from error
        sync_folder(target)

    def note_accuracy(self, delivery_id: str, accuracy: float, variants: Iterable[CheapVariant] = ()) -> None:
        """Write down the accuracy of a staged model, a fraction, for the inference server; and of variants of it."""
        (self.staged(delivery_id) / ACCURACY_FILE).write_bytes(accuracies(accuracy, variants))

    def stage_variant(self, job_folder: Path, delivery_id: str, variant: CheapVariant) -> CheapVariant:
        """Copy a cheap variant that a run made of what is staged already, trusting nothing about it.

        Args:
            job_folder: The folder of the run's job.
            delivery_id: The delivery.
            variant: What the run says of it, which is to be shipped.

        Returns:
            The same with what its file is; not shipped, and without a file, where that is not what it should be, or
            larger than the model that it was made of.
        """
        target = self.staged(delivery_id) / variant.kind.file
        limit = self.size_of_staged(delivery_id) + VARIANT_MORE_BYTES
        try:
            self._copy_file(job_folder, delivery_id, target.name, target, variant.sha256, limit)
        except (OSError, UntrustedFileError) as error:
            target.unlink(missing_ok=True)
            return replace(variant, shipped=False, reason=f"its file was refused: {error}")
        sync_folder(target.parent)
        return replace(variant, size_bytes=target.stat().st_size)

    def settle_deployed(
        self, delivery_id: str, accuracy: float | None, variants: Iterable[CheapVariant]
    ) -> tuple[CheapVariant, ...]:
        """Keep what came with a file that somebody deployed only if it is shipped, and note how good they are.

        Args:
            delivery_id: The delivery, whose files are staged and checked.
            accuracy: What was said of the model, a fraction; None where nobody said one.
            variants: What became of its cheap variants.

        Returns:
            The same with the bytes of their files.

        Raises:
            DeliveryFailedError: There is no file of one that is to be shipped.
        """
        folder = self.staged(delivery_id)
        settled = tuple(
            replace(each, size_bytes=_size(folder / each.kind.file) if each.shipped else 0) for each in variants
        )
        for kind in set(CHEAP) - {each.kind for each in settled if each.shipped}:
            (folder / kind.file).unlink(missing_ok=True)
        if accuracy is not None:
            self.note_accuracy(delivery_id, accuracy, settled)
        return settled

    def signature_of_staged(self, delivery_id: str) -> nodes_pb2.ModelSignature:
        """What the staged model of a delivery takes and gives.

        Raises:
            DeliveryFailedError: Its file does not say.
        """
        signature = read_signature(self.staged(delivery_id) / MODEL_FILE)
        if signature is None:
            raise DeliveryFailedError(f"The file {UNREADABLE}.")
        return signature_to_proto(signature)

    def size_of_staged(self, delivery_id: str) -> int:
        """Bytes of the staged model of a delivery, with its weights beside it."""
        path = self.staged(delivery_id) / MODEL_FILE
        data = data_of(path)
        return path.stat().st_size + (0 if data is None else data.size_bytes)

    def there(self) -> dict[str, dict[int, str]]:
        """SHA-256 of the versions that were put there, by model and number."""
        folders = list(self.path.iterdir()) if self.path.is_dir() else []
        records = {folder.name: model_record.read(folder) for folder in folders}
        return {name: self._whole(name, record) for name, record in records.items() if record is not None}

    def there_of(self, model: str) -> dict[int, str]:
        """SHA-256 of the versions of a model that were put there and have their ONNX file still, by number."""
        return self._whole(model, self.record(model) or ModelRecord())

    def _whole(self, model: str, record: ModelRecord) -> dict[int, str]:
        return {
            version: sha256
            for version, sha256 in record.versions.items()
            if (self.version(model, version) / MODEL_FILE).is_file()
        }

    def has(self, model: str, version: int, sha256: str) -> bool:
        """Whether a version was put there, with this ONNX file."""
        return self.there_of(model).get(version) == sha256

    def files(self, model: str, version: int, sha256: str, delivery_id: str) -> list[CopiedFile]:
        """The files of a version that was put there, or that a delivery has staged; none where there are none."""
        folder = self.version(model, version)
        if not self.has(model, version, sha256):
            if not delivery_id:
                return []
            folder = self.staged(delivery_id)
        found = []
        for name in (MODEL_FILE, DATA_FILE, REFERENCE_FILE, *(kind.file for kind in CHEAP), ACCURACY_FILE):
            with contextlib.suppress(FileNotFoundError), (folder / name).open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                found.append(CopiedFile(folder / name, file.tell(), digest))
        return found if any(each.path.name == MODEL_FILE and each.sha256 == sha256 for each in found) else []

    def check_copy(self, folder: Path, sha256: str) -> None:
        """Check and make durable what was fetched of a version into a folder.

        Raises:
            DeliveryFailedError: It is not what it should be.
        """
        limits = {
            MODEL_FILE: self._file_bytes,
            DATA_FILE: self.model_bytes,
            REFERENCE_FILE: MAX_REFERENCE_BYTES,
            **{kind.file: self._file_bytes + VARIANT_MORE_BYTES for kind in CHEAP},
            ACCURACY_FILE: _ACCURACY_BYTES,
        }
        for path in sorted(folder.iterdir()):
            if path.name not in limits or path.stat().st_size > limits[path.name]:
                raise DeliveryFailedError(f"The copy has a file {path.name[:128]!r} that is unknown or too large.")
            with path.open("rb") as file:
                os.fsync(file.fileno())
                if path.name == MODEL_FILE and hashlib.file_digest(file, "sha256").hexdigest() != sha256:
                    raise DeliveryFailedError("The copy is not the model that it should be: its SHA-256 differs.")
        if not (folder / MODEL_FILE).is_file():
            raise DeliveryFailedError("The copy has no model in it.")
        self._check_data(folder)
        sync_folder(folder)

    def _check_data(self, folder: Path) -> None:
        """Check that the weights beside a model are those that it means, and that there are no others."""
        said, path = data_of(folder / MODEL_FILE), folder / DATA_FILE
        if said is None:
            if path.exists():
                raise DeliveryFailedError(f"The copy has a file {DATA_FILE} of which its model says nothing.")
            return
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                said.check(file.tell(), digest)
        except (DataError, OSError) as error:
            raise DeliveryFailedError(f"The copy lacks the weights of its model: {error}.") from error

    def record(self, model: str) -> ModelRecord | None:
        """What was put there for a model; None for a model that the agent has not put there."""
        return model_record.read(self.path / model)

    def publish(self, delivery_id: str, model: str, version: int, sha256: str) -> None:
        """Put staged files in place. A version that lies there already without being staged stays.

        Which version answers does not change.

        Raises:
            DeliveryFailedError: There is nothing to put in place, or somebody else's model has the name.
        """
        staged, target = self.staged(delivery_id), self.version(model, version)
        record = self._own_record(model)
        if not staged.is_dir():
            if target.is_dir() and record.versions.get(version) == sha256:
                return  # put in place before the agent died
            raise DeliveryFailedError("The files of the model were lost before they were put in place.")
        target.parent.mkdir(parents=True, exist_ok=True)
        # First, so that there is no moment at which the folder may be taken for somebody else's.
        model_record.write(target.parent, record.with_version(version, sha256))
        if target.exists():  # of a life of the broker that nobody remembers
            shutil.rmtree(target)
        staged.rename(target)
        sync_folder(target.parent)

    def let_answer(self, model: str, version: int) -> None:
        """Note which version of a model answers, also when the inference server is started again; 0 for none."""
        model_record.write(self.path / model, replace(self._own_record(model), live=version))

    def withdraw(self, delivery_id: str, model: str, version: int) -> None:
        """Remove the files of a delivery that failed."""
        shutil.rmtree(self.staged(delivery_id), ignore_errors=True)
        record = self.record(model)
        if record is not None and version in record.versions and version != record.live:
            self.keep_only(model, set(record.versions) - {version})

    def keep_only(self, model: str, versions: Collection[int]) -> None:
        """Remove the files of all other versions that were put there, and the model when there is none left."""
        record, folder = self.record(model), self.path / model
        if record is None:
            return
        for version in record.versions.keys() - set(versions):
            shutil.rmtree(folder / str(version), ignore_errors=True)
        left = {version: sha256 for version, sha256 in record.versions.items() if version in versions}
        if left:
            if left != record.versions:
                model_record.write(folder, replace(record, versions=left))
            return
        model_record.remove(folder)
        with contextlib.suppress(OSError):  # an operator's settings for the model stay
            folder.rmdir()

    def _own_record(self, model: str) -> ModelRecord:
        record = self.record(model)
        if record is None and any((self.path / model).glob("[1-9]*")):
            raise DeliveryFailedError(
                f"The node's model repository has a model named {model!r} that Tiercel has not put there; rename it or "
                "remove its folder, or let the job feed an endpoint of another name."
            )
        return record or ModelRecord()

    def list_variants(self, endpoint: str) -> None:
        """See :func:`tiercel.trainer_agent.models.variants.list_variants`."""
        variants.list_variants(self.path, endpoint)

    def has_variants(self, endpoint: str) -> bool:
        """Whether an endpoint has variants that are listed."""
        return (self.path / endpoint / VARIANTS_FILE).exists()

    def remove_staged(self, delivery_id: str) -> None:
        """Remove the staged files of a delivery."""
        shutil.rmtree(self.staged(delivery_id), ignore_errors=True)

    def remove_staged_except(self, delivery_ids: set[str]) -> None:
        """Remove staged files that no delivery waits for any more; what has come of others stays (:class:`.Parts`)."""
        remove_all_but_parts(self.staging, delivery_ids)

    def _copy(self, job_folder: Path, delivery_id: str, target: Path, sha256: str) -> None:
        parts = (job_folder, delivery_id)
        self._copy_file(*parts, MODEL_FILE, target / MODEL_FILE, sha256, self._file_bytes)
        data = data_of(target / MODEL_FILE)
        if data is not None:
            size_bytes = data.size_bytes + (target / MODEL_FILE).stat().st_size
            if size_bytes > self.model_bytes:
                raise UntrustedFileError(
                    f"it has {size_bytes} bytes with its weights, and this node takes {self.model_bytes}; "
                    "who operates it can set more (--model-bytes)"
                )
            self._copy_file(*parts, DATA_FILE, target / DATA_FILE, data.sha256, data.size_bytes)
        self._copy_file(*parts, REFERENCE_FILE, target / REFERENCE_FILE, "", MAX_REFERENCE_BYTES)

    @property
    def _file_bytes(self) -> int:
        """What a model's own file may have."""
        return min(self.model_bytes, MAX_MODEL_BYTES)

    def _copy_file(
        self, job_folder: Path, delivery_id: str, name: str, target: Path, sha256: str, limit_bytes: int
    ) -> None:
        with (
            open_folder(job_folder) as job,
            open_folder(EXPORTS, job) as exports,
            open_folder(delivery_id, exports) as source,
        ):
            digest = copy_untrusted(name, inside=source, target=target, limit_bytes=limit_bytes)
        if sha256 and digest != sha256:
            raise UntrustedFileError(f"{name} is not the file whose checksum the script reported")


def _size(path: Path) -> int:
    """Bytes of the file of a cheap variant."""
    if not path.is_file():
        raise DeliveryFailedError(f"The copy lacks {path.name}, which was announced.")
    return path.stat().st_size


def signature_to_proto(signature: Signature) -> nodes_pb2.ModelSignature:
    """As the broker is told it."""
    return nodes_pb2.ModelSignature(
        inputs=map(_tensor_to_proto, signature.inputs), outputs=map(_tensor_to_proto, signature.outputs)
    )


def _tensor_to_proto(tensor: Tensor) -> nodes_pb2.TensorSpec:
    return nodes_pb2.TensorSpec(
        name=tensor.name, datatype=tensor.datatype, shape=tensor.shape or (), any_shape=tensor.shape is None
    )
