"""The versions of an endpoint in the registry of the real MLflow: once each, whoever registers them, as they are."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tiercel import InvalidSpecError
from tiercel.broker.client.sinks.opening import open_registry, open_sink
from tiercel.broker.client.sinks.registering import Registry
from tiercel.core.endpoint_views import VersionInfo
from tiercel.core.errors import SetupError, TiercelError

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

pytestmark = pytest.mark.filterwarnings("ignore")  # MLflow's own, of the packages that it uses
AT = datetime(2026, 11, 27, tzinfo=UTC)


def version(number: int, **more: Any) -> VersionInfo:
    known: dict[str, Any] = {"sha256": f"{number:064x}", "kept": True, "endpoint": "digits", "target": 0.9}
    return VersionInfo(number, "j1", 1, "accuracy", 0.93, AT, **(known | more))


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/mlflow.db"


def client_of(uri: str) -> MlflowClient:
    # Here, where one worker pays for it, and not where all of them collect the tests.
    from mlflow.tracking import MlflowClient

    return MlflowClient(tracking_uri=uri, registry_uri=uri)


def there(uri: str, name: str = "digits") -> dict[str, dict[str, str]]:
    """Tags of each model version by its number; without what never changes."""
    found = client_of(uri).search_model_versions(f"name = '{name}'")
    return {str(each.version): dict(each.tags) for each in sorted(found, key=lambda each: int(each.version))}


def aliases(uri: str, name: str = "digits") -> dict[str, str]:
    return {alias: str(number) for alias, number in client_of(uri).get_registered_model(name).aliases.items()}


def test_each_version_that_answers_is_registered_once_and_says_what_became_of_it(uri: str) -> None:
    first = version(1, live=True)
    assert open_registry(f"mlflow:{uri}").register("digits", [first, version(2, held="it is worse")]) == 1
    (tags,) = there(uri).values()
    assert tags["tiercel.state"] == "live"
    assert (tags["tiercel.value"], tags["tiercel.promised"], tags["tiercel.tier"]) == ("0.93", "0.9", "1")
    registry = open_registry(f"mlflow:{uri}")
    assert registry.register("digits", [version(3, live=True, pinned=True), version(1)]) == 1
    assert [tags["tiercel.state"] for tags in there(uri).values()] == ["kept", "pinned"]
    assert aliases(uri) == {"live": "2"}
    assert registry.register("digits", [version(3), version(1, kept=False)]) == 0
    assert [tags["tiercel.state"] for tags in there(uri).values()] == ["archived", "kept"]
    assert aliases(uri) == {}, "nothing answers"
    assert registry.register("digits", []) == 0
    (source,) = {
        each.source
        for each in client_of(uri).search_model_versions("name = 'digits'")
        if each.tags["tiercel.version"] == "3"
    }
    assert source == "tiercel:digits/3"


def test_two_that_register_at_once_leave_one_of_each_and_what_others_put_there_alone(uri: str) -> None:
    client = client_of(uri)
    client.create_registered_model("digits")
    client.create_model_version("digits", "s3://theirs")
    client.set_registered_model_alias("digits", "champion", "1")
    versions = [version(number, live=number == 4) for number in range(1, 5)]
    registries = [open_registry(f"mlflow:{uri}") for _ in range(2)]

    def register(registry: Registry) -> None:
        with suppress(TiercelError):  # on a busy machine SQLite may not let two write, and says so
            registry.register("digits", versions)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(register, registries))
    registries[0].register("digits", versions)
    ours = [tags["tiercel.version"] for tags in there(uri).values() if tags]
    assert sorted(ours) == ["1", "2", "3", "4"]
    assert aliases(uri)["champion"] == "1"
    # Another broker's version of the same number is another model.
    assert registries[1].register("digits", [version(4, live=True, sha256="ab" * 32)]) == 1


def test_names_that_mlflow_does_not_take_and_variants_are_registered_too(uri: str) -> None:
    registry = open_registry(f"mlflow:{uri}")
    both = [version(1, live=True, variant="small"), version(2, live=True, variant="large")]
    registry.register("it's a/b:c", both)
    assert aliases(uri, "it_s a_b_c") == {"live-small": "1", "live-large": "2"}


def test_a_server_that_is_away_or_silent_is_told_of_soon_and_without_the_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        for port in (9, silent.getsockname()[1]):
            begin = time.monotonic()
            with pytest.raises(TiercelError, match="MLflow takes nothing") as raised:
                open_registry(f"mlflow:http://alice:hunter%212@127.0.0.1:{port}").register("digits", [version(1)])
            assert time.monotonic() - begin < 90
            assert not {"alice:", "hunter"} & set(str(raised.value).replace("hunter", " hunter ").split())
            assert "hunter" not in repr(raised.value)
            assert raised.value.__cause__ is None


def test_a_database_that_cannot_be_opened_or_lacks_its_package_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "folder.db").mkdir()
    with pytest.raises(TiercelError, match="MLflow takes nothing"):
        open_registry(f"mlflow:sqlite:///{tmp_path}/folder.db").register("digits", [version(1)])
    with pytest.raises((SetupError, TiercelError)) as raised:
        open_sink("mlflow:mysql+nosuchdriver://bob:s3cret@127.0.0.1:9/db").begin(None)  # type: ignore[arg-type]
    assert "s3cret" not in str(raised.value)


def test_what_is_no_registry_is_said_without_what_it_is() -> None:
    for text in ("tensorboard:x", "mlflow:", "http://alice:hunter2@host"):
        with pytest.raises(InvalidSpecError, match="to: ") as raised:
            open_registry(text)
        assert "hunter2" not in str(raised.value)
