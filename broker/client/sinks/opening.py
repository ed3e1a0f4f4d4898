"""A sink by what people write: ``mlflow:URI`` or ``tensorboard:FOLDER``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.core.errors import SetupError, wrong_field

if TYPE_CHECKING:
    from tiercel.broker.client.sinks.following import Sink
    from tiercel.broker.client.sinks.registering import Registry


def open_sink(text: str) -> Sink:
    """The sink that is meant; imports its package, which takes seconds.

    Raises:
        InvalidSpecError: It is none.
        SetupError: Its package is not installed.
    """
    kind, _, place = text.partition(":")
    if kind not in {"mlflow", "tensorboard"} or not place:
        raise wrong_field("to", f"{kind[:20]!r} is no place; write mlflow:URI or tensorboard:FOLDER")
    try:
        if kind == "mlflow":
            from tiercel.broker.client.sinks.mlflow import MlflowSink

            return MlflowSink(place)
        from tiercel.broker.client.sinks.tensorboard import TensorboardSink

        return TensorboardSink(place)
    except ImportError as error:
        raise SetupError(f"{kind} is not installed; run: pip install 'tiercel[{kind}]'") from error


def open_registry(text: str) -> Registry:
    """The registry of models that is meant: ``mlflow:URI``; imports its package, which takes seconds.

    Raises:
        InvalidSpecError: It is none.
        SetupError: Its package is not installed.
    """
    kind, _, place = text.partition(":")
    if kind != "mlflow" or not place:
        raise wrong_field("to", f"{kind[:20]!r} is no registry of models; write mlflow:URI")
    try:
        from tiercel.broker.client.sinks.mlflow_registry import MlflowRegistry
    except ImportError as error:
        raise SetupError("mlflow is not installed; run: pip install 'tiercel[mlflow]'") from error
    return MlflowRegistry(place)
