"""Which token a client shows: one that it was given, or whatever a file has just now, for those that are renewed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tiercel.core.errors import NotAuthenticatedError

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "TIERCEL_TOKEN"
FILE_VARIABLE = "TIERCEL_TOKEN_FILE"
MAX_FILE_BYTES = 16 * 1024


def given_token(environment: Mapping[str, str]) -> str | Path:
    """What the environment says: a token, which comes first, or the file of one; empty for neither."""
    if token := environment.get(VARIABLE, ""):
        return token
    path = environment.get(FILE_VARIABLE, "")
    return Path(path) if path else ""


class ShownToken:
    """A token that is read anew for each call where it stands in a file.

    Args:
        given: The token, or its file.
    """

    def __init__(self, given: str | Path) -> None:
        self._given = given

    def text(self) -> str:
        """As it is now.

        Raises:
            NotAuthenticatedError: There is none in the file.
        """
        return self._given if isinstance(self._given, str) else _read(self._given)

    def differs_from(self, shown: str) -> bool:
        """Whether it is another one by now than a call has shown, so that this is worth trying again."""
        try:
            return self.text() != shown
        except NotAuthenticatedError:
            return False


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise NotAuthenticatedError(f"{path} cannot be read ({error.strerror}); {FILE_VARIABLE} names it") from error
    text = content.decode(errors="replace").strip()
    if not text or len(content) > MAX_FILE_BYTES or not (text.isascii() and text.isprintable()):
        raise NotAuthenticatedError(f"{path} has no token, which is one line of letters; {FILE_VARIABLE} names it")
    return text
