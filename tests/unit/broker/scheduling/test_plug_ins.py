"""Policies that other packages ship, found by what is installed."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tiercel.broker.scheduling.fair import FairPolicy
from tiercel.broker.scheduling.registry import BUILT_IN, GROUP, create_policy, policy_names
from tiercel.broker.simulation import simulate
from tiercel.broker.simulation.presets import mixed_jobs
from tiercel.core.errors import InvalidSpecError

REPOSITORY = Path(__file__).resolve().parents[4]
PLAIN = """
class Policy:
    name = "{name}"

    def initial_state(self):
        return None

    def plan(self, snapshot, state):
        raise NotImplementedError
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a package as installers do: a module, and what it says of itself."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def installed(package: str, code: str, *policies: str, reference: str = "Policy") -> None:
        module = f"{package}_of_test"
        monkeypatch.delitem(sys.modules, module, raising=False)
        importlib.invalidate_caches()
        (tmp_path / f"{module}.py").write_text(code)
        told = tmp_path / f"{package}-1.2.dist-info"
        told.mkdir()
        (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
        lines = [f"{name} = {module}:{reference}" for name in policies]
        (told / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines]) + "\n")

    return installed


def refusal_of(name: str, **options: float) -> str:
    with pytest.raises(InvalidSpecError) as caught:
        create_policy(name, options)
    return caught.value.message


def test_built_in_policies_are_registered_as_all_others_are() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert project["entry-points"][GROUP] == dict(BUILT_IN)
    assert set(BUILT_IN) <= set(policy_names())


def test_the_policy_of_the_document_works_as_it_stands_there(install: Install) -> None:
    text = (REPOSITORY / "docs" / "policies.md").read_text()
    code, _ = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(code.splitlines()) <= 40
    install("acme", code, "newest-first", reference="NewestFirst")

    result = simulate(mixed_jobs(8, 2), "newest-first", seed=1, options={"floor": "0.2"})

    assert (result.policy, len(result.jobs)) == ("newest-first", 8)
    assert "newest-first" in policy_names()
    assert "floor must be between 0 and 1" in refusal_of("newest-first", floor=2.0)
    assert "its options: floor" in refusal_of("newest-first", ceiling=1.0)


def test_a_policy_without_settings_has_no_options(install: Install) -> None:
    install("acme", PLAIN.format(name="plain"), "plain")
    assert create_policy("plain").name == "plain"
    assert "its options: none" in refusal_of("plain", floor=0.5)


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
        ("def broken(:", "SyntaxError"),
        ("import a_module_that_is_not_there", "ModuleNotFoundError"),
        ("", "AttributeError"),
        ("Policy = 3", "TypeError"),
        (PLAIN.format(name="other"), "it calls itself 'other'"),
        (PLAIN.format(name="broken").replace("plan", "decide"), "AttributeError"),
        (PLAIN.format(name="broken").replace("return None", "raise KeyError('state')"), "KeyError: 'state'"),
    ],
)
def test_a_broken_package_is_named_and_hurts_nobody_else(install: Install, code: str, problem: str) -> None:
    install("acme", code, "broken")
    install("good", PLAIN.format(name="good"), "good")

    message = refusal_of("broken")

    assert message.startswith("Policy 'broken' of package acme 1.2 cannot be used: ")
    assert problem in message
    assert create_policy("good").name == "good"
    assert isinstance(create_policy("fair"), FairPolicy)
    assert {"broken", "good", "fair"} <= set(policy_names())


def test_what_a_package_says_of_itself_may_be_unreadable(install: Install, tmp_path: Path) -> None:
    install("acme", "", "lost")
    (tmp_path / "acme-1.2.dist-info" / "entry_points.txt").write_bytes(b"\xff\xfe\x00")
    install("good", PLAIN.format(name="good"), "good")

    assert "lost" not in policy_names()
    assert create_policy("good").name == "good"
    assert "choose one of dqoes, fair" in refusal_of("lost")


def test_names_of_built_in_policies_cannot_be_taken(install: Install) -> None:
    install("acme", "raise SystemExit('imported')", *BUILT_IN)
    assert isinstance(create_policy("fair"), FairPolicy)
    assert policy_names().count("fair") == 1


def test_a_name_that_two_packages_use_is_refused_with_both(install: Install) -> None:
    install("acme", PLAIN.format(name="same"), "same", "acmes")
    install("umbrella", PLAIN.format(name="same"), "same")
    assert refusal_of("same") == "Policy 'same' is shipped by acme 1.2 and umbrella 1.2; uninstall all but one of them."


def test_a_package_that_is_found_twice_counts_once(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("acme", PLAIN.format(name="same"), "same")
    again = tmp_path / "again" / "acme-0.9.dist-info"
    again.mkdir(parents=True)
    for name in ("METADATA", "entry_points.txt"):
        (again / name).write_text((tmp_path / "acme-1.2.dist-info" / name).read_text())
    monkeypatch.setattr(sys, "path", [*sys.path, str(again.parent)])
    assert create_policy("same").name == "same"


def test_nothing_is_imported_that_was_not_asked_for(install: Install, tmp_path: Path) -> None:
    install("acme", "print('imported')", "loud")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from tiercel.broker.scheduling.registry import create_policy, policy_names\n"
        "assert 'loud' in policy_names()\n"
        "create_policy('fair')\n"
        "print([name for name in sys.modules if name.endswith(('utility.policy', 'tradl.policy', '_of_test'))])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
