"""Packages that a spec asks for, from the files that people have."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from testing.wheels import write_wheel
from tiercel.broker.client import spec_requirements
from tiercel.broker.client.spec_file import load_spec
from tiercel.broker.client.spec_requirements import MAX_FILE_BYTES, read_requirements
from tiercel.core.errors import InvalidSpecError
from tiercel.core.uv_program import find_uv
from tiercel.core.validation import validate_spec

ROOT = Path(__file__).resolve().parents[4]

TEXT = """# what it needs
lightning >= 2.5   # to train

numpy>=2, \\
  <3
pkg==1.0 --hash=sha256:00 \\
    --hash=sha256:11
"""
LINES = ("lightning >= 2.5", "numpy>=2, <3", "pkg==1.0 --hash=sha256:00 --hash=sha256:11")
SPEC = "endpoint: e\nmodule: m\nmetric: accuracy\ntiers: [0.9]\nrequirements: {}\n"


def test_a_requirements_file_beside_the_spec(tmp_path: Path) -> None:
    (tmp_path / "needs.txt").write_text(TEXT)
    (tmp_path / "job.yaml").write_text(SPEC.format("needs.txt"))
    assert load_spec(tmp_path / "job.yaml").requirements == LINES


def test_packages_in_the_spec_itself(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(SPEC.format("[lightning, 'numpy>=2']"))
    assert load_spec(tmp_path / "job.yaml").requirements == ("lightning", "numpy>=2")


def test_the_dependencies_of_a_project(tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text("[project]\ndependencies = ['lightning >= 2.5', \"torch; sys_platform == 'linux'\"]\n")
    assert read_requirements(file) == ("lightning >= 2.5", "torch; sys_platform == 'linux'")


def test_a_lock_is_read_by_uv_and_pins_everything(tmp_path: Path) -> None:
    uv = find_uv()
    if uv is None:
        pytest.skip("uv is not installed")
    write_wheel(tmp_path / "wheels", "alpha", requires=["beta; sys_platform != 'win32'"])
    write_wheel(tmp_path / "wheels", "beta", "1.5")
    write_wheel(tmp_path / "wheels", "only_for_developers")
    (tmp_path / "pyproject.toml").write_text(
        "[project]\nname = 'mine'\nversion = '1'\nrequires-python = '>=3.11'\ndependencies = ['alpha']\n"
        "[dependency-groups]\ndev = ['only-for-developers']\n"
    )
    command = [uv, "lock", "--no-index", "--offline", "--find-links", str(tmp_path / "wheels"), "--project"]
    subprocess.run([*command, str(tmp_path)], check=True, capture_output=True, timeout=60)
    assert read_requirements(tmp_path / "uv.lock") == ("alpha==1.0", "beta==1.5 ; sys_platform != 'win32'")


def test_a_lock_without_uv_says_what_else_can_be_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "uv.lock").write_text("version = 1\n")
    monkeypatch.setattr(spec_requirements, "find_uv", lambda: None)
    with pytest.raises(InvalidSpecError, match="install tiercel\\[envs\\], or write the file with 'uv export"):
        read_requirements(tmp_path / "uv.lock")
    monkeypatch.setattr(spec_requirements, "find_uv", lambda: shutil.which("false"))
    with pytest.raises(InvalidSpecError, match="cannot be read by uv"):
        read_requirements(tmp_path / "uv.lock")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("r.txt", b"\xff", "is not text"),
        ("r.txt", b"# nothing\n", "asks for no package"),
        ("r.txt", b"#" * (MAX_FILE_BYTES + 1), "more than 1048576 bytes"),
        ("r.txt", b"-r other.txt", "'-r other.txt' is not a package"),
        ("r.txt", b"a @ git+https://nobody", "is not a package"),
        ("pyproject.toml", b"[project", "is not TOML"),
        ("pyproject.toml", b"[tool]\n", "has no list of dependencies"),
        ("pyproject.toml", b"[project]\ndependencies = 'a'\n", "has no list of dependencies"),
        ("pyproject.toml", b"project = 1\n", "has no list of dependencies"),
        ("pyproject.toml", b"[project]\ndependencies = ['a @ file:///a']\n", "is not a package"),
    ],
)
def test_what_cannot_be_read_is_one_clear_error(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidSpecError, match=f"^requirements: .*{message}"):
        read_requirements(tmp_path / name)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpecError, match=r"nowhere\.txt cannot be read"):
        read_requirements(tmp_path / "nowhere.txt")


def test_what_the_document_shows_is_taken_as_it_stands_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HOME", "WANDB_PROJECT"):
        monkeypatch.setenv(name, "x")
    (tmp_path / "requirements.txt").write_text(TEXT)
    examples = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "environments.md").read_text(), re.DOTALL)
    assert len(examples) == 6
    for example in examples:
        (tmp_path / "job.yaml").write_text(SPEC.removesuffix("requirements: {}\n") + example)
        spec = load_spec(tmp_path / "job.yaml")
        validate_spec(spec)
        assert spec.requirements or spec.env or spec.secrets
