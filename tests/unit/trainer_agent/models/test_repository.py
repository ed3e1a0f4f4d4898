from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from testing import onnx_models
from tiercel.core.cheap_variants import CHEAP, CheapVariant, VariantKind
from tiercel.core.onnx_data import DATA_FILE, joined
from tiercel.trainer_agent.errors import DeliveryFailedError
from tiercel.trainer_agent.models import record as model_record
from tiercel.trainer_agent.models.record import ModelRecord
from tiercel.trainer_agent.models.repository import ModelRepository

SHA256 = hashlib.sha256(b"model").hexdigest()


@pytest.fixture
def job(tmp_path: Path) -> Path:
    export = tmp_path / "job" / "exports" / "d"
    export.mkdir(parents=True)
    (export / "model.onnx").write_bytes(b"model")
    (export / "reference.npz").write_bytes(b"reference")
    return tmp_path / "job"


@pytest.fixture
def repository(tmp_path: Path) -> ModelRepository:
    return ModelRepository(tmp_path / "models")


def test_staged_then_published(repository: ModelRepository, job: Path) -> None:
    repository.stage(job, "d", SHA256)
    repository.publish("d", "digits", 3, SHA256)
    version = repository.path / "digits" / "3"
    assert sorted(p.name for p in version.iterdir()) == ["model.onnx", "reference.npz"]
    repository.publish("d", "digits", 3, SHA256)  # the agent died after the rename: the version is there
    assert (version / "model.onnx").read_bytes() == b"model"


def test_the_inference_server_finds_the_accuracy_beside_the_model(repository: ModelRepository, job: Path) -> None:
    repository.stage(job, "d", SHA256, accuracy=0.91)
    repository.publish("d", "digits", 1, SHA256)
    assert json.loads((repository.version("digits", 1) / "accuracy.json").read_text()) == {"accuracy": 0.91}


@pytest.mark.parametrize("kind", CHEAP)
def test_of_what_somebody_deployed_a_variant_stays_only_where_it_is_shipped(
    kind: VariantKind, repository: ModelRepository
) -> None:
    staged, shipped = repository.staged("d"), CheapVariant(kind, shipped=True, value=0.89)
    staged.mkdir(parents=True)
    with pytest.raises(DeliveryFailedError, match=f"lacks {kind.file}, which was announced"):
        repository.settle_deployed("d", 0.9, [shipped])
    for each in CHEAP:
        (staged / each.file).write_bytes(b"half")
    assert repository.settle_deployed("d", 0.9, [shipped]) == (replace(shipped, size_bytes=4),)
    assert sorted(path.name for path in staged.iterdir()) == ["accuracy.json", kind.file], "no other was announced"
    assert json.loads((staged / "accuracy.json").read_text()) == {"accuracy": 0.9, kind.value: 0.89}
    refused = replace(shipped, shipped=False)
    assert repository.settle_deployed("d", 0.9, [refused]) == (refused,)
    assert [path.name for path in staged.iterdir()] == ["accuracy.json"]
    assert json.loads((staged / "accuracy.json").read_text()) == {"accuracy": 0.9}


def test_a_version_that_nobody_remembers_is_replaced(repository: ModelRepository, job: Path) -> None:
    stale = repository.version("digits", 1)
    stale.mkdir(parents=True)
    (stale / "model.onnx").write_bytes(b"of an earlier life")
    model_record.write(stale.parent, ModelRecord(live=0, versions={1: "ab"}))
    repository.stage(job, "d", SHA256)
    repository.publish("d", "digits", 1, SHA256)
    assert (stale / "model.onnx").read_bytes() == b"model"


def test_somebody_elses_model_is_neither_replaced_nor_removed(repository: ModelRepository, job: Path) -> None:
    theirs = repository.version("digits", 1)
    theirs.mkdir(parents=True)
    (theirs / "model.onnx").write_bytes(b"an operator's")
    repository.stage(job, "d", SHA256)
    with pytest.raises(DeliveryFailedError, match="a model named 'digits' that Tiercel has not put there"):
        repository.publish("d", "digits", 1, SHA256)
    repository.withdraw("d", "digits", 1)
    repository.keep_only("digits", ())
    assert (theirs / "model.onnx").read_bytes() == b"an operator's"
    assert repository.record("digits") is None


