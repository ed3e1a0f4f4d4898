"""What the protocol's extensions tell about models beside their metadata: statistics and configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tiercel.serving.models.configuration import ENDPOINT_PLATFORM, model_config
from tiercel.serving.models.loaded_version import LoadedVersion
from tiercel.serving.models.registry import Registry

if TYPE_CHECKING:
    from tiercel.serving.dispatch.variants.endpoints import Endpoints


class Descriptions:
    """Tells about the models that answer."""

    def __init__(
        self, registry: Registry, max_batch_size: int, instances: int, endpoints: Endpoints | None = None
    ) -> None:
        self._registry = registry
        self._endpoints = endpoints
        self._max_batch_size = max_batch_size
        self._instances = instances

    def statistics(
        self, model: str = "", version: str = "", sees: Callable[[str], bool] = lambda _: True
    ) -> dict[str, Any]:
        """Counts and durations of the versions that answer, in the form of the statistics extension.

        An endpoint's are those of its variants, each under the name of its own that is asked for it alone.

        Args:
            model: Its name; empty for all models.
            version: The only version of interest; empty for all that answer.
            sees: Of all models, which of them who asks may hear of.

        Raises:
            NotFoundError: It is not loaded, or not in this version.
            NotReadyError: It is being loaded for the first time.
        """
        if model:
            found = self._answering(model, version)
        else:
            found = [each for record in self._registry.records() if sees(record.name) for each in record.answering]
        return {"model_stats": [each.statistics.as_json(each.model, each.version_text) for each in found]}

    def config(self, model: str, version: str = "") -> dict[str, Any]:
        """What a model is, in the form of the model configuration extension.

        An endpoint is what all of its variants are: inputs and outputs are theirs, and a batch has as many rows as each
        of them takes. Which they are, its metadata says.

        Raises:
            NotFoundError: It is not loaded, or not in this version.
            NotReadyError: It is being loaded for the first time, or no variant of it is loaded.
        """
        if self._endpoints is not None and self._endpoints.knows(model):
            return self._endpoint_config(model, self._endpoints.answering(model, version))
        loaded = self._registry.answering(model, version)[0]
        session = loaded.session
        most = self._most_rows(loaded)
        return model_config(
            model,
            list(session.inputs.values()),
            list(session.outputs.values()),
            max_batch_size=most,
            queue_delay=session.settings.max_queue_delay or 0.0,
            preferred=[session.batch_rows] if most else [],
            # On an accelerator one run at a time; see tiercel.serving.runtime.runners.
            instances=1 if session.provider.is_accelerator else self._instances,
            kind=session.provider.kind,
            has_labels=bool(session.labels),
        )

    def _answering(self, model: str, version: str) -> list[LoadedVersion]:
        if self._endpoints is not None and self._endpoints.knows(model):
            return self._endpoints.answering(model, version)
        return self._registry.answering(model, version)

    def _most_rows(self, loaded: LoadedVersion) -> int:
        """Rows that run together at most; 0 for a version whose requests do not."""
        session = loaded.session
        if session.batching.profile is None:
            return 0
        return min(self._max_batch_size, session.settings.max_batch_rows or self._max_batch_size)

    def _endpoint_config(self, name: str, variants: list[LoadedVersion]) -> dict[str, Any]:
        best = variants[0].session
        config = model_config(
            name,
            list(best.inputs.values()),
            list(best.outputs.values()),
            max_batch_size=min(map(self._most_rows, variants)),
            instances=self._instances,
            has_labels=all(each.labels for each in variants),
        )
        return config | {"platform": ENDPOINT_PLATFORM, "backend": "", "default_model_filename": ""}
