"""What endpoints that generate are asked, and what they answer; see docs/generation.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypedDict

from tiercel.core.errors import InvalidSpecError, UnavailableError
from tiercel.core.jsonable import Json


class Sampling(TypedDict, total=False):
    """How an answer is generated, in the words of docs/generation.md; what is left out is the server's default."""

    max_tokens: int  # tokens of the answer at most
    temperature: float  # 0 for the likeliest token always
    top_k: int  # only so many of the likeliest count; 0 for all
    top_p: float  # only the likeliest count that are together so likely; 1 for all
    seed: int  # where chance begins
    stop: Sequence[int]  # ids that end the answer
    timeout: int  # microseconds in which the answer is of use


@dataclass(frozen=True, slots=True)
class GeneratedPart:
    """Some tokens of an answer, as they came.

    Attributes:
        ids: Of the tokens; none at the end.
        text: Theirs; a character comes with its last token. None where the version has no tokenizer.
        finish_reason: ``stop`` or ``length`` at the end, else empty.
    """

    ids: tuple[int, ...]
    text: str | None
    finish_reason: str

    def to_json(self) -> Json:
        """The same as JSON types."""
        return {**asdict(self), "ids": list(self.ids)}


@dataclass(frozen=True, slots=True)
class Generated:
    """A whole answer.

    Attributes:
        endpoint: Its name.
        version: The version that answered.
        ids: Of its tokens.
        text: Theirs; None where the version has no tokenizer.
        finish_reason: ``stop``, where the model or an id of ``stop`` ended it, or ``length``.
    """

    endpoint: str
    version: int | None
    ids: tuple[int, ...]
    text: str | None
    finish_reason: str

    def to_json(self) -> Json:
        """The same as JSON types."""
        return {**asdict(self), "ids": list(self.ids)}


def body_of(prompt: str | Sequence[int], sampling: Sampling, request_id: str) -> Json:
    """What a server is asked.

    Raises:
        InvalidSpecError: There is no such parameter.
    """
    known = Sampling.__annotations__
    if unknown := sorted(set(sampling) - set(known)):
        raise InvalidSpecError(
            f"{unknown[0]}: there is no such parameter; there are {', '.join(known)}", field=unknown[0]
        )
    asked: Json = {"text_input": prompt} if isinstance(prompt, str) else {"input_ids": [int(each) for each in prompt]}
    if request_id:
        asked["id"] = request_id
    return asked | {"parameters": dict(sampling)}


def part_of(said: Any) -> GeneratedPart:
    """What an event says.

    Raises:
        UnavailableError: That the answer does not become complete.
    """
    if "error" in said:
        raise UnavailableError(f"The answer is not complete: {said['error']}.")
    ids = tuple(int(each) for each in said["output_ids"])
    text = said.get("text_output")
    return GeneratedPart(ids, None if text is None else str(text), str(said.get("finish_reason", "")))


def whole_of(endpoint: str, said: Any) -> Generated:
    """What a whole answer says."""
    version, part = str(said.get("model_version", "")), part_of(said)
    number = int(version) if version.isdigit() else None
    return Generated(endpoint, number, part.ids, part.text, part.finish_reason)
