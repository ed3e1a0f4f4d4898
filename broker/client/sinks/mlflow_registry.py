"""MLflow's registry of models: a model version for each version of an endpoint that answers or has answered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from mlflow.exceptions import MlflowException

from tiercel.broker.client.sinks.mlflow import name_of
from tiercel.broker.client.sinks.mlflow_server import MlflowServer
from tiercel.core.endpoint_views import VersionInfo

_VERSION, _SHA256, _STATE = "tiercel.version", "tiercel.sha256", "tiercel.state"
_LIVE = "live"
_VALUE_CHARACTERS = 500


class MlflowRegistry:
    """Keeps registered models as endpoints are. Doing it twice is doing it once, whoever does it.

    A version is found again by its number and its file's SHA-256, so that those of two brokers may stand in one
    registered model.

    Args:
        uri: See :class:`.MlflowServer`.
    """

    def __init__(self, uri: str) -> None:
        self._server = MlflowServer(uri)
        self._client = self._server.client

    def register(self, name: str, versions: Sequence[VersionInfo]) -> int:
        """Have a registered model say what versions there are.

        Args:
            name: Of the registered model; characters that MLflow does not take become ``_``.
            versions: All of an endpoint. Those that were never let answer are left out.

        Returns:
            How many model versions are new.
        """
        with self._server.refusals():
            return self._register(name_of(name), [each for each in versions if each.live or not each.held])

    def _register(self, name: str, versions: Sequence[VersionInfo]) -> int:
        with _unless("RESOURCE_ALREADY_EXISTS"):
            self._client.create_registered_model(name)
        known, new = self._known(name), 0
        for version in sorted(versions, key=lambda each: each.version):
            key, tags = (str(version.version), version.sha256), _tags(version)
            if key not in known:
                source = f"tiercel:{version.endpoint}/{version.version}"
                self._client.create_model_version(name, source, tags=tags)
                known, new = self._without_twins(name), new + 1
            number, before = known[key]
            for tag, value in tags.items():
                if before.get(tag) != value:
                    self._client.set_model_version_tag(name, number, tag, value)
        self._point(name, {_alias(each): known[str(each.version), each.sha256][0] for each in versions if each.live})
        return new

    def _known(self, name: str) -> dict[tuple[str, str], tuple[str, Mapping[str, str]]]:
        """Model versions of ours, the first of equal ones: number and tags by version and SHA-256."""
        return _first_of_equals(self._ours(name))

    def _without_twins(self, name: str) -> dict[tuple[str, str], tuple[str, Mapping[str, str]]]:
        """The same, after what somebody else registered at the same time as well went."""
        ours = self._ours(name)  # asked once: what comes meanwhile is for whoever registers it
        found = _first_of_equals(ours)
        for each in ours:
            if found[_key(each)][0] != str(each.version):
                with _unless("RESOURCE_DOES_NOT_EXIST"):  # the other one may have found the twin as well
                    self._client.delete_model_version(name, str(each.version))
        return found

    def _ours(self, name: str) -> list[Any]:
        found = self._client.search_model_versions(f"name = '{name}'")
        return sorted((each for each in found if _VERSION in each.tags), key=lambda each: int(each.version))

    def _point(self, name: str, wanted: Mapping[str, str]) -> None:
        """Have aliases of ours lead to what answers; one that nothing answers for goes."""
        there = {alias: str(number) for alias, number in self._client.get_registered_model(name).aliases.items()}
        for alias, number in wanted.items():
            if there.get(alias) != number:
                self._client.set_registered_model_alias(name, alias, number)
        for alias in there:
            if (alias == _LIVE or alias.startswith(f"{_LIVE}-")) and alias not in wanted:
                self._client.delete_registered_model_alias(name, alias)


def _first_of_equals(ours: Iterable[Any]) -> dict[tuple[str, str], tuple[str, Mapping[str, str]]]:
    found: dict[tuple[str, str], tuple[str, Mapping[str, str]]] = {}
    for each in ours:
        found.setdefault(_key(each), (str(each.version), dict(each.tags)))
    return found


@contextmanager
def _unless(code: str) -> Iterator[None]:
    """Do something that somebody else may have done already, which MLflow says by this code."""
    try:
        yield
    except MlflowException as error:
        if error.error_code != code:
            raise


def _key(version: Any) -> tuple[str, str]:
    return version.tags[_VERSION], version.tags.get(_SHA256, "")


def _alias(version: VersionInfo) -> str:
    return f"{_LIVE}-{version.variant}" if version.variant else _LIVE


def _tags(version: VersionInfo) -> dict[str, str]:
    state = ("pinned" if version.pinned else "live") if version.live else "kept" if version.kept else "archived"
    told = {
        _VERSION: version.version,
        _SHA256: version.sha256,
        _STATE: state,
        "tiercel.tier": version.tier or None,
        "tiercel.promised": version.target,
        "tiercel.metric": version.metric,
        "tiercel.value": version.value,
        "tiercel.variant": version.variant,
        "tiercel.job": version.job_id,
        "tiercel.deployed_by": version.deployed_by,
        "tiercel.delivered_at": version.delivered_at.isoformat(timespec="seconds"),
    }
    return {name: f"{value}"[:_VALUE_CHARACTERS] for name, value in told.items() if value not in (None, "")}
