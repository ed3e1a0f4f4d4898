from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tiercel.core.errors import ArtefactRefusedError
from tiercel.serving.dispatch.variants import configuration
from tiercel.serving.scheduling.heuristic import HeuristicScheduler
from tiercel.serving.scheduling.static import StaticScheduler
from tiercel.serving.scheduling.utility import Utility

GOOD: dict[str, Any] = {"variants": ["small", {"name": "large", "accuracy": 0.97}], "objective_seconds": 0.05}
SOLVER = ThreadPoolExecutor(1)  # starts no thread before it is asked for something


def test_what_is_left_out_has_the_usual_value() -> None:
    chosen = configuration.checked(GOOD)
    small, large = configuration.Variant("small", "small"), configuration.Variant("large", "large", 0.97)
    assert chosen == configuration.Configuration((small, large), 0.05, Utility("soft", 2.0), "heuristic")


def test_a_variant_may_be_called_otherwise_than_its_model() -> None:
    chosen = configuration.checked(
        GOOD
        | {"variants": [{"name": "small", "model": "_digits.small"}], "scheduler": "static"}
        | {"static_variant": "small"}
    )
    assert chosen.variants == (configuration.Variant("small", "_digits.small"),)


def test_another_scheduler_is_needed_only_where_another_is_asked_for() -> None:
    chosen = configuration.checked(GOOD)
    assert chosen.decides_like(configuration.checked(GOOD | {"objective_seconds": 1, "utility": "linear"}))
    assert not chosen.decides_like(configuration.checked(GOOD | {"scheduler": "static"}))


def test_everything_can_be_said() -> None:
    chosen = configuration.checked(
        GOOD | {"utility": "linear", "steepness": 0.3, "scheduler": "static", "static_variant": "small"}
    )
    assert chosen.utility == Utility("linear", 0.3)
    assert isinstance(chosen.make_scheduler(SOLVER), StaticScheduler)
    assert isinstance(
        configuration.checked(GOOD | {"scheduler": "heuristic"}).make_scheduler(SOLVER), HeuristicScheduler
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"variants": []}, "variants must be a list of 1 to 16 models"),
        ({"variants": ["../x"]}, r"variants\[0\]: model name '../x' is impossible"),
        ({"variants": ["a", "a"]}, r"variants\[1\]: 'a' or its model is named twice"),
        ({"variants": ["a", {"name": "b", "model": "a"}]}, r"variants\[1\]: 'b' or its model is named twice"),
        ({"variants": [{"name": "a", "model": "../x"}]}, r"variants\[0\]: model name '../x' is impossible"),
        ({"variants": [3]}, r"variants\[0\]: a model's name is expected"),
        ({"variants": [{"accuracy": 1}]}, r"variants\[0\] must be a model's name"),
        ({"variants": [{"name": "a", "accuracy": 1.5}]}, r"variants\[0\].accuracy must be a fraction"),
        ({"objective_seconds": None}, "objective_seconds must be a number of seconds"),
        ({"objective_seconds": True}, "objective_seconds must be a number of seconds"),
        ({"objective_seconds": 0}, "objective_seconds must be a number of seconds"),
        ({"utility": "hard"}, "utility must be one of deadline, soft, linear"),
        ({"utility": ["soft"]}, "utility must be one of deadline, soft, linear"),
        ({"steepness": -1}, "steepness must be a number above 0"),
        ({"scheduler": "best"}, "scheduler must be one of heuristic, table, aimd, static"),
        ({"scheduler": {}}, "scheduler must be one of heuristic"),
        ({"static_variant": "small"}, "static_variant must be one of the variants, and scheduler must be static"),
        ({"variant": "small"}, "field 'variant' is unknown"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ArtefactRefusedError, match=message):
        configuration.checked(GOOD | change)


def test_a_folder_without_a_configuration_is_no_endpoint(tmp_path: Path) -> None:
    assert configuration.read(tmp_path) is None
    assert configuration.read(tmp_path / "none") is None


def test_a_folder_is_a_models_or_an_endpoints(tmp_path: Path) -> None:
    (tmp_path / "variants.json").write_text(json.dumps(GOOD))
    assert configuration.read(tmp_path) == configuration.checked(GOOD)
    (tmp_path / "1").mkdir()
    with pytest.raises(ArtefactRefusedError, match="it lies beside versions"):
        configuration.read(tmp_path)


@pytest.mark.parametrize(("content", "message"), [("{", "is not JSON"), ("[]", "must hold a JSON object")])
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "variants.json").write_text(content)
    with pytest.raises(ArtefactRefusedError, match=message):
        configuration.read(tmp_path)
