"""What stores say when something is wrong, in one place, so that all of them say the same."""

from __future__ import annotations

from tiercel.broker.domain.errors import InvalidSpecError, UnavailableError


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
    """An operation failed or took too long."""
    return UnavailableError(f"The broker's database {where} does not answer: {cause}. Nothing was changed; try again.")


def unreadable(where: str, what: str, cause: str) -> UnavailableError:
    """Something stored cannot be read back."""
    return UnavailableError(
        f"The broker's database {where} holds a damaged entry in {what}: {cause}. Restore it from a copy."
    )
