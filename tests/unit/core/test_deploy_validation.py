"""What may be said of the cheap variants of a file that is deployed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tiercel.core.cheap_variants import CHEAP, CheapVariant, VariantKind
from tiercel.core.checkpoints import Artefact
from tiercel.core.deploy_validation import validate_deploy
from tiercel.core.deploying import VARIANT_MORE_BYTES, Deploy
from tiercel.core.errors import InvalidSpecError

SHA256 = "ab" * 32
MADE = tuple(CheapVariant(kind, made="dynamic", value=0.9, size_bytes=50, sha256=SHA256) for kind in CHEAP)
DEPLOY = Deploy("digits", "model.onnx", Artefact(SHA256, 100), "accuracy", 0.9, cheap_variants=MADE)


def test_files_of_those_that_were_made_come_with_it() -> None:
    validate_deploy(DEPLOY)
    assert DEPLOY.variant_files == {kind.file: Artefact(SHA256, 50) for kind in CHEAP}
    refused = replace(DEPLOY, cheap_variants=(CheapVariant(VariantKind.FP16, reason="it has no weights"),))
    validate_deploy(refused)
    assert refused.variant_files == {}
    with pytest.raises(InvalidSpecError, match=r"^cheap_variants: need an accuracy"):
        validate_deploy(replace(DEPLOY, metric="", value=None))


@pytest.mark.parametrize(
    ("variants", "why"),
    [
        ((MADE[0], MADE[0]), "give each once"),
        ((replace(MADE[0], kind=VariantKind.FP32),), "give each once"),
        ((replace(MADE[0], size_bytes=100 + VARIANT_MORE_BYTES + 1),), "bytes"),
        ((replace(MADE[0], size_bytes=0),), "bytes"),
        ((replace(MADE[0], sha256=""),), "SHA-256"),
    ],
)
def test_what_cannot_be_is_refused(variants: tuple[CheapVariant, ...], why: str) -> None:
    with pytest.raises(InvalidSpecError, match=f"^cheap_variants: .*{why}"):
        validate_deploy(replace(DEPLOY, cheap_variants=variants))
