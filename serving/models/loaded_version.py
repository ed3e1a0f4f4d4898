"""A version that is loaded: its session, and who is using it."""

from __future__ import annotations

import asyncio

from tiercel.core.cheap_variants import VariantKind
from tiercel.serving.accounting.accounts import Account
from tiercel.serving.accounting.model_statistics import ModelStatistics
from tiercel.serving.requests import Checked
from tiercel.serving.runtime.engine import Session


class LoadedVersion:
    """A session and the requests that are using it.

    Args:
        account: The model's; one of its own when none is given.
        statistics: The version's, if it has been live before.

    Attributes:
        cheap: Its cheap variants, which answer beside it, are retired with it, and count in its statistics.
    """

    __slots__ = (
        "_drained",
        "_retired",
        "_session",
        "account",
        "accuracy",
        "cheap",
        "checked",
        "in_flight",
        "labels",
        "model",
        "outputs",
        "parameters",
        "sha256",
        "statistics",
        "version",
        "version_text",
    )

    def __init__(
        self,
        model: str,
        version: int,
        session: Session,
        account: Account | None = None,
        statistics: ModelStatistics | None = None,
    ) -> None:
        self.account = account if account is not None else Account(model)
        self.model = model
        self.version = version
        self.version_text = str(version)
        self.statistics = statistics if statistics is not None else ModelStatistics()
        self.in_flight = 0
        self.cheap: dict[VariantKind, LoadedVersion] = {}
        self.checked: dict[object, Checked] = {}  # by template; filled by the data plane
        self.labels = session.labels
        self.accuracy = session.accuracy
        self.sha256 = session.sha256
        # What each of its answers says beside the outputs; one for all, so that none costs anything.
        self.parameters = None if session.accuracy is None else {"accuracy": session.accuracy}
        self.outputs = session.outputs  # also of use after the session is gone
        self._session: Session | None = session
        self._retired = False
        self._drained = asyncio.Event()

    @property
    def session(self) -> Session:
        """The session; there is one until :meth:`close`, which comes after the last request."""
        if self._session is None:
            raise RuntimeError(f"version {self.version} of '{self.model}' was used after it was released")
        return self._session

    @property
    def by_kind(self) -> dict[VariantKind, LoadedVersion]:
        """All that may answer for it, itself first."""
        return {VariantKind.FP32: self, **self.cheap}

    def acquire(self) -> None:
        """A request begins to use it."""
        self.in_flight += 1

    def release(self, requests: int = 1) -> None:
        """Requests ended."""
        self.in_flight -= requests
        if self._retired and self.in_flight == 0:
            self._drained.set()

    def retire(self) -> None:
        """No request will begin to use it any more."""
        for each in self.cheap.values():
            each.retire()
        self._retired = True
        if self.in_flight == 0:
            self._drained.set()

    async def wait_drained(self) -> None:
        """Wait until it is retired and the last request ended."""
        await self._drained.wait()

    def close(self) -> Session:
        """Let go of the session, so that nothing can run it any more; returns it for somebody to free."""
        session, self._session = self.session, None
        return session
