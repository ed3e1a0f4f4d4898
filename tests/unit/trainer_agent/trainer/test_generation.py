"""Decoders as ONNX: what the file says, and what the library says of modules that do not keep to the contract."""

from __future__ import annotations

from typing import Any

import onnx
import onnxruntime
import pytest
import torch
from torch import nn

from testing.small_gpt import small_gpt
from tiercel.core.errors import TooLargeError
from tiercel.trainer.generation import export_decoder
from tiercel.trainer_agent.errors import DeliveryFailedError
from tiercel.trainer_agent.trainer.any_model import AnyModel
from tiercel.trainer_agent.trainer.onnx_files import OnnxContent, write_checked


def test_a_file_says_how_it_is_run_and_answers_as_the_module(tmp_path: Any) -> None:
    model = small_gpt().train()
    found = export_decoder(model, vocabulary=61, context_length=128, end_token=0)
    assert model.training, "it trains on"
    file = onnx.load_model_from_string(found.onnx)
    assert {each.key: each.value for each in file.metadata_props} == {"context_length": "128", "eos_token_id": "0"}
    names = ["input_ids", "attention_mask", "position_ids"]
    caches = [f"past_key_values.{layer}.{kind}" for layer in range(2) for kind in ("key", "value")]
    assert [each.name for each in file.graph.input] == names + caches
    session = onnxruntime.InferenceSession(found.onnx)
    for name, array in zip(found.outputs, session.run(list(found.outputs), dict(found.inputs)), strict=True):
        assert array == pytest.approx(found.outputs[name], abs=1e-4), name
    write_checked(OnnxContent(found.onnx), tmp_path / "model.onnx")
    again = onnx.load(tmp_path / "model.onnx")
    assert len(again.metadata_props) == 2, "what is said of it stays with it"


def test_a_job_delivers_it_and_compares_it(tmp_path: Any) -> None:
    found = export_decoder(small_gpt(), vocabulary=61, context_length=128)
    trained = AnyModel()
    with trained.offering(found.onnx, found.inputs, found.outputs):
        copy = trained.keep()
    assert copy.error == ""
    assert trained.export(copy, tmp_path / "model.onnx").compared().rows > 3
    wrong = dict(found.outputs) | {"logits": found.outputs["logits"] + 1.0}
    with trained.offering(found.onnx, found.inputs, wrong):
        copy = trained.keep()
    with pytest.raises(DeliveryFailedError, match="disagree on logits"):
        trained.export(copy, tmp_path / "wrong.onnx")


class NoCache(nn.Module):
    """Another contract."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(61, 61)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.table(input_ids)
        return logits


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(DeliveryFailedError, match="input_ids, attention_mask, position_ids, past"):
        export_decoder(NoCache(), vocabulary=61, context_length=128)
    sizes: dict[str, Any] = {"vocabulary": 61, "context_length": 128}
    for wrong in ({"end_token": 61}, {"tokenizer": "bytes"}, {"tokenizer": "words"}, {"context_length": 1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            export_decoder(small_gpt(), **(sizes | wrong))
    with pytest.raises(TooLargeError, match="tokenizer"):
        export_decoder(small_gpt(), **sizes, tokenizer='{"a": "' + "x" * 16 * 1024**2 + '"}')


def test_a_tokenizer_travels_in_the_file(tmp_path: Any) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text('{"é": 1}', encoding="utf-8")
    for given in (str(path), '{"é": 1}'):
        found = export_decoder(small_gpt(), vocabulary=61, context_length=128, tokenizer=given)
        said = {each.key: each.value for each in onnx.load_model_from_string(found.onnx).metadata_props}
        assert said["tokenizer"] == '{"é": 1}'
