"""The model repository on disk, as the agent fills it: staged beside, then renamed into place."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tiercel.trainer_agent import variants
from tiercel.trainer_agent.errors import DeliveryFailedError
from tiercel.trainer_agent.files import UntrustedFileError, copy_untrusted, open_folder, sync_folder
from tiercel.trainer_agent.job_folder import EXPORTS

_STAGING: Final = ".staging"
_MODEL: Final = "model.onnx"
_ACCURACY: Final = "accuracy.json"
_LIMITS_BYTES: Final = {_MODEL: 2 * 1024**3, "reference.npz": 256 * 1024**2}


@dataclass(frozen=True, slots=True)
class ModelRepository:
    """The folder ``models/`` in Triton's layout: ``MODEL/VERSION/model.onnx``. All calls block: use a thread.

    A model is an endpoint, or one of its variants (:mod:`.variants`).

    Attributes:
        path: Where it is.
        limits_bytes: Files of a version and the largest size of each.
    """

    path: Path
    limits_bytes: tuple[tuple[str, int], ...] = tuple(_LIMITS_BYTES.items())

    def staged(self, delivery_id: str) -> Path:
        """Where the files of a delivery wait to be put in place."""
        return self.path / _STAGING / delivery_id

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
                (target / _ACCURACY).write_text(json.dumps({"accuracy": accuracy}), encoding="ascii")
        except (OSError, UntrustedFileError) as error:
            shutil.rmtree(target, ignore_errors=True)
            raise DeliveryFailedError(f"The model that was handed over was refused: {error}.") from error
        sync_folder(target)

    def publish(self, delivery_id: str, model: str, version: int) -> None:
        """Put staged files in place. A version that lies there already without being staged stays.

        Raises:
            DeliveryFailedError: There is nothing to put in place.
        """
        staged, target = self.staged(delivery_id), self.version(model, version)
        if not staged.is_dir():
            if target.is_dir():
                return  # put in place before the agent died
            raise DeliveryFailedError("The files of the model were lost before they were put in place.")
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():  # of a life of the broker that nobody remembers
            shutil.rmtree(target)
        staged.rename(target)
        sync_folder(target.parent)

    def withdraw(self, delivery_id: str, model: str, version: int) -> None:
        """Remove the files of a delivery that failed."""
        shutil.rmtree(self.staged(delivery_id), ignore_errors=True)
        shutil.rmtree(self.version(model, version), ignore_errors=True)

    def list_variants(self, endpoint: str) -> None:
        """See :func:`tiercel.trainer_agent.variants.list_variants`."""
        variants.list_variants(self.path, endpoint)

    def remove_staged_except(self, delivery_ids: set[str]) -> None:
        """Remove staged files that no delivery waits for any more."""
        staging = self.path / _STAGING
        for folder in staging.iterdir() if staging.is_dir() else ():
            if folder.name not in delivery_ids:
                shutil.rmtree(folder, ignore_errors=True)

    def _copy(self, job_folder: Path, delivery_id: str, target: Path, sha256: str) -> None:
        with (
            open_folder(job_folder) as job,
            open_folder(EXPORTS, job) as exports,
            open_folder(delivery_id, exports) as source,
        ):
            for name, limit in self.limits_bytes:
                digest = copy_untrusted(name, inside=source, target=target / name, limit_bytes=limit)
                if name == _MODEL and digest != sha256:
                    raise UntrustedFileError(f"{name} is not the file whose checksum the script reported")
