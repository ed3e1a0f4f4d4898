"""What a request for generation says, and what it may say. Pure."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

from tiercel.core.errors import InvalidRequestError, TooLargeError
from tiercel.serving import request_parameters
from tiercel.serving.generation.sampling import Sampling
from tiercel.serving.runtime.decoder import Decoder
from tiercel.serving.tensors import Array

MOST_STOPS: Final = 64
_MOST_BYTES: Final = 1024**2
_MOST_TEMPERATURE: Final = 100.0
_MOST_SEED: Final = 2**64 - 1
_MOST_ID_CHARACTERS: Final = 128


@dataclass(frozen=True, slots=True)
class GenerationLimits:
    """How much may be generated."""

    rows: int  # rows of one version that are generated at the same time
    waiting: int  # rows of one version that may wait; more are refused
    tokens: int  # tokens of one answer
    context: int  # tokens of a prompt and its answer together
    cache_bytes: int  # bytes of keys and values of all rows of all models
    timeout: float  # seconds in which an answer is complete


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A request for generation that makes sense by itself; whether it fits the model is not known yet."""

    model: str  # name of the model
    version: str  # the only version that will do, or empty
    id: str  # as the caller calls it, or empty
    prompt: tuple[int, ...] | str  # ids, or a text for the version's tokenizer
    tokens: int  # tokens of the answer at most
    sampling: Sampling  # how they are chosen
    seed: int | None  # where chance begins; None for anywhere
    stop: frozenset[int]  # ids that end the answer, beside the model's own
    timeout: float  # seconds in which the answer is of use


def check_size(size: int) -> None:
    """Refuse a request of too many bytes before it is taken apart.

    Raises:
        TooLargeError: It has more than it may.
    """
    if size > _MOST_BYTES:
        raise TooLargeError(f"the request has {size} bytes, {_MOST_BYTES} are possible")


def read_request(
    content: Mapping[str, Any], model: str, version: str, limits: GenerationLimits, limit: float | None = None
) -> GenerationRequest:
    """What a request says.

    Args:
        content: Its JSON; parameters stand in ``parameters``, or beside it as Triton's clients write them.
        model: What it is for.
        version: The only version that will do, or empty.
        limits: What may be asked.
        limit: Seconds that are left of those that it had elsewhere; None for all.

    Raises:
        InvalidRequestError: A field is wrong; the message names it.
    """
    parameters = content.get("parameters", {})
    if not isinstance(parameters, dict):
        raise InvalidRequestError("parameters must be a JSON object")
    said = {**content, **parameters}
    request_id = content.get("id", "")
    if not isinstance(request_id, str) or len(request_id) > _MOST_ID_CHARACTERS:
        raise InvalidRequestError(f"id must be a text of at most {_MOST_ID_CHARACTERS} characters")
    wanted = request_parameters.timeout(said.get("timeout"))
    timeout = min(each for each in (limits.timeout, wanted, limit) if each is not None)
    seed = said.get("seed")
    if seed is not None and not (_is_whole(seed) and 0 <= seed <= _MOST_SEED):
        raise InvalidRequestError("seed must be a whole number from 0, below 2 to the power of 64")
    return GenerationRequest(
        model,
        version,
        request_id,
        _prompt(content),
        _whole(said, "max_tokens", min(16, limits.tokens), 1, limits.tokens),
        Sampling(
            _real(said, "temperature", 0.0, 0.0, _MOST_TEMPERATURE),
            _whole(said, "top_k", 0, 0, 2**31 - 1),
            _real(said, "top_p", 1.0, 0.0, 1.0, above=True),
        ),
        seed,
        _stop(said.get("stop")),
        timeout,
    )


def checked_prompt(request: GenerationRequest, ids: Array, decoder: Decoder, limits: GenerationLimits) -> Array:
    """The ids of a request's prompt, as the model takes them.

    Raises:
        InvalidRequestError: They do not fit the model.
    """
    most = context_of(decoder, limits)
    if not 0 < len(ids) < most:
        raise InvalidRequestError(
            f"the prompt has {len(ids)} tokens; from 1 to {most - 1} are possible, as prompt and answer together "
            f"may have {most}"
        )
    wrong = ids[ids >= decoder.vocabulary]
    if len(wrong):
        field = "text_input" if isinstance(request.prompt, str) else "input_ids"
        raise InvalidRequestError(
            f"{field}: {wrong[0]} is no id of this model, which knows 0 to {decoder.vocabulary - 1}"
        )
    if len(ids) * decoder.token_bytes > limits.cache_bytes:
        raise TooLargeError(
            f"the prompt's keys and values would take {len(ids) * decoder.token_bytes} bytes, "
            f"{limits.cache_bytes} are possible; send a shorter one"
        )
    return ids.astype(decoder.ids)


def tokenized(request: GenerationRequest, text: str, decoder: Decoder, most: int) -> Future[Array]:
    """The ids of a prompt that is a text, by the version's tokenizer; see :meth:`.Tokenizer.ids`.

    Raises:
        InvalidRequestError: There is none, or the text is not for it.
    """
    if decoder.tokenizer is None:
        raise InvalidRequestError(
            f"text_input: the version of '{request.model}' that answers brings no tokenizer that can be run here; "
            "send the prompt as input_ids, a list of whole numbers"
        )
    return decoder.tokenizer.ids(text, most)


def context_of(decoder: Decoder, limits: GenerationLimits) -> int:
    """Tokens that a prompt and its answer may have together."""
    return limits.context if decoder.context is None else min(decoder.context, limits.context)


def _prompt(content: Mapping[str, Any]) -> tuple[int, ...] | str:
    ids, text = content.get("input_ids"), content.get("text_input")
    if (ids is None) == (text is None):
        raise InvalidRequestError("give either input_ids, a list of whole numbers, or text_input, a text")
    if text is not None:
        if not isinstance(text, str):
            raise InvalidRequestError("text_input must be a text")
        return text
    return _ids(ids, "input_ids")


def _stop(said: object) -> frozenset[int]:
    if said is None:
        return frozenset()
    found = _ids([said] if _is_whole(said) else said, "stop")
    if len(found) > MOST_STOPS:
        raise InvalidRequestError(f"stop: {len(found)} ids, {MOST_STOPS} are possible")
    return frozenset(found)


def _ids(said: object, name: str) -> tuple[int, ...]:
    if not isinstance(said, list) or not all(_is_whole(each) and 0 <= each < 2**31 for each in said):
        raise InvalidRequestError(f"{name} must be a list of ids, which are whole numbers from 0")
    return tuple(said)


def _whole(said: Mapping[str, Any], name: str, otherwise: int, least: int, most: int) -> int:
    value = said.get(name, otherwise)
    if not _is_whole(value) or not least <= value <= most:
        raise InvalidRequestError(f"{name} must be a whole number from {least} to {most}")
    return value


def _real(
    said: Mapping[str, Any], name: str, otherwise: float, least: float, most: float, *, above: bool = False
) -> float:
    value = said.get(name, otherwise)
    # NaN, which JSON does not have but Python writes, fails the comparison.
    if type(value) not in (int, float) or not least <= value <= most or (above and value == least):
        raise InvalidRequestError(f"{name} must be a number {'above' if above else 'from'} {least:g} to {most:g}")
    return float(value)


def _is_whole(value: object) -> TypeGuard[int]:
    return type(value) is int  # true and false are none
