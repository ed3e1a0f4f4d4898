"""A PyTorch decoder with a key-value cache as one ONNX file, in the form that ``/generate`` runs."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from tiercel.core.errors import TooLargeError
from tiercel.core.tokenizers import MAX_TOKENIZER_BYTES, TEXT_OF_BYTES, TOKENIZER
from tiercel.trainer_agent.errors import DeliveryFailedError
from tiercel.trainer_agent.trainer.pytorch.exporting import TORCHSCRIPT_OPSET, quietly
from tiercel.trainer_agent.trainer.signature import Array
from tiercel.trainer_agent.trainer.verification import first_line

_Cache = Sequence[tuple[torch.Tensor, torch.Tensor]]
# Of the rows that are exported and compared: tokens that are remembered, and tokens that are new.
_ROWS, _PAST, _NEW = 3, 4, 2


@dataclass(frozen=True, slots=True)
class ExportedDecoder:
    """A decoder for :meth:`Job.deliver`: ``job.deliver(found.onnx, metrics=…, inputs=found.inputs, …)``."""

    onnx: bytes  # the file
    inputs: Mapping[str, Array]  # a few rows to try it on, by input
    outputs: Mapping[str, Array]  # what the module answered, by output


def export_decoder(
    module: nn.Module,
    *,
    vocabulary: int,
    context_length: int,
    end_token: int | None = None,
    tokenizer: str = "",
) -> ExportedDecoder:
    """Write a decoder as one file that reads a prompt and goes on from a cache alike.

    Args:
        module: ``module(input_ids, attention_mask, position_ids, past)`` returns ``(logits, present)``. ``input_ids``
            and ``position_ids`` are int64 ``[rows, new]``, ``attention_mask`` int64 ``[rows, past + new]`` with 0 where
            a row has padding, ``past`` is a list of ``(key, value)`` by layer, each
            ``[rows, heads, past, head_size]``, or None for no past. ``logits`` is ``[rows, new, vocabulary]``,
            ``present`` like ``past`` with ``past + new`` tokens.
        vocabulary: How many ids there are.
        context_length: Tokens that it can remember, prompt and answer together.
        end_token: The id with which an answer ends; None for none.
        tokenizer: A Hugging Face ``tokenizer.json``, the path to it or its text, so that texts can be asked; it
            travels in the file. ``bytes`` where ids below 256 are the bytes of UTF-8; empty for ids only.

    Raises:
        DeliveryFailedError: The module does not keep to this, or PyTorch cannot export it.
        TooLargeError: The tokenizer is larger than may travel.
        ValueError: An argument is impossible.
    """
    _check(vocabulary, context_length, end_token)
    tokenizer = _tokenizer(tokenizer, vocabulary)
    was_training, device = module.training, next(module.parameters()).device
    module.eval().cpu()
    try:
        with torch.no_grad():
            return _exported(module, vocabulary, _metadata(context_length, end_token, tokenizer))
    finally:
        module.train(was_training).to(device)


class _Flat(nn.Module):
    """The module with a cache of tensors in a row."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, position_ids: torch.Tensor, *cache: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Logits and the cache."""
        past = list(zip(cache[::2], cache[1::2], strict=True))
        logits, present = self.module(input_ids, attention_mask, position_ids, past)
        return (logits, *_flat(present))


