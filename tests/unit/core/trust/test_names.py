"""Names by which the operator lets others call a node."""

from __future__ import annotations

import pytest

from tiercel.core.errors import InvalidSpecError
from tiercel.core.trust.names import MOST_LISTEN_NAMES, MOST_NAME_CHARACTERS, check_listen_names


def test_names_are_told_in_small_letters_and_once() -> None:
    assert check_listen_names(["GPU1.Lab.example", "a", "xn--bcher-kva.example", "gpu1.lab.example"]) == (
        "gpu1.lab.example",
        "a",
        "xn--bcher-kva.example",
    )
    assert check_listen_names(f"n{each}" for each in range(MOST_LISTEN_NAMES)) != ()


@pytest.mark.parametrize(
    "name",
    [
        *("", "*", "*.example", "a b", "a,b", "a\nb", "a\n", "a.", ".a", "a..b", "-a", "a-", "a_b", "bücher.example"),
        *("10.0.0.5", "10.5", "5", "::1", "a:80", "https://a", "x" * 64, "a." * 50 + "aa"),
        *("localhost", "x.localhost", "broker.tiercel.internal", "n2.node.tiercel.internal", "TIERCEL.internal"),
    ],
)
def test_what_is_no_name_or_stands_for_others_is_refused(name: str) -> None:
    assert len(name) <= MOST_NAME_CHARACTERS + 2
    with pytest.raises(InvalidSpecError, match=r"^listen_names: ") as raised:
        check_listen_names([name])
    assert len(str(raised.value)) < 400


def test_more_names_than_a_node_has_are_refused_unread() -> None:
    endless = (f"n{each}" for each in iter(int, 1) if not each)
    with pytest.raises(InvalidSpecError, match="at most 8 names"):
        check_listen_names(f"{name}{number}" for number, name in enumerate(endless))
