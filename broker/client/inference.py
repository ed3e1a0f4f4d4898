"""Requests to endpoints over HTTP by the Open Inference Protocol, as JSON."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar
from urllib.parse import quote

from yarl import URL

from tiercel.broker.client.endpoint_http import EndpointHttp, understood
from tiercel.broker.client.generation import Generated, GeneratedPart, Sampling, body_of, part_of, whole_of
from tiercel.core.errors import InvalidSpecError, NotAllowedError, NotFoundError, UnavailableError, wrong_field
from tiercel.core.jsonable import Json

if TYPE_CHECKING:
    from tiercel.broker.client.options import ClientOptions
    from tiercel.broker.client.places import Place, Places


class _Array(Protocol):
    def tolist(self) -> Any: ...


ArrayLike: TypeAlias = _Array | list[Any] | tuple[Any, ...] | float | str
"""A NumPy array or nested lists of numbers; of texts for an input of type BYTES."""

T = TypeVar("T")
_CUT = {"error": "the connection ended before it"}
# More than any model has; beyond it the lists are a mistake or an attack.
_MOST_DIMENSIONS = 32
_SHOWN_CHARACTERS = 40


@dataclass(frozen=True, slots=True)
class Tensor:
    """One output of a model.

    Attributes:
        name: Of the output.
        datatype: In the protocol's words, e.g. ``FP32``.
        shape: The batch dimension first.
        data: The elements in row-major order.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: tuple[Any, ...]

    def tolist(self) -> Any:
        """The elements as nested lists."""
        nested: list[Any] = list(self.data)
        for size in reversed(self.shape[1:]):
            nested = [nested[start : start + size] for start in range(0, len(nested), size)] if size else []
        return nested

    def argmax(self) -> list[int]:
        """For a tensor of shape (batch, classes): the class with the largest value, for each of the batch."""
        return [max(range(len(row)), key=row.__getitem__) for row in self.tolist()]


@dataclass(frozen=True, slots=True)
class InferenceResult:
    """What an endpoint answered.

    Attributes:
        endpoint: Its name.
        version: The version that answered.
        outputs: By name.
        variant: The variant that answered; empty for an endpoint without variants.
        accuracy: What is known of that version's accuracy, a fraction; None where nothing is said.
    """

    endpoint: str
    version: int | None
    outputs: Mapping[str, Tensor]
    variant: str = ""
    accuracy: float | None = None

    def to_json(self) -> Json:
        """The same as JSON types."""
        outputs = [
            {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape), "data": tensor.tolist()}
            for tensor in self.outputs.values()
        ]
        return {
            "endpoint": self.endpoint,
            "variant": self.variant,
            "version": self.version,
            "accuracy": self.accuracy,
            "outputs": outputs,
        }


