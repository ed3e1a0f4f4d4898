"""What the protocol's extensions tell about models beside their metadata: statistics and configuration."""

from __future__ import annotations

from typing import Any

from tiercel.serving.models.configuration import model_config
from tiercel.serving.models.registry import Registry


class Descriptions:
    """Tells about the models that answer.

    Args:
        registry: The models.
        max_batch_size: Rows that run together at most.
        instances: Threads that run models.
    """

    def __init__(self, registry: Registry, max_batch_size: int, instances: int) -> None:
        self._registry = registry
        self._max_batch_size = max_batch_size
        self._instances = instances

    def statistics(self, model: str = "", version: str = "") -> dict[str, Any]:
        """Counts and durations of the versions that answer, in the form of the statistics extension.

        Args:
            model: Its name; empty for all models.
            version: The only version of interest; empty for all that answer.

        Raises:
            NotFoundError: It is not loaded, or not in this version.
            NotReadyError: It is being loaded for the first time.
        """
        if model:
            found = self._registry.answering(model, version)
        else:
            found = [each for record in self._registry.records() for each in record.answering]
        return {"model_stats": [each.statistics.as_json(each.model, each.version_text) for each in found]}

    def config(self, model: str, version: str = "") -> dict[str, Any]:
        """What a model is, in the form of the model configuration extension.

        Raises:
            NotFoundError: It is not loaded, or not in this version.
            NotReadyError: It is being loaded for the first time.
        """
        session = self._registry.answering(model, version)[0].session
        inputs, outputs = list(session.inputs.values()), list(session.outputs.values())
        most = min(self._max_batch_size, session.settings.max_batch_rows or self._max_batch_size)
        batches = session.batching.profile is not None
        return model_config(
            model,
            inputs,
            outputs,
            max_batch_size=most if batches else 0,
            queue_delay=session.settings.max_queue_delay or 0.0,
            preferred=[session.batch_rows] if batches else [],
            # On an accelerator one run at a time; see tiercel.serving.execution.runners.
            instances=1 if session.provider.is_accelerator else self._instances,
            kind=session.provider.kind,
            has_labels=bool(session.labels),
        )
