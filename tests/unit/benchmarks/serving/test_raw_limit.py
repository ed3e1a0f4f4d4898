from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.serving import cores, raw_limit
from benchmarks.serving.models import KINDS, Model
from benchmarks.serving.raw_limit import bars_of, run_raw_limit


def row(form: str, rate: float, cpu: float = 0.95) -> dict[str, Any]:
    return {"model": "resnet", "form": form, "rate_over_raw": rate, "raw_cpu_over_served": cpu}


def test_each_form_has_its_own_bars_from_the_median_of_its_rounds() -> None:
    bars = bars_of({"resnet": [row("binary", rate) for rate in (0.5, 0.96, 0.97)] + [row("json", 0.9)]})
    assert [(bar.name.split(",")[1].strip(" :")[:6], bar.holds) for bar in bars] == [
        ("binary", True),
        ("binary", True),
        ("json", False),
        ("json: ", True),
    ]


def test_each_run_is_held_against_the_raw_runs_before_and_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine slows down from 100 to 80 and 60 rows a second; what is served keeps pace with it."""
    speeds = iter((100.0, 80.0, 60.0))

    def raw(_: Model) -> list[dict[str, Any]]:
        speed = next(speeds)
        return [{"batch": batch, "rate": speed * part, "cpu_us": 1e6 / speed} for batch, part in ((1, 0.5), (8, 1.0))]

    served = iter((81.0, 63.0))
    monkeypatch.setattr(raw_limit, "_raw", raw)
    monkeypatch.setattr(raw_limit, "_served", lambda *_: {"rate": next(served), "cpu_us": 2e4})
    row = np.zeros((1, 3, 32, 32), np.float32)
    rows = run_raw_limit(Model(KINDS["resnet"], Path(), row, row), Path(), lambda _: None, rounds=1)
    assert [(each["form"], each["raw_batch"], each["raw_rate"]) for each in rows] == [
        ("binary", 8, 90.0),
        ("json", 8, 70.0),
    ]
    assert [each["rate_over_raw"] for each in rows] == [0.9, 0.9]


@pytest.mark.parametrize(("own", "others"), [({3, 5, 7}, {5, 7}), ({3}, {3})])
def test_the_server_starts_on_the_first_core_and_whoever_asks_it_stays_off(
    monkeypatch: pytest.MonkeyPatch, own: set[int], others: set[int]
) -> None:
    state = {"cores": own}
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: state["cores"])
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, wanted: state.update(cores=set(wanted)))
    seen: list[set[int]] = []

    @contextlib.contextmanager
    def start() -> Iterator[Any]:
        seen.append(state["cores"])
        yield None
        seen.append(state["cores"])

    with cores.apart(start()):
        seen.append(state["cores"])
    assert seen == [{3}, others, own]
    assert state["cores"] == own