class InferenceClient:
    """Sends requests to endpoints and remembers where they answer.

    Args:
        options: How long requests may take.
        places: Knows where they answer.
    """

    def __init__(self, options: ClientOptions, places: Places) -> None:
        self._options = options
        self._knows = places
        self._http = EndpointHttp(places)
        self._places: dict[str, Place] = {}
        self._datatypes: dict[str, dict[str, str]] = {}

    async def close(self) -> None:
        """End the connections."""
        await self._http.close()

    async def infer(
        self,
        endpoint: str,
        inputs: Mapping[str, ArrayLike],
        minimum_accuracy: float | None = None,
        key: str = "",
        request_id: str = "",
    ) -> InferenceResult:
        """Ask an endpoint; see :meth:`Client.infer`.

        Args:
            endpoint: Its name.
            inputs: For each input of the model.
            minimum_accuracy: Variants below it do not answer; None for any.
            key: For an endpoint that takes keys; empty for none.
            request_id: By which it can be asked for afterwards; empty for none.
        """
        hints: Json = {} if minimum_accuracy is None else {"parameters": {"minimum_accuracy": minimum_accuracy}}
        if request_id:
            hints["id"] = request_id

        async def ask(place: Place, ends_at: float) -> InferenceResult:
            return await self._infer(place, ends_at, endpoint, inputs, hints, key)

        return await self._where_it_answers(endpoint, ask)

    async def explain(self, endpoint: str, request_id: str, key: str = "") -> Json:
        """What became of a request; see :meth:`Client.explain_request`."""

        async def ask(place: Place, ends_at: float) -> Json:
            # As it is, since an id of ".." would be taken for the folder above.
            path = f"/v2/models/{quote(endpoint, safe='')}/requests/{quote(request_id, safe='')}"
            answer = await self._request("GET", URL(place.url + path, encoded=True), place, key, ends_at)
            with understood(place.url):
                return dict(answer)

        return await self._where_it_answers(endpoint, ask)

    async def feedback(
        self, endpoint: str, labels: Any, inputs: Mapping[str, ArrayLike] | None = None, key: str = ""
    ) -> Json:
        """Say what was right; see :meth:`Client.feedback`."""
        labels = _plain(labels)
        if (inputs is None) is not isinstance(labels, Mapping):
            raise wrong_field("labels", "must be by the ids of requests, or with inputs a list with one for each row")

        async def tell(place: Place, ends_at: float) -> Json:
            url = f"{place.url}/v2/models/{endpoint}"
            if inputs is None:
                items = [{"id": request_id, "label": label} for request_id, label in labels.items()]
            else:
                tensors = _tensors(inputs, await self._datatypes_of(place, ends_at, endpoint, key))
                items = [{"inputs": tensors, "label": labels}]
            answer = await self._request("POST", f"{url}/feedback", place, key, ends_at, {"feedback": items})
            with understood(place.url):
                return dict(answer)

        return await self._where_it_answers(endpoint, tell)

    async def generate(
        self, endpoint: str, prompt: str | Sequence[int], sampling: Sampling, key: str = "", request_id: str = ""
    ) -> Generated:
        """Have an endpoint generate; see :meth:`Client.generate`."""
        body = body_of(prompt, sampling, request_id)

        async def ask(place: Place, ends_at: float) -> Generated:
            url = f"{place.url}/v2/models/{endpoint}/generate"
            answer = await self._request("POST", url, place, key, ends_at, body)
            with understood(url):
                return whole_of(endpoint, answer)

        return await self._where_it_answers(endpoint, ask, self._options.generate_deadline_seconds)

    async def generate_stream(
        self, endpoint: str, prompt: str | Sequence[int], sampling: Sampling, key: str = "", request_id: str = ""
    ) -> AsyncGenerator[GeneratedPart]:
        """The same, in parts as they come; see :meth:`Client.generate_stream`."""
        body = body_of(prompt, sampling, request_id)

        async def begin(place: Place, ends_at: float) -> tuple[str, GeneratedPart, AsyncGenerator[Any]]:
            url = f"{place.url}/v2/models/{endpoint}/generate_stream"
            events = self._http.events(url, place, key, _left(ends_at), body)
            try:
                with understood(url):
                    return url, part_of(await anext(events, _CUT)), events
            except BaseException:
                await events.aclose()
                raise

        # Once it has begun it is not asked for again: the answer might be another one.
        url, part, events = await self._where_it_answers(endpoint, begin, self._options.generate_deadline_seconds)
        async with aclosing(events):
            while True:
                yield part
                if part.finish_reason:
                    return
                with understood(url):
                    part = part_of(await anext(events, _CUT))

    async def _where_it_answers(
        self, endpoint: str, ask: Callable[[Place, float], Awaitable[T]], seconds: float | None = None
    ) -> T:
        """Ask where it answered before, then at each place that the broker names, until one answers or time is over."""
        ends_at = time.monotonic() + (self._options.infer_deadline_seconds if seconds is None else seconds)
        silent: set[str] = set()
        if (place := self._places.get(endpoint)) is not None:
            try:
                return await ask(place, ends_at)
            except (UnavailableError, NotFoundError, NotAllowedError) as error:
                # It may have moved, or be for others than before.
                self._forget(endpoint)
                if time.monotonic() >= ends_at:
                    raise
                silent |= {place.url} if isinstance(error, UnavailableError) else set()
        # Its home may be gone, and the broker does not know yet: another replica answers meanwhile.
        place = await self._knows.find(endpoint, silent)
        while True:
            try:
                answer = await ask(place, ends_at)
            except UnavailableError:
                silent.add(place.url)
                self._forget(endpoint)
                if time.monotonic() >= ends_at:
                    raise
                place = await self._knows.find(endpoint, silent)
                if place.url in silent:
                    raise
            else:
                self._places[endpoint] = place
                return answer

    def _forget(self, endpoint: str) -> None:
        self._places.pop(endpoint, None)
        self._datatypes.pop(endpoint, None)

    async def _infer(
        self, place: Place, ends_at: float, endpoint: str, inputs: Mapping[str, ArrayLike], hints: Json, key: str
    ) -> InferenceResult:
        url = f"{place.url}/v2/models/{endpoint}"
        tensors = _tensors(inputs, await self._datatypes_of(place, ends_at, endpoint, key))
        answer = await self._request("POST", f"{url}/infer", place, key, ends_at, {"inputs": tensors, **hints})
        with understood(url):
            return _result(endpoint, answer)

    async def _datatypes_of(self, place: Place, ends_at: float, endpoint: str, key: str) -> dict[str, str]:
        """What each input of the endpoint's model is of."""
        datatypes = self._datatypes.get(endpoint)
        if datatypes is None:
            url = f"{place.url}/v2/models/{endpoint}"
            with understood(url):
                metadata = await self._request("GET", url, place, key, ends_at)
                datatypes = {str(each["name"]): str(each["datatype"]) for each in metadata["inputs"]}
            self._datatypes[endpoint] = datatypes
        return datatypes

    async def _request(
        self, method: str, url: str | URL, place: Place, key: str, ends_at: float, body: Json | None = None
    ) -> Any:
        return await self._http.request(method, url, place, key, _left(ends_at), body)


