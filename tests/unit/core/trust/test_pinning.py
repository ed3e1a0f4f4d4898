"""What whoever knows a broker by its pin is told when it is not there."""

from __future__ import annotations

import socket

import pytest

from tiercel.core.errors import UnavailableError
from tiercel.core.trust.pinning import shown_by


def test_where_nobody_answers_the_broker_may_be_elsewhere_or_down() -> None:
    with socket.socket() as mute:  # it holds its port, and does not listen
        mute.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(UnavailableError, match="is that the broker's address, and is the broker running there"):
            shown_by(address)
