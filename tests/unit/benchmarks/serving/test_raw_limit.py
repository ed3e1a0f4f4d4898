from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.serving import cores
from benchmarks.serving.raw_limit import raw_limit_bars


def row(form: str, rate: float, cpu: float = 0.95) -> dict[str, Any]:
    return {"model": "resnet", "form": form, "rate_over_raw": rate, "raw_cpu_over_served": cpu}


def test_each_form_has_its_own_bars_from_the_median_of_its_rounds() -> None:
    bars = raw_limit_bars([row("binary", rate) for rate in (0.5, 0.96, 0.97)] + [row("json", 0.9)])
    assert [(bar.name.split(",")[1].strip(" :")[:6], bar.holds) for bar in bars] == [
        ("binary", True),
        ("binary", True),
        ("json", False),
        ("json: ", True),
    ]


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
