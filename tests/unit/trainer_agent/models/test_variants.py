from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tiercel.serving.dispatch.variants import configuration
from tiercel.trainer_agent.errors import DeliveryFailedError
from tiercel.trainer_agent.models.variants import DEFAULT_OBJECTIVE_SECONDS, Place, list_variants, place_of


def put(repository: Path, model: str, version: int = 1) -> Path:
    folder = repository / model / str(version)
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(b"model")
    return folder


def listed(repository: Path, endpoint: str = "digits") -> dict[str, Any]:
    content: dict[str, Any] = json.loads((repository / endpoint / "variants.json").read_text())
    return content


@pytest.mark.parametrize("place", [Place("digits"), Place("digits", "small"), Place("a.b-c", "x_1"), Place("a", "b-c")])
def test_a_place_has_a_model_that_leads_back_to_it(place: Place) -> None:
    assert place_of(place.model) == place


def test_a_variant_never_has_the_name_of_an_endpoint() -> None:
    assert Place("digits", "small").model == "_digits.small"
    assert place_of("digits.small") == Place("digits.small")
    assert place_of("_Own.model") == Place("_Own.model")


def test_variants_that_have_versions_are_listed_as_the_inference_server_reads_it(tmp_path: Path) -> None:
    put(tmp_path, "_digits.small", 3)
    put(tmp_path, "_digits.large", 12)
    put(tmp_path, "_digits.more.small")
    put(tmp_path, "other")
    (tmp_path / "_digits.empty").mkdir()
    for _ in range(2):
        list_variants(tmp_path, "digits")
        read = configuration.read(tmp_path / "digits")
        assert read is not None
        assert read.variants == (
            configuration.Variant("large", "_digits.large"),
            configuration.Variant("small", "_digits.small"),
        )
        assert (read.objective, read.scheduler) == (DEFAULT_OBJECTIVE_SECONDS, "heuristic")
    list_variants(tmp_path, "digits.more")
    assert listed(tmp_path, "digits.more")["variants"] == [{"name": "small", "model": "_digits.more.small"}]


def test_what_an_operator_has_put_there_is_kept(tmp_path: Path) -> None:
    own = {"name": "hand-made", "accuracy": 0.5}
    (tmp_path / "digits").mkdir()
    before = {"variants": [own, "_digits.gone"], "objective_seconds": 0.02, "scheduler": "aimd"}
    (tmp_path / "digits" / "variants.json").write_text(json.dumps(before))
    put(tmp_path, "_digits.small")
    list_variants(tmp_path, "digits")
    assert listed(tmp_path) == before | {"variants": [own, {"name": "small", "model": "_digits.small"}]}


def test_without_any_variant_nothing_is_listed(tmp_path: Path) -> None:
    folder = put(tmp_path, "_digits.small")
    list_variants(tmp_path, "digits")
    (folder / "model.onnx").unlink()
    list_variants(tmp_path, "digits")
    assert not (tmp_path / "digits" / "variants.json").exists()
    list_variants(tmp_path, "digits")


@pytest.mark.parametrize("content", ["{", "[]", '{"variants": 3}', "{}"])
def test_a_file_that_cannot_be_understood_is_left_alone(tmp_path: Path, content: str) -> None:
    put(tmp_path, "_digits.small")
    (tmp_path / "digits").mkdir()
    file = tmp_path / "digits" / "variants.json"
    file.write_text(content)
    with pytest.raises(DeliveryFailedError, match="mend or remove that file"):
        list_variants(tmp_path, "digits")
    assert file.read_text() == content
