"""MLflow itself: a client of it that gives up in bounded time, and what it says without anybody's password."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from sqlalchemy import create_engine, make_url
from sqlalchemy.exc import SQLAlchemyError

from tiercel.core.errors import SetupError, TiercelError

# MLflow's own would wait for a server that is away for four minutes, with each call.
_PATIENCE = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
}
_MOST_CHARACTERS = 300
_DATABASES = {"sqlite", "postgresql", "mysql", "mssql"}


class MlflowServer:
    """A tracking server or a database, and the registry of models beside it.

    Args:
        uri: As ``MLFLOW_TRACKING_URI`` has it, such as ``http://HOST:5000`` or ``sqlite:///mlflow.db``. Variables that
            say how long MLflow waits (``MLFLOW_HTTP_REQUEST_...``) hold where they are set.

    Raises:
        SetupError: What a database needs is not installed.
        TiercelError: It cannot be reached.
    """

    def __init__(self, uri: str) -> None:
        for name, value in _PATIENCE.items():
            os.environ.setdefault(name, value)
        self._secrets = _secrets(uri)
        with self.refusals():
            _check_database(uri)
            self.client = MlflowClient(tracking_uri=uri, registry_uri=uri)

    @contextmanager
    def refusals(self) -> Iterator[None]:
        """Whatever MLflow raises becomes an error that a user can read."""
        try:
            yield
        except (MlflowException, SQLAlchemyError, OSError) as error:
            raise TiercelError(self._words(error)) from None  # its cause has the address, and what is in it
        except ImportError as error:
            raise SetupError(f"MLflow needs {error.name} for that database; run: pip install {error.name}") from None

    def _words(self, error: Exception) -> str:
        told = " ".join(str(error).split())
        for secret in self._secrets:
            told = told.replace(secret, "***")
        return f"MLflow takes nothing: {told[:_MOST_CHARACTERS]}; begin again to go on from there"


def _check_database(uri: str) -> None:
    """Raise what is wrong with a database at once: MLflow would try for minutes whether it gets better."""
    url = make_url(uri) if urlsplit(uri).scheme.partition("+")[0] in _DATABASES else None
    is_new_file = url is not None and url.database is not None and not Path(url.database).parent.exists()
    if url is None or (url.get_backend_name() == "sqlite" and is_new_file):  # whose folder MLflow makes
        return
    engine = create_engine(url)
    try:
        with engine.connect():
            pass
    finally:
        engine.dispose()


def _secrets(uri: str) -> tuple[str, ...]:
    """Who asks and with what password, as an address has them; the longest first, since one may be within another."""
    before, at, _ = urlsplit(uri).netloc.rpartition("@")
    if not at:
        return ()
    password = before.partition(":")[2]
    found = {before, unquote(before), password, unquote(password)} - {""}
    return tuple(sorted(found, key=len, reverse=True))