def _plain(labels: Any) -> Any:
    """Labels as JSON has them, whatever arrays or numbers of NumPy they are."""
    if isinstance(labels, Mapping):
        return {request_id: _plain(label) for request_id, label in labels.items()}
    to_list = getattr(labels, "tolist", None)
    plain = labels if to_list is None else to_list()
    return [_plain(each) for each in plain] if isinstance(plain, list | tuple) else plain


def _left(ends_at: float) -> float:
    """Seconds until then; a little where there are none, since aiohttp takes 0 for no deadline."""
    return max(0.001, ends_at - time.monotonic())


def _tensors(inputs: Mapping[str, ArrayLike], datatypes: Mapping[str, str]) -> list[Json]:
    if set(inputs) != set(datatypes):
        given, taken = ", ".join(inputs) or "none", ", ".join(datatypes)
        message = f"The model's inputs are {taken}; given: {given}. Give each of the model's, by its name."
        raise InvalidSpecError(message, field="inputs")
    return [_tensor(name, value, datatypes[name]) for name, value in inputs.items()]


def _tensor(name: str, value: ArrayLike, datatype: str) -> Json:
    to_list = getattr(value, "tolist", None)
    nested = value if to_list is None else to_list()
    shape = _shape(nested)
    if len(shape) > _MOST_DIMENSIONS:
        raise InvalidSpecError(
            f"{name}: lists are nested {len(shape)} deep; no model has that.", field=f"inputs.{name}"
        )
    data = list(_flat(nested, shape, name, datatype))
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


def _shape(nested: Any) -> list[int]:
    shape = []
    while isinstance(nested, list | tuple):
        shape.append(len(nested))
        if not nested:
            break
        nested = nested[0]
    return shape


def _flat(nested: Any, shape: list[int], name: str, datatype: str) -> Iterable[Any]:
    if not shape:
        yield _element(nested, name, datatype)
        return
    if not isinstance(nested, list | tuple) or len(nested) != shape[0]:
        raise InvalidSpecError(
            f"{name}: rows have different lengths; give lists of one length at each depth.", field=f"inputs.{name}"
        )
    for item in nested:
        yield from _flat(item, shape[1:], name, datatype)


def _element(value: Any, name: str, datatype: str) -> Any:
    if datatype == "BYTES":
        if isinstance(value, str):
            return value
        wanted = "texts"
    elif isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    else:
        wanted = "finite numbers"
    shown = repr(value)
    if len(shown) > _SHOWN_CHARACTERS:
        shown = f"{shown[:_SHOWN_CHARACTERS]}…"
    message = f"{name}: the model takes {datatype}, and {shown} is not of it; give nested lists of {wanted}, such as"
    example = '[["a", "b"]]' if datatype == "BYTES" else "[[0.1, 0.2]]"
    raise InvalidSpecError(f"{message} {example}, the batch dimension first.", field=f"inputs.{name}")


def _result(endpoint: str, answer: Any) -> InferenceResult:
    version = str(answer.get("model_version", ""))
    said = answer.get("parameters") or {}
    outputs = {
        output["name"]: Tensor(
            name=output["name"],
            datatype=output["datatype"],
            shape=tuple(output["shape"]),
            data=tuple(_leaves(output["data"])),
        )
        for output in answer["outputs"]
    }
    number = int(version) if version.isdigit() else None
    return InferenceResult(endpoint, number, outputs, str(said.get("variant", "")), said.get("accuracy"))


def _leaves(data: Any) -> Iterable[Any]:
    # The protocol allows both, flat and nested.
    for item in data:
        if isinstance(item, list):
            yield from _leaves(item)
        else:
            yield item
