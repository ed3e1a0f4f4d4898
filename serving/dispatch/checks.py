"""Whether a request fits its model, and which requests may run together. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tiercel.core.errors import InvalidRequestError
from tiercel.serving.requests import Checked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tiercel.serving.requests import InferRequest, InputTensor
    from tiercel.serving.runtime.engine import Session
    from tiercel.serving.tensors import Array, TensorSpec


def checked(request: InferRequest, session: Session) -> tuple[dict[str, Array], Checked]:
    """The request's inputs by name, and what else there is to know of it.

    Raises:
        InvalidRequestError: An input or output is missing, unknown, given twice, or of another type or shape.
    """
    feeds = checked_feeds(request, session)
    names = checked_outputs(request.outputs, session)
    key, rows = batch_key(session, feeds, names)
    if len(feeds) == 1:
        (only,) = feeds.values()
        return feeds, Checked(names, key, rows, only.size, only.nbytes)
    elements = sum([feed.size for feed in feeds.values()])
    return feeds, Checked(names, key, rows, elements, sum([feed.nbytes for feed in feeds.values()]))


def checked_feeds(request: InferRequest, session: Session) -> dict[str, Array]:
    """The request's inputs by name.

    Raises:
        InvalidRequestError: One is missing, unknown, given twice, or of another type or shape.
    """
    specs = session.inputs
    feeds: dict[str, Array] = {}
    for tensor in request.inputs:
        name = tensor.name
        spec = specs.get(name)
        if spec is None:
            raise InvalidRequestError(
                f"input '{name[:100]}' is unknown; model '{request.model}' takes {', '.join(specs) or 'none'}"
            )
        if name in feeds:
            raise InvalidRequestError(f"input '{name}' is given twice")
        array = tensor.array
        if tensor.data_type is not spec.data_type or not _fits(array.shape, spec.shape):
            raise _misfit(tensor, spec)
        feeds[name] = array
    if len(feeds) != len(specs):
        missing = ", ".join(f"'{name}'" for name in specs if name not in feeds)
        raise InvalidRequestError(f"input {missing} of model '{request.model}' is missing")
    return feeds


def checked_outputs(wanted: Sequence[str], session: Session) -> tuple[str, ...]:
    """Names of the outputs to compute, in the order wanted.

    Raises:
        InvalidRequestError: One is unknown or named twice.
    """
    if not wanted:
        return session.output_names
    for name in wanted:
        if name not in session.outputs:
            raise InvalidRequestError(f"output '{name[:100]}' is unknown; the model gives {', '.join(session.outputs)}")
    if len(set(wanted)) != len(wanted):
        raise InvalidRequestError("outputs names an output twice")
    return tuple(wanted)


def batch_key(session: Session, feeds: Mapping[str, Array], outputs: tuple[str, ...]) -> tuple[Any, int]:
    """What calls must have in common to run together, and the rows of this one.

    Returns:
        A key and the number of rows; None and 1 for a call that must run alone.
    """
    if session.batch_rows == 1:
        return None, 1
    arrays = iter(feeds.values())
    shape = next(arrays).shape
    rows = shape[0]
    for array in arrays:
        if array.shape[0] != rows:  # the model may know what to do with that, or say what is wrong
            return None, 1
    if session.is_uniform:
        return outputs, rows
    return (outputs, tuple([(name, feeds[name].shape[1:]) for name in session.inputs])), rows


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    if len(shape) != len(wanted):
        return False
    if shape[1:] == wanted[1:] and (not wanted or wanted[0] == -1 or wanted[0] == shape[0]):
        return True
    return all(size in (-1, found) for size, found in zip(wanted, shape, strict=True))


def _misfit(tensor: InputTensor, spec: TensorSpec) -> InvalidRequestError:
    if tensor.data_type is not spec.data_type:
        return InvalidRequestError(
            f"input '{tensor.name}': datatype is {tensor.data_type.name}, but the model takes {spec.data_type.name}"
        )
    return InvalidRequestError(
        f"input '{tensor.name}': shape is {list(tensor.array.shape)}, but the model takes {list(spec.shape)} "
        "(-1 is any size)"
    )
