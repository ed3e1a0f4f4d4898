from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper

from testing import onnx_models
from testing.small_gpt import small_gpt
from tiercel.core.errors import ArtefactRefusedError
from tiercel.core.onnx_data import DATA_FILE, joined
from tiercel.serving.verification import checks
from tiercel.serving.verification.checks import verify
from tiercel.serving.verification.verdict import Verdict
from tiercel.trainer.generation import export_decoder

X = np.arange(8, dtype=np.float32).reshape(2, 4)
MEGABYTE = 1024**2


def check(folder: Path, max_reference_bytes: int = MEGABYTE) -> Verdict:
    return verify(str(folder / "model.onnx"), folder / "reference.npz", max_reference_bytes)


def put(tmp_path: Path, content: bytes, reference: dict[str, npt.NDArray[Any]] | None = None) -> Path:
    return onnx_models.put(tmp_path, "m", 1, content, reference)


def test_a_good_model_passes_without_a_reference(tmp_path: Path) -> None:
    verdict = check(put(tmp_path, onnx_models.mlp()))
    assert verdict == Verdict(weight_bytes=4 * (64 * 128 + 128 + 128 * 10 + 10), loaded_bytes=verdict.loaded_bytes)


def test_a_good_model_passes_with_its_reference(tmp_path: Path) -> None:
    verdict = check(put(tmp_path, onnx_models.plus(1.0), {"input_x": X, "output_y": X + 1.00001}))
    assert verdict.shapes == {"x": [2, 4]}


def test_strings_have_references_too(tmp_path: Path) -> None:
    words = np.array(["a", "é"])
    content = onnx_models.identity(TensorProto.STRING)
    assert check(put(tmp_path, content, {"input_x": words, "output_y": words})).shapes == {"x": [2]}
    (tmp_path / "other").mkdir()
    with pytest.raises(ArtefactRefusedError, match="differs from its reference"):
        check(put(tmp_path / "other", content, {"input_x": words, "output_y": np.array(["a", "b"])}))


def test_a_loop_is_noticed(tmp_path: Path) -> None:
    assert check(put(tmp_path, onnx_models.counting_loop())).has_loop


def test_what_batching_does_to_a_model_is_found_out_where_that_is_asked(tmp_path: Path) -> None:
    folder = put(tmp_path / "good", onnx_models.mlp())
    model, reference = str(folder / "model.onnx"), folder / "reference.npz"
    found = verify(model, reference, MEGABYTE, 16).batching
    assert found is not None
    assert found.profile is not None
    assert found.profile.rows[-1] <= 16
    assert verify(model, reference, MEGABYTE).batching is None


@pytest.mark.parametrize(
    "content", [onnx_models.counting_loop(), onnx_models.out_of_bounds()], ids=["a loop", "it fails"]
)
def test_what_cannot_be_measured_in_a_check_passes_all_the_same(tmp_path: Path, content: bytes) -> None:
    folder = put(tmp_path, content)
    assert verify(str(folder / "model.onnx"), folder / "reference.npz", MEGABYTE, 16).batching is None


def test_a_rehearsal_does_what_a_check_does(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Verdict] = []
    monkeypatch.setattr(checks, "verify", lambda *given: found.append(verify(*given)))
    checks.rehearse()
    assert [each.batching is not None and each.batching.profile is not None for each in found] == [True]


def test_functions_of_the_model_s_own_are_standard_if_their_bodies_are(tmp_path: Path) -> None:
    def content(inner: onnx.NodeProto) -> bytes:
        function = helper.make_function(
            "own", "Twice", ["a"], ["b"], [inner], [helper.make_opsetid("", 20), helper.make_opsetid("evil", 1)]
        )
        proto = onnx.load_model_from_string(
            onnx_models.model(
                [helper.make_node("Twice", ["x"], ["y"], domain="own")],
                {"x": (TensorProto.FLOAT, ["n"])},
                {"y": (TensorProto.FLOAT, ["n"])},
                domains=["own"],
            )
        )
        proto.functions.append(function)
        return bytes(proto.SerializeToString())

    check(put(tmp_path, content(helper.make_node("Add", ["a", "a"], ["b"]))))
    (tmp_path / "other").mkdir()
    with pytest.raises(ArtefactRefusedError, match="operator 'Call' of domain 'evil'"):
        check(put(tmp_path / "other", content(helper.make_node("Call", ["a"], ["b"], domain="evil"))))


def external_in_subgraph() -> bytes:
    """External data that only who looks into a loop's body finds."""
    proto = onnx.load_model_from_string(onnx_models.counting_loop())
    tensor = proto.graph.node[0].attribute[0].g.initializer.add(name="hidden", data_type=TensorProto.FLOAT, dims=[1])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")
    return bytes(proto.SerializeToString())