def test_versions_that_are_not_kept_are_removed_and_an_operators_settings_stay(
    repository: ModelRepository, job: Path
) -> None:
    for version in (1, 2, 3):
        repository.stage(job, "d", SHA256)
        repository.publish("d", "digits", version, SHA256)
    repository.let_answer("digits", 2)
    repository.withdraw("d", "digits", 2)
    repository.keep_only("digits", {2, 3})
    assert repository.record("digits") == ModelRecord(2, {2: SHA256, 3: SHA256})
    assert sorted(each.name for each in (repository.path / "digits").iterdir()) == ["2", "3", "live.json"]
    settings = repository.path / "digits" / "config.pbtxt"
    settings.write_text("max_batch_size: 4")
    repository.keep_only("digits", ())
    assert list((repository.path / "digits").iterdir()) == [settings]
    repository.stage(job, "d", SHA256)
    repository.publish("d", "digits", 4, SHA256)
    assert repository.record("digits") == ModelRecord(0, {4: SHA256})


def test_nothing_to_publish(repository: ModelRepository) -> None:
    with pytest.raises(DeliveryFailedError, match="lost"):
        repository.publish("d", "digits", 1, SHA256)


@pytest.mark.parametrize("name", ["model.onnx", "reference.npz"])
def test_links_are_refused_and_nothing_stays_behind(repository: ModelRepository, job: Path, name: str) -> None:
    file = job / "exports" / "d" / name
    file.rename(job / "elsewhere")
    file.symlink_to(job / "elsewhere")
    with pytest.raises(DeliveryFailedError, match=f"refused: {name} cannot be opened"):
        repository.stage(job, "d", SHA256)
    assert not repository.staged("d").exists()


def test_a_folder_that_is_a_link_is_refused(repository: ModelRepository, job: Path) -> None:
    (job / "exports").rename(job / "elsewhere")
    (job / "exports").symlink_to(job / "elsewhere")
    with pytest.raises(DeliveryFailedError, match="refused"):
        repository.stage(job, "d", SHA256)


def test_large_files_are_refused(job: Path, tmp_path: Path) -> None:
    small = ModelRepository(tmp_path / "models", model_bytes=4)
    with pytest.raises(DeliveryFailedError, match="larger than 4 bytes"):
        small.stage(job, "d", SHA256)


@pytest.fixture
def with_weights(job: Path, tmp_path: Path) -> str:
    """SHA-256 of a model that a run handed over with its weights beside it."""
    onnx_models.save_external(onnx_models.mlp((4, 3)), tmp_path / "saved.onnx")
    model = joined(tmp_path / "saved.onnx")
    assert model is not None
    content = model.write(job / "exports" / "d" / DATA_FILE)
    (job / "exports" / "d" / "model.onnx").write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def test_weights_beside_a_model_are_staged_sent_and_counted_with_it(
    repository: ModelRepository, job: Path, with_weights: str
) -> None:
    repository.stage(job, "d", with_weights)
    exports = job / "exports" / "d"
    both = [(exports / name).stat().st_size for name in ("model.onnx", DATA_FILE)]
    assert repository.size_of_staged("d") == sum(both)
    repository.publish("d", "digits", 1, with_weights)
    sent = repository.files("digits", 1, with_weights, "")
    assert [each.path.name for each in sent] == ["model.onnx", DATA_FILE, "reference.npz"]
    copy = repository.staged("copy")
    copy.mkdir(parents=True)
    for each in sent:
        shutil.copy(each.path, copy)
    repository.check_copy(copy, with_weights)
    os.truncate(copy / DATA_FILE, 8)
    with pytest.raises(DeliveryFailedError, match="its SHA-256 or its size differs"):
        repository.check_copy(copy, with_weights)
    (copy / DATA_FILE).unlink()
    with pytest.raises(DeliveryFailedError, match="lacks the weights of its model"):
        repository.check_copy(copy, with_weights)
    repository.keep_only("digits", ())
    assert not repository.version("digits", 1).exists()