def _exported(module: nn.Module, vocabulary: int, metadata: Mapping[str, str]) -> ExportedDecoder:
    ids = torch.arange(_ROWS * (_PAST + _NEW)).reshape(_ROWS, -1) * 7 % vocabulary
    mask, positions = torch.ones_like(ids), torch.arange(_PAST + _NEW).expand(_ROWS, -1)
    flat = _Flat(module).eval()
    try:
        _, present = module(ids[:, :_PAST], mask[:, :_PAST], positions[:, :_PAST], None)
        inputs = (ids[:, _PAST:], mask, positions[:, _PAST:], *_flat(present))
        outputs = flat(*inputs)
    except Exception as error:  # the script's own forward may raise anything
        message = f"the module does not answer (input_ids, attention_mask, position_ids, past): {first_line(error)}"
        raise DeliveryFailedError(message) from error
    layers = range(len(present))
    pasts, presents = ([f"{name}.{n}.{kind}" for n in layers for kind in ("key", "value")] for name in _CACHES)
    input_names = ["input_ids", "attention_mask", "position_ids", *pasts]
    output_names = ["logits", *presents]
    axes: dict[str, dict[int, str]] = {name: {0: "batch", 1: "new"} for name in ("input_ids", "position_ids", "logits")}
    axes |= {"attention_mask": {0: "batch", 1: "total"}}
    axes |= {name: {0: "batch", 2: "past"} for name in pasts} | {name: {0: "batch", 2: "total"} for name in presents}
    with tempfile.TemporaryDirectory() as folder, quietly():
        path = Path(folder, "model.onnx")
        try:
            torch.onnx.export(
                flat,
                inputs,
                str(path),
                dynamo=False,
                opset_version=TORCHSCRIPT_OPSET,
                input_names=input_names,
                output_names=output_names,
                dynamic_axes=axes,
            )
        except Exception as error:  # exporters raise dozens of types
            raise DeliveryFailedError(f"PyTorch cannot export the decoder: {first_line(error)}") from error
        onnx = _with_metadata(path.read_bytes(), metadata)
    return ExportedDecoder(onnx, _arrays(input_names, inputs), _arrays(output_names, outputs))


_CACHES: Final = ("past_key_values", "present")


def _flat(cache: _Cache) -> list[torch.Tensor]:
    return [tensor for pair in cache for tensor in pair]


def _arrays(names: Sequence[str], tensors: Sequence[torch.Tensor]) -> dict[str, Array]:
    return {name: tensor.contiguous().numpy() for name, tensor in zip(names, tensors, strict=True)}


def _with_metadata(content: bytes, metadata: Mapping[str, str]) -> bytes:
    import onnx  # costs a script 0.1 to 0.3 s

    model = onnx.load_model_from_string(content)
    onnx.helper.set_model_props(model, dict(metadata))
    return bytes(model.SerializeToString())


def _metadata(context_length: int, end_token: int | None, tokenizer: str) -> dict[str, str]:
    """See ``serving/runtime/decoder.py``, which reads it."""
    said: dict[str, Any] = {"context_length": context_length, "eos_token_id": end_token, TOKENIZER: tokenizer or None}
    return {name: str(value) for name, value in said.items() if value is not None}


def _check(vocabulary: int, context_length: int, end_token: int | None) -> None:
    if context_length < _PAST + _NEW:
        raise ValueError(f"context_length: it must be at least {_PAST + _NEW}, got {context_length}")
    if end_token is not None and not 0 <= end_token < vocabulary:
        raise ValueError(f"end_token: it must be an id below {vocabulary}, got {end_token}")


def _tokenizer(said: str, vocabulary: int) -> str:
    """What the file is to say of it."""
    if said == TEXT_OF_BYTES:
        if vocabulary < 256:
            raise ValueError(f"tokenizer: 'bytes' needs a vocabulary of 256 or more, got {vocabulary}")
        return said
    if not said:
        return said
    content = said.encode() if said.lstrip().startswith("{") else _read_file(Path(said))
    if len(content) > MAX_TOKENIZER_BYTES:
        raise TooLargeError(f"tokenizer: it has more than the {MAX_TOKENIZER_BYTES} bytes that may travel")
    try:
        is_object = isinstance(json.loads(content), dict)
    except (ValueError, RecursionError):
        is_object = False
    if not is_object:
        raise ValueError("tokenizer: it is no JSON object; give a Hugging Face tokenizer.json")
    return content.decode()


def _read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_TOKENIZER_BYTES + 1)
    except OSError as error:
        message = f"tokenizer: it must be 'bytes', a tokenizer.json or its text; {str(path)[:200]!r} cannot be read"
        raise ValueError(message) from error
