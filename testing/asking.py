"""One endpoint as an application sees it: the questions it has ready, and whether an answer is a right one."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import numpy as np
import orjson
from numpy.typing import NDArray

from testing.sample_images import Samples

Json = dict[str, Any]

HEADERS = {"Content-Type": "application/json"}


class WrongAnswerError(Exception):
    """What came back is no right answer; the message says why."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A right answer."""

    version: int
    score: float


@dataclass(slots=True)
class Target:
    """An endpoint that is called as soon as it has a version."""

    name: str  # of the endpoint
    samples: Samples  # what to ask it
    url: str  # where its model is, without a slash at the end
    # What every request has in common besides the image; empty until the endpoint has a version.
    question: Json = field(default_factory=dict)
    # Shape of each row of an answer, by the output's name; -1 where any size will do.
    outputs: dict[str, list[int]] = field(default_factory=dict)
    asked: int = 0  # how many requests it got
    latest_version: int = 0  # highest version that answered so far; 0 before the first
    _images: list[orjson.Fragment] = field(init=False)

    def __post_init__(self) -> None:
        # Before the first request: done between requests, it would hold them up.
        rows = (image.reshape(-1) for image in self.samples.images)
        self._images = [orjson.Fragment(orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY)) for row in rows]

    @property
    def is_live(self) -> bool:
        """Whether it has a version and may be asked."""
        return bool(self.question)

    async def look(self, session: aiohttp.ClientSession) -> None:
        """Find out whether the endpoint has a version, and what to ask it once it has one."""
        async with session.get(f"{self.url}/ready") as response:
            await response.read()
            if response.status != 200:
                return
        async with session.get(self.url) as response:
            if response.status == 200:
                self.prepare(orjson.loads(await response.read()))

    def prepare(self, metadata: dict[str, Any]) -> None:
        """Learn what to ask and to expect from a model's metadata (Open Inference Protocol).

        Raises:
            ValueError: The test images do not fit into the model's input.
        """
        (tensor,) = metadata["inputs"]
        row_shape = [int(size) for size in tensor["shape"][1:]]
        if math.prod(row_shape) != self.samples.images[0].size:
            raise ValueError(f"images of endpoint {self.name} do not fit into {row_shape}")
        self.outputs = {each["name"]: [int(size) for size in each["shape"][1:]] for each in metadata["outputs"]}
        self.question = {"name": tensor["name"], "datatype": tensor["datatype"], "shape": [1, *row_shape]}

    def body(self, number: int) -> bytes:
        """The request about the test image of this number."""
        return orjson.dumps({"inputs": [{**self.question, "data": self._images[number]}]})

    async def ask(self, session: aiohttp.ClientSession) -> Answer:
        """Send the next test image and check the answer.

        Raises:
            WrongAnswerError: It is none, or not a right one.
            aiohttp.ClientError: The connection broke.
            TimeoutError: It took too long.
        """
        number = self.asked % len(self._images)
        self.asked += 1
        async with session.post(f"{self.url}/infer", data=self.body(number), headers=HEADERS) as response:
            body = await response.read()
            status = response.status
        if status != 200:
            raise WrongAnswerError(f"status {status}: {body[:200].decode(errors='replace')}")
        return self.check(number, body)

    def check(self, number: int, body: bytes) -> Answer:
        """Check what came back for the test image of this number.

        Raises:
            WrongAnswerError: It is not a right answer.
        """
        try:
            document = orjson.loads(body)
            version = int(document["model_version"])
            outputs = {output["name"]: _row(output) for output in document["outputs"]}
        except (ValueError, KeyError, TypeError) as error:
            raise WrongAnswerError(f"the answer cannot be understood ({error!r})") from error
        shapes = {name: row.shape for name, row in outputs.items()}
        if shapes.keys() != self.outputs.keys() or not all(_fits(shapes[name], self.outputs[name]) for name in shapes):
            raise WrongAnswerError(f"the answer has the shape {shapes}, not {self.outputs}")
        if not all(np.isfinite(row).all() for row in outputs.values()):
            raise WrongAnswerError("the answer is not finite")
        return Answer(version, self.samples.score(number, {name: row.ravel() for name, row in outputs.items()}))


def _row(output: dict[str, Any]) -> NDArray[np.float64]:
    """The one row of an output.

    Raises:
        ValueError: It has more, or not as many elements as its shape says.
    """
    batch, *shape = (int(size) for size in output["shape"])
    if batch != 1:
        raise ValueError(f"{batch} rows were answered for one")
    return np.asarray(output["data"], dtype=np.float64).reshape(shape)


def _fits(shape: tuple[int, ...], wanted: list[int]) -> bool:
    return len(shape) == len(wanted) and all(each in {size, -1} for size, each in zip(shape, wanted, strict=True))
