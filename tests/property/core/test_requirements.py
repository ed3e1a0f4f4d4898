"""Whatever is taken for a requirement asks for a package by its name, and for nothing else."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from tiercel.core.errors import InvalidSpecError
from tiercel.core.requirements import validate_line

PIECES = st.sampled_from(
    [
        *("alpha", "beta.x", "[x]", ">=1", "==", "1.0", ",", "<2", ";", "python_version<'4'", " ", " --hash=sha256:0f"),
        *("--", "-e", "@", "https://x/y", "--index-url", "=", "#", "\\", "\n", "./a", "(", ")", "\0", "é"),
    ]
)


@given(st.lists(PIECES, max_size=8).map("".join) | st.text(max_size=30))
def test_no_option_path_or_address_passes_for_one(line: str) -> None:
    try:
        validate_line(line)
    except InvalidSpecError:
        return
    rest = re.sub(r"\s+--hash=sha(256|384|512):[0-9a-f]+", "", line)
    assert re.match(r"[A-Za-z0-9]", line)
    assert "--" not in rest.partition(";")[2]
    assert not re.search(r"\s-", rest.partition(";")[0])
    assert not set(line) & set("@#\\\n\r\0")
    assert "/" not in rest.partition(";")[0]
