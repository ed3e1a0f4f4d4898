"""What ``up`` says of packages that are missing."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import tomllib
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from tiercel.broker.cli.up import packages
from tiercel.broker.cli.up.packages import SERVING, TRAINING, check_packages
from tiercel.core.errors import UnavailableError

PROJECT = Path(__file__).parents[4] / "pyproject.toml"


@pytest.fixture
def lacking(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Packages that are not to be found."""
    names: set[str] = set()

    def find(name: str) -> ModuleSpec | None:
        return None if name in names else importlib.util.find_spec(name)

    monkeypatch.setattr(packages, "find_spec", find)
    return names


def test_up_without_what_the_inference_server_needs_names_the_command(lacking: set[str]) -> None:
    lacking |= {"uvloop", "httptools"}
    with pytest.raises(UnavailableError, match=r"\(httptools, uvloop\).*pip install 'tiercel\[serve\]'"):
        check_packages((), print)


@pytest.mark.parametrize(("runtimes", "told"), [((), 1), (("process",), 1), (("docker",), 0)])
def test_up_without_torch_says_what_scripts_will_not_find(
    lacking: set[str], runtimes: tuple[str, ...], told: int
) -> None:
    lacking.add("torch")
    sentences: list[str] = []
    check_packages(runtimes, sentences.append)
    assert len(sentences) == told
    assert all("not find torch;" in sentence and "pip install 'tiercel[train]'" in sentence for sentence in sentences)


def test_up_with_everything_says_nothing(lacking: set[str]) -> None:
    check_packages((), pytest.fail)


@pytest.mark.parametrize(("extra", "names"), [("serve", SERVING), ("train", TRAINING)])
def test_the_packages_are_those_of_the_extra(extra: str, names: tuple[str, ...]) -> None:
    wanted = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"][extra]
    asked = {_plain(requirement.split(">")[0]) for requirement in wanted}
    distributions = importlib.metadata.packages_distributions()
    assert asked == {_plain(next(d for d in distributions[name] if _plain(d) in asked)) for name in names}


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", "-")
