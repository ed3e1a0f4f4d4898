"""What artefact stores say when something is wrong, in one place, so that both kinds say the same."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from tiercel.core.errors import CannotWriteError, NotFoundError, StoreDamagedError, TiercelError, UnavailableError

if TYPE_CHECKING:
    from tiercel.core.checkpoints import Artefact


def no_answer(where: str, cause: str) -> UnavailableError:
    """It does not answer, or not in time."""
    return UnavailableError(f"the artefact store {where} does not answer ({cause}); it is tried again")


def refused(where: str, cause: str) -> UnavailableError:
    """It answers, and does not do what it is asked for."""
    return UnavailableError(f"the artefact store {where} refuses: {cause}; it is tried again")


def full(where: str, cause: str) -> CannotWriteError:
    """It has no room left."""
    return CannotWriteError(f"the artefact store {where} is full ({cause}); make room there, it is tried again")


def not_there(where: str, artefact: Artefact) -> NotFoundError:
    """It has nothing under that name."""
    return NotFoundError(f"the artefact store {where} does not have {artefact.sha256[:12]} any more")


def damaged(where: str, artefact: Artefact, how: str) -> StoreDamagedError:
    """It has something else under that name."""
    return StoreDamagedError(f"what the artefact store {where} has as {artefact.sha256[:12]} is damaged: {how}")


def not_as_said(artefact: Artefact, how: str) -> StoreDamagedError:
    """What was to be kept is not what was said."""
    return StoreDamagedError(f"{artefact.sha256[:12]} was not stored: {how}")


def of_disk(where: str, error: OSError) -> TiercelError:
    """What is said of a folder that cannot be used."""
    cause = error.strerror or type(error).__name__
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return full(where, cause)
    return no_answer(where, cause)