def external_in_sparse(part: str) -> bytes:
    """External data of a sparse weight, which is two tensors."""
    proto = onnx.load_model_from_string(onnx_models.plus(1.0))
    sparse = proto.graph.sparse_initializer.add(dims=[4])
    sparse.values.CopyFrom(helper.make_tensor("sparse_values", TensorProto.FLOAT, [1], [1.0]))
    sparse.indices.CopyFrom(helper.make_tensor("sparse_indices", TensorProto.INT64, [1], [0]))
    tensor = getattr(sparse, part)
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")
    return bytes(proto.SerializeToString())


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"nonsense", "not ONNX"),
        (b"\x08\x0a", "no graph"),
        (onnx_models.plus(1.0)[:-20], "not ONNX|not valid ONNX"),
        (onnx_models.with_external_data(), "tensor 'value' lies outside of the file"),
        (external_in_subgraph(), "tensor 'hidden' lies outside of the file"),
        (external_in_sparse("values"), "tensor 'sparse_values' lies outside of the file"),
        (external_in_sparse("indices"), "tensor 'sparse_indices' lies outside of the file"),
        (onnx_models.with_custom_operator(), "'Backdoor' of domain 'evil.example' is not a standard one"),
        (
            onnx_models.model([helper.make_node("Add", ["x", "gone"], ["y"])], {"x": (1, ["n"])}, {"y": (1, ["n"])}),
            "not valid ONNX",
        ),
    ],
)
def test_bad_artefacts_are_refused_with_the_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(ArtefactRefusedError, match=reason):
        check(put(tmp_path, content))


def beside(tmp_path: Path) -> Path:
    """A version with its weights beside it, as deliveries bring it."""
    onnx_models.save_external(onnx_models.mlp((4, 3)), tmp_path / "saved.onnx")
    model = joined(tmp_path / "saved.onnx")
    assert model is not None
    folder = tmp_path / "version"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(model.write(folder / DATA_FILE))
    return folder


def test_weights_beside_the_file_count_and_are_verified_with_it(tmp_path: Path) -> None:
    verdict = check(beside(tmp_path))
    assert verdict.weight_bytes == 4 * (4 * 3 + 3)


def changed(folder: Path, key: str, value: str, *, added: bool = False) -> None:
    model = onnx.load_model(folder / "model.onnx", load_external_data=False)
    tensor = model.graph.initializer[0]
    for entry in [each for each in tensor.external_data if each.key == key]:
        if not added:
            tensor.external_data.remove(entry)
    tensor.external_data.add(key=key, value=value)
    (folder / "model.onnx").write_bytes(model.SerializeToString())


@pytest.mark.parametrize(
    ("attack", "reason"),
    [
        (lambda folder: changed(folder, "location", "/etc/passwd"), "lies outside of the file, in '/etc/passwd'"),
        (lambda folder: changed(folder, "location", f"./{DATA_FILE}"), "lies outside of the file"),
        (lambda folder: changed(folder, "location", "*/_ORT_MEM_ADDR_/*"), "lies outside of the file"),
        (lambda folder: changed(folder, "location", "/etc/passwd", added=True), "lies outside of the file"),
        (lambda folder: changed(folder, "basepath", "/etc"), "lies outside of the file"),
        (lambda folder: changed(folder, "offset", "-4"), "no number"),
        (lambda folder: changed(folder, "offset", "1" * 19), "no number"),
        (lambda folder: changed(folder, "offset", "4096000"), "beyond the end of model.onnx.data"),
        (lambda folder: changed(folder, "length", "4096000"), "beyond the end of model.onnx.data"),
        (lambda folder: changed(folder, "length", "4"), "does not load it"),
        (lambda folder: (folder / DATA_FILE).unlink(), "no model.onnx.data beside it"),
        (lambda folder: (folder / DATA_FILE).write_bytes(bytes(4096)), "its SHA-256 or its size differs"),
    ],
)  # fmt: skip
def test_weights_that_are_anywhere_else_or_others_are_refused(
    tmp_path: Path, attack: Callable[[Path], None], reason: str
) -> None:
    folder = beside(tmp_path)
    attack(folder)
    with pytest.raises(ArtefactRefusedError, match=reason):
        check(folder)


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ({"input_x": X, "output_y": X}, "output 'y' differs from its reference in 8 of 8 elements"),
        ({"input_x": X, "output_y": X[:1]}, r"output 'y' has shape \[2, 4\], but its reference \[1, 4\]"),
        ({"input_x": X, "output_y": np.full_like(X, np.nan)}, "output 'y' differs"),
        ({"input_x": X, "output_z": X}, "the reference has outputs"),
        ({"output_y": X}, "the reference has inputs"),
        ({"input_x": X, "input_z": X, "output_y": X}, "the reference has inputs"),
        ({"input_x": X[:, :3], "output_y": X}, "does not run on its reference inputs"),
        ({"input_x": X.astype(np.float64), "output_y": X}, "does not run on its reference inputs"),
    ],
)
def test_wrong_references_are_refused(tmp_path: Path, reference: dict[str, npt.NDArray[Any]], reason: str) -> None:
    with pytest.raises(ArtefactRefusedError, match=reason):
        check(put(tmp_path, onnx_models.plus(1.0), reference))


