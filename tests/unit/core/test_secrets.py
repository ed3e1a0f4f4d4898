"""What may be kept as a secret."""

from __future__ import annotations

import pytest

from tiercel.core.errors import InvalidSpecError
from tiercel.core.secrets import MAX_VALUE_BYTES, SealedSecret, validate_secret


@pytest.mark.parametrize("value", ["x", "é" * (MAX_VALUE_BYTES // 2), "two\nlines"])
def test_takes_text_within_the_bound(value: str) -> None:
    validate_secret("WANDB_KEY", value)


@pytest.mark.parametrize(
    ("name", "value", "field"),
    [
        ("WANDB-KEY", "hunter2", "name"),
        ("TIERCEL_TOKEN", "hunter2", "name.TIERCEL_TOKEN"),
        ("KEY", "", "value"),
        ("KEY", "hunter2" * MAX_VALUE_BYTES, "value"),
        ("KEY", "hunter2\0", "value"),
    ],
)
def test_refuses_the_rest_and_says_nothing_of_the_value(name: str, value: str, field: str) -> None:
    with pytest.raises(InvalidSpecError) as caught:
        validate_secret(name, value)
    assert caught.value.field == field
    assert "hunter2" not in caught.value.message


def test_what_is_stored_does_not_show_what_is_sealed() -> None:
    assert "hunter2" not in repr(SealedSecret("ada", "KEY", 1.0, b"hunter2"))
