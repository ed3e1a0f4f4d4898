"""A release is refused until all is ready, and then has the packages, with all in them and nothing else, and a tag."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath
from types import ModuleType

import pytest

REPOSITORY = Path(__file__).parents[2]
VERSION = "7.1.0"


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=Test", "-c", "user.email=test@localhost", *words]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=60).stdout


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with this one's files that package and release are made of, all committed, ready for a release."""
    folder = tmp_path_factory.mktemp("copy")
    for name in git(REPOSITORY, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"):
        path = REPOSITORY / name
        if name and path.exists() and not name.startswith(("benchmarks/", "docs/", "testing/", "tests/")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, folder / name, follow_symlinks=False)
    code = folder / "tiercel" / "__init__.py"
    code.write_text(re.sub(r'__version__ = ".*"', f'__version__ = "{VERSION}"', code.read_text()))
    (folder / "CHANGELOG.md").write_text(f"# Changelog\n\n## [{VERSION}] - 2026-11-27\n\n### Added\n\n- Wings.\n")
    git(folder, "init", "--quiet", "--initial-branch", "main")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "All")
    git(folder, "config", "user.name", "Test")
    git(folder, "config", "user.email", "test@localhost")
    return folder


def module_of(path: Path) -> ModuleType:
    """A script as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def release(folder: Path, *options: str) -> tuple[int, str]:
    """How a release went, and what was said."""
    command = [sys.executable, "tools/release.py", *options]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True, timeout=100)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("changelog", "sentence"),
    [
        ("## [7.0.0] - 2026-11-27\n\n- Legs.\n", 'no section "## \\[7.1.0\\]'),
        (f"## [{VERSION}] - soon\n\n- Wings.\n", "no section"),
        (f"## [Unreleased]\n\n- A tail.\n\n## [{VERSION}] - 2026-11-27\n\n- Wings.\n", 'something under "Unreleased"'),
    ],
    ids=["of-another-version", "without-a-date", "more-than-it"],
)
def test_the_changelog_has_to_tell_of_it(copy: Path, changelog: str, sentence: str) -> None:
    (copy / "CHANGELOG.md").write_text(changelog)
    code, said = release(copy)
    git(copy, "checkout", "--quiet", "CHANGELOG.md")
    assert code == 1
    assert re.search(sentence, said)
    assert "Not all is committed" in said


def test_another_branch_makes_none(copy: Path) -> None:
    git(copy, "switch", "--quiet", "--create", "aside")
    code, said = release(copy)
    git(copy, "switch", "--quiet", "main")
    assert (code, said) == (1, "Releases are made of the branch main; switch to it.\n")


def test_what_is_ready_is_built_and_tagged_once_and_what_a_package_lacks_is_named(copy: Path) -> None:
    code, said = release(copy)
    assert code == 0, said
    wheel = copy / "dist" / f"tiercel-{VERSION}-py3-none-any.whl"
    assert "Left to do" in said
    assert git(copy, "tag", "--list", "--format=%(contents)").strip() == f"Tiercel {VERSION}\n\n### Added\n\n- Wings."
    assert release(copy, "--dry-run")[1].startswith(f"There is a tag v{VERSION} already")

    packages = module_of(copy / "tools" / "packages.py")
    files = packages.tracked()
    assert packages.check_wheel(wheel, files) == []
    one, rest = PurePosixPath("broker/dashboard/static/index.html"), PurePosixPath("core/more.py")
    assert packages.check_wheel(wheel, [file for file in files if file != one] + [rest]) == [
        f"{wheel.name} lacks tiercel/core/more.py",
        f"{wheel.name} has tiercel/broker/dashboard/static/index.html, which it should not",
    ]