class Payload:
    """What must never be unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("/nowhere/pickle-ran"),)


def test_references_with_pickles_are_refused(tmp_path: Path) -> None:
    folder = put(tmp_path, onnx_models.plus(1.0))
    np.savez(folder / "reference.npz", input_x=np.array([Payload()], np.object_), output_y=X)
    with pytest.raises(ArtefactRefusedError, match=r"reference\.npz cannot be read"):
        check(folder)


def test_references_that_unpack_to_too_much_are_refused(tmp_path: Path) -> None:
    folder = put(tmp_path, onnx_models.plus(1.0))
    np.savez_compressed(folder / "reference.npz", input_x=np.zeros((2**19, 4), np.float32), output_y=X)
    assert (folder / "reference.npz").stat().st_size < MEGABYTE
    with pytest.raises(ArtefactRefusedError, match="unpacks to"):
        check(folder)


def test_references_that_are_no_archive_are_refused(tmp_path: Path) -> None:
    folder = put(tmp_path, onnx_models.plus(1.0))
    (folder / "reference.npz").write_bytes(b"PK\3\4 not really")
    with pytest.raises(ArtefactRefusedError, match="cannot be read"):
        check(folder)


def test_links_are_not_followed(tmp_path: Path) -> None:
    folder = put(tmp_path, onnx_models.plus(1.0))
    (folder / "reference.npz").symlink_to("/etc/passwd")
    with pytest.raises(ArtefactRefusedError, match="cannot be read"):
        check(folder)


@pytest.mark.parametrize(
    ("kind", "size"), [(TensorProto.FLOAT, 4), (TensorProto.FLOAT16, 2), (TensorProto.INT64, 8), (TensorProto.BOOL, 1)]
)
def test_weights_are_counted_as_initializers_and_as_constants(tmp_path: Path, kind: int, size: int) -> None:
    constant = helper.make_tensor("c", kind, [2, 3], [0] * 6)
    node = helper.make_node("Constant", [], ["y"], value=constant)
    proto = onnx.load_model_from_string(onnx_models.model([node], {}, {"y": (kind, [2, 3])}))
    assert check(put(tmp_path / "one", bytes(proto.SerializeToString()))).weight_bytes == 6 * size
    proto.graph.initializer.append(helper.make_tensor("unused", TensorProto.FLOAT, [5], [0] * 5))
    assert check(put(tmp_path / "two", bytes(proto.SerializeToString()))).weight_bytes == 6 * size + 20


@pytest.mark.parametrize(
    ("kind", "dims"), [(0, [1]), (4711, [1]), (TensorProto.FLOAT, [-5]), (TensorProto.FLOAT, [2**62, 2**62])]
)
def test_weights_that_cannot_be_are_no_reason_to_stumble(tmp_path: Path, kind: int, dims: list[int]) -> None:
    proto = onnx.load_model_from_string(onnx_models.plus(1.0))
    tensor = proto.graph.initializer[0]
    tensor.data_type = kind
    del tensor.dims[:]
    tensor.dims.extend(dims)
    with pytest.raises(ArtefactRefusedError, match=r"not valid ONNX|does not load"):
        check(put(tmp_path, bytes(proto.SerializeToString())))


@pytest.mark.parametrize("missing", [-4, 4, 40_000])
def test_large_weights_have_to_be_as_large_as_they_say(tmp_path: Path, missing: int) -> None:
    proto = onnx.load_model_from_string(onnx_models.mlp((64, 256, 10)))
    weights = proto.graph.initializer[0]
    assert len(weights.raw_data) > 40_000
    weights.raw_data = weights.raw_data[:-missing] if missing > 0 else weights.raw_data + bytes(-missing)
    with pytest.raises(ArtefactRefusedError, match="does not load"):
        check(put(tmp_path, bytes(proto.SerializeToString())))


def test_large_weights_outside_of_the_file_are_refused(tmp_path: Path) -> None:
    proto = onnx.load_model_from_string(onnx_models.mlp())
    proto.graph.initializer[0].data_location = TensorProto.EXTERNAL
    with pytest.raises(ArtefactRefusedError, match="tensor 'w0' lies outside of the file"):
        check(put(tmp_path, bytes(proto.SerializeToString())))


def test_a_decoder_with_a_broken_tokenizer_is_refused(tmp_path: Path) -> None:
    content = export_decoder(small_gpt(), vocabulary=61, context_length=128, tokenizer='{"model": {"type": "X"}}').onnx
    with pytest.raises(ArtefactRefusedError, match=r"tokenizer\.json has a model of type 'X'"):
        check(put(tmp_path, content))
