"""Where a page of a listing ended, as a token that callers hand back without looking into it."""

from __future__ import annotations

import base64
import binascii
import json
import math

from tiercel.core.errors import wrong_field

MAX_TOKEN_CHARACTERS = 256


def token_of(submitted_at: float, job_id: str) -> str:
    """The token of a page that ends with a job of this time and id."""
    return base64.urlsafe_b64encode(json.dumps([submitted_at, job_id]).encode()).decode()


def place_of(token: str) -> tuple[float, str] | None:
    """The time and id of the job that the page before ended with; None for the first page.

    Raises:
        InvalidSpecError: It is no such token.
    """
    if not token:
        return None
    try:
        submitted_at, job_id = json.loads(base64.urlsafe_b64decode(token[:MAX_TOKEN_CHARACTERS].encode()))
        place = (float(submitted_at), str(job_id))
    except (ValueError, TypeError, binascii.Error, RecursionError):
        place = (math.nan, "")
    if len(token) > MAX_TOKEN_CHARACTERS or not math.isfinite(place[0]):
        raise wrong_field("page_token", "is not one that this broker gave; leave it out to begin with the first page")
    return place
