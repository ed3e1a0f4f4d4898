"""The reference, made from the source: every command, field, call, topic, metric, setting and error.

Each comes with its description; what has none fails here, and is to be described where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tools.reference import channels, commands, contract, failures, numbers, python, settings

PAGES: Mapping[str, Callable[[], str]] = {
    "cli.md": commands.page,
    "sdk.md": python.page,
    "trainer.md": python.trainer_page,
    "protocols.md": contract.page,
    "http.md": channels.addresses_page,
    "metrics.md": numbers.page,
    "topics.md": channels.topics_page,
    "settings.md": settings.page,
    "errors.md": failures.page,
}
"""What makes each page, by the file that it becomes on the site."""

KEPT: Mapping[str, Callable[[], str]] = {"spec.md": settings.spec_page}
"""The same of pages that are kept in docs/, for those who read them there; :mod:`tools.site` writes them."""