def test_weights_that_nobody_meant_or_that_are_others_are_refused(
    repository: ModelRepository, job: Path, with_weights: str
) -> None:
    data = job / "exports" / "d" / DATA_FILE
    small = ModelRepository(repository.path, model_bytes=1_000)
    with pytest.raises(DeliveryFailedError, match="this node takes 1000; who operates it can set more"):
        small.stage(job, "d", with_weights)
    data.write_bytes(data.read_bytes()[::-1])
    with pytest.raises(DeliveryFailedError, match="not the file whose checksum"):
        repository.stage(job, "d", with_weights)
    data.write_bytes(data.read_bytes() + b"more")
    with pytest.raises(DeliveryFailedError, match="is larger than"):
        repository.stage(job, "d", with_weights)
    data.unlink()
    with pytest.raises(DeliveryFailedError, match="cannot be opened"):
        repository.stage(job, "d", with_weights)
    data.symlink_to("/etc/passwd")
    with pytest.raises(DeliveryFailedError, match="cannot be opened"):
        repository.stage(job, "d", with_weights)
    copy = repository.staged("copy")
    copy.mkdir(parents=True)
    (copy / "model.onnx").write_bytes(b"model")
    (copy / DATA_FILE).write_bytes(b"weights")
    with pytest.raises(DeliveryFailedError, match="of which its model says nothing"):
        repository.check_copy(copy, SHA256)


def test_a_file_that_is_not_the_one_that_was_announced_is_refused(repository: ModelRepository, job: Path) -> None:
    with pytest.raises(DeliveryFailedError, match="not the file whose checksum the script reported"):
        repository.stage(job, "d", "0" * 64)
    assert not repository.staged("d").exists()


def test_cleaning_up(repository: ModelRepository, job: Path) -> None:
    repository.remove_staged_except(set())
    repository.stage(job, "d", SHA256)
    repository.remove_staged_except({"d"})
    assert repository.staged("d").exists()
    repository.remove_staged_except(set())
    assert not repository.staged("d").exists()
    repository.stage(job, "d", SHA256)
    repository.publish("d", "digits", 1, SHA256)
    repository.withdraw("d", "digits", 1)
    assert not repository.version("digits", 1).exists()


def test_cheap_variants_go_wherever_their_version_goes(repository: ModelRepository, job: Path) -> None:
    repository.stage(job, "d", SHA256, accuracy=0.91)
    staged = []
    for kind in CHEAP:
        (job / "exports" / "d" / kind.file).write_bytes(kind.value.encode())
        made = CheapVariant(kind, shipped=True, value=0.905, sha256=hashlib.sha256(kind.value.encode()).hexdigest())
        staged.append(repository.stage_variant(job, "d", made))
        assert staged[-1] == replace(made, size_bytes=4)
    repository.note_accuracy("d", 0.91, staged)
    repository.publish("d", "digits", 1, SHA256)
    files = repository.files("digits", 1, SHA256, "")
    names = ["accuracy.json", "model.fp16.onnx", "model.int8.onnx", "model.onnx", "reference.npz"]
    assert sorted(each.path.name for each in files) == names
    told = json.loads((repository.version("digits", 1) / "accuracy.json").read_text())
    assert told == {"accuracy": 0.91, "int8": 0.905, "fp16": 0.905}
    copy = repository.staged("copy")
    copy.mkdir(parents=True)
    for each in files:
        (copy / each.path.name).write_bytes(each.path.read_bytes())
    repository.check_copy(copy, SHA256)
    repository.keep_only("digits", [])
    assert not repository.version("digits", 1).exists()


@pytest.mark.parametrize("fault", ["another", "larger", "link", "missing", "folder"])
@pytest.mark.parametrize("kind", CHEAP)
def test_a_variant_that_is_not_what_it_should_be_leaves_the_version_alone(
    fault: str, kind: VariantKind, repository: ModelRepository, job: Path
) -> None:
    path = job / "exports" / "d" / kind.file
    content = b"x" * (64 * 1024 + len(b"model") + 1) if fault == "larger" else b"int8"
    match fault:
        case "link":
            path.symlink_to("/etc/passwd")
        case "folder":
            path.mkdir()
        case "another" | "larger":
            path.write_bytes(content)
    sha256 = hashlib.sha256(b"other" if fault == "another" else content).hexdigest()
    repository.stage(job, "d", SHA256, accuracy=0.91)
    found = repository.stage_variant(job, "d", CheapVariant(kind, shipped=True, value=0.905, sha256=sha256))
    assert (found.shipped, found.reason.partition(":")[0]) == (False, "its file was refused")
    names = ["accuracy.json", "model.onnx", "reference.npz"]
    assert sorted(each.name for each in repository.staged("d").iterdir()) == names
