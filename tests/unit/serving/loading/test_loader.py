from __future__ import annotations

from pathlib import Path

import pytest

from testing import onnx_models
from tiercel.serving.loading.loader import BuildOptions, Loader, Replaced
from tiercel.serving.models.repository import Artefact, artefact
from tiercel.serving.runtime.artefact_file import SealedFile
from tiercel.serving.runtime.engine import Session
from tiercel.serving.runtime.measure import Batching
from tiercel.serving.runtime.profile import LatencyProfile
from tiercel.serving.verification.verdict import Verdict

MEGABYTE = 1024**2
MEASURED = Batching(LatencyProfile((1, 2), (1e-3, 1.5e-3)), "", 4)


class Trusting:
    """Passes everything, and keeps what it was told of the version before."""

    def __init__(self) -> None:
        self.known: list[Batching | None] = []

    async def verify(self, artefact: Artefact, model: SealedFile, batch_rows: int, known: Batching | None) -> Verdict:
        self.known.append(known)
        return Verdict()


@pytest.fixture
def live() -> Session:
    session = Session(onnx_models.plus(1.0))
    session.batch_by(MEASURED, 0.0)
    return session


@pytest.fixture
def stored(tmp_path: Path) -> Artefact:
    onnx_models.put(tmp_path, "m", 2, onnx_models.plus(2.0))
    return artefact(tmp_path, "m", 2)


@pytest.mark.parametrize(
    ("max_batch_rows", "threads", "known"), [(8, 1, MEASURED), (1, 1, None), (8, 2, None)],
    ids=["batches", "no batches", "checks run it on another number of threads"],
)  # fmt: skip
async def test_a_check_is_told_what_was_measured_of_the_version_before_where_it_measures_alike(
    stored: Artefact, live: Session, max_batch_rows: int, threads: int, known: Batching | None
) -> None:
    verifier = Trusting()
    loader = Loader(verifier, BuildOptions(threads, 0.0, MEGABYTE, max_batch_rows))
    await loader.session(stored, Replaced(live))
    loader.close()
    assert verifier.known == [known]


async def test_a_check_is_told_nothing_where_nothing_was_measured(stored: Artefact) -> None:
    verifier = Trusting()
    loader = Loader(verifier, BuildOptions(1, 0.0, MEGABYTE, 8))
    await loader.session(stored)
    await loader.session(stored, Replaced(Session(onnx_models.plus(1.0))))
    loader.close()
    assert verifier.known == [None, None]
