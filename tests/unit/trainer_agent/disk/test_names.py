"""Names that become parts of paths."""

from __future__ import annotations

import pytest

from tiercel.trainer_agent.disk.names import check_delivery, check_run, is_plain
from tiercel.trainer_agent.errors import DeliveryFailedError, RunFailedError


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../a", "-a", ".a", "a b", "a\n", "a\x00", "ä", "a" * 129])
def test_names_that_are_no_plain_file_names(name: str) -> None:
    assert not is_plain(name)
    with pytest.raises(RunFailedError, match="run id"):
        check_run(name, "job", "train.py")
    with pytest.raises(DeliveryFailedError):
        check_delivery(name, "endpoint")
    with pytest.raises(DeliveryFailedError):
        check_delivery("job-tier-1", name)


def test_plain_names() -> None:
    check_run("3f2a-1", "3f2a", "train.py")
    check_run("3f2a-1", "3f2a", "")
    check_delivery("3f2a-tier-1", "digits.v2_x-1")
    with pytest.raises(RunFailedError, match="script"):
        check_run("3f2a-1", "3f2a", "../train.py")
    with pytest.raises(DeliveryFailedError, match="lower-case"):
        check_delivery("3f2a-tier-1", "Digits")
