"""What stores say when something is wrong, in one place, so that all of them say the same."""

from __future__ import annotations

from tiercel.broker.domain.errors import InvalidSpecError, TiercelError, UnavailableError


def not_open() -> UnavailableError:
    """Somebody uses a store before it was opened or after it was closed."""
    return UnavailableError("The broker's store is not open; the broker is starting or stopping, try again.")


def second_job_with_key() -> InvalidSpecError:
    """A second job came under an idempotency key that its tenant has used."""
    message = "Another job was submitted under this idempotency key; use a key of its own for each job."
    return InvalidSpecError(message, field="idempotency_key")


def cannot_open(where: str, cause: str) -> UnavailableError:
    """The database cannot be reached or made."""
    return UnavailableError(f"The broker's database {where} cannot be opened: {cause}.")


def no_answer(where: str, cause: str) -> UnavailableError:
    """An operation failed or took too long; one that writes may or may not have been carried out."""
    return UnavailableError(f"The broker's database {where} does not answer: {cause}. Try again.")


def refused(where: str, cause: str) -> TiercelError:
    """The database works but does not take this content; trying again would not help."""
    return TiercelError(f"The broker's database {where} refused what was to be saved: {cause}. Nothing was saved.")


def unreadable(where: str, what: str, cause: str) -> UnavailableError:
    """Something stored cannot be read back."""
    return UnavailableError(
        f"The broker's database {where} holds a damaged entry in {what}: {cause}. Restore it from a copy."
    )
