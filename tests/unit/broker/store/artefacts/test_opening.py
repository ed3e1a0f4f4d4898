"""Which artefact store a URL names, and what is said of one that names none."""

from __future__ import annotations

import pytest

from tiercel.broker.store.artefacts.opening import open_artefacts
from tiercel.core.errors import InvalidSpecError


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("/mnt/other/tiercel", "/mnt/other/tiercel"),
        ("file:///mnt/the%20other", "/mnt/the other"),
        ("s3://lab-data/tiercel/one/", "s3://lab-data/tiercel/one"),
        ("s3://lab-data", "s3://lab-data"),
    ],
)
async def test_a_url_names_a_place(url: str, where: str) -> None:
    artefacts = open_artefacts(url)
    assert artefacts.where == where
    await artefacts.close()


@pytest.mark.parametrize(
    "url",
    [
        *("tiercel", "", "./folder", "s3://", "s3:///prefix", "s3://UPPER/x", "s3://lab data", "gs://lab/x"),
        *("s3://lab/a//x", "s3://lab/../x", "s3://lab/x?y=1", "s3://[", "s3://lab/" + "x" * 513),
        *("http://lab/x", "file://host/x", "file:relative"),
    ],
)
def test_what_names_no_place_is_refused(url: str) -> None:
    with pytest.raises(InvalidSpecError, match="artefacts: is neither s3://BUCKET/PREFIX nor"):
        open_artefacts(url)


def test_credentials_in_a_url_are_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidSpecError, match="into the environment") as caught:
        open_artefacts("s3://key:not-to-be-told@lab/x")
    assert "told" not in caught.value.message
