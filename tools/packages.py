"""Builds the source package and of it the wheel, and holds that nothing is missing in them and nothing too much.

Usage: python tools/packages.py FOLDER          (without a network)

The wheel is made of what the source package has, so that the latter is enough to install from.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
TOP = ("CHANGELOG.md", "LICENSE", "README.md", "constraints.txt", "pyproject.toml")
"""What the source package has beside ``tiercel`` and ``deploy``."""
MADE = ("PKG-INFO", ".gitignore")
"""What the builder adds to it."""


def version() -> str:
    """The version that the package has, as its code says it."""
    (number,) = re.findall(r'^__version__ = "(.+)"$', (ROOT / "tiercel" / "__init__.py").read_text(), re.MULTILINE)
    return str(number)


def tracked() -> list[PurePosixPath]:
    """All files of the repository that there are, those included that git was not told of yet."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    return [PurePosixPath(name) for name in listed if name and (ROOT / name).is_file()]


def code(files: list[PurePosixPath]) -> set[str]:
    """What an environment gets of the code: the files of ``tiercel`` and of the folders that it links to."""
    folders = {PurePosixPath("tiercel"): PurePosixPath("tiercel")}
    for entry in (ROOT / "tiercel").iterdir():
        if entry.is_symlink():
            folders[PurePosixPath(entry.resolve().relative_to(ROOT))] = PurePosixPath("tiercel", entry.name)
    return {
        str(name / file.relative_to(folder))
        for folder, name in folders.items()
        for file in files
        if file.is_relative_to(folder) and file.suffix != ".md"
    }


def build(folder: Path) -> tuple[Path, Path]:
    """The source package, and the wheel of it."""
    hatchling = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder.resolve()), "--target"]
    subprocess.run([*hatchling, "sdist"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    name = f"tiercel-{version()}"
    source, wheel = folder / f"{name}.tar.gz", folder / f"{name}-py3-none-any.whl"
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(source) as archive:
            archive.extractall(scratch, filter="data")
        subprocess.run([*hatchling, "wheel"], cwd=Path(scratch, name), check=True, stdout=subprocess.DEVNULL)
    return source, wheel


def differences(package: Path, found: set[str], wanted: set[str]) -> list[str]:
    """A sentence for each file that a package lacks or has for no reason."""
    lacking = [f"{package.name} lacks {name}" for name in sorted(wanted - found)]
    return lacking + [f"{package.name} has {name}, which it should not" for name in sorted(found - wanted)]


def check_source(source: Path, files: list[PurePosixPath]) -> list[str]:
    """What is wrong with a source package."""
    top = f"tiercel-{version()}"
    with tarfile.open(source) as archive:
        found = {str(PurePosixPath(name).relative_to(top)) for name in archive.getnames()}
    deploy = {str(file) for file in files if file.is_relative_to("deploy")}
    return differences(source, found, code(files) | deploy | {*TOP, *MADE})


def check_wheel(wheel: Path, files: list[PurePosixPath]) -> list[str]:
    """What is wrong with a wheel."""
    name = f"tiercel-{version()}"
    wanted = code(files)
    licences = {"LICENSE", *(file for file in wanted if file.endswith("LICENSE.txt"))}
    wanted |= {
        f"{name}.data/data/share/tiercel/{file.relative_to('deploy')}"
        for file in files
        if file.is_relative_to("deploy")
    }
    wanted |= {f"{name}.dist-info/{file}" for file in ("METADATA", "RECORD", "WHEEL", "entry_points.txt")}
    wanted |= {f"{name}.dist-info/licenses/{file}" for file in licences}
    with zipfile.ZipFile(wheel) as archive:
        found = set(archive.namelist())
        metadata = HeaderParser().parsestr(archive.read(f"{name}.dist-info/METADATA").decode())
    wrong = differences(wheel, found, wanted)
    if metadata["Version"] != version():
        wrong.append(f"{wheel.name} says that it is {metadata['Version']}, and the code that it is {version()}")
    listed = set(metadata.get_all("License-File") or [])
    return wrong + [f"{wheel.name} does not name the licence {path}" for path in sorted(licences - listed)]


def main() -> int:
    """Builds both and prints where they are, or what is wrong with them."""
    if len(sys.argv) != 2:
        sys.stderr.write("Usage: python tools/packages.py FOLDER\n")
        return 2
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    source, wheel = build(folder)
    files = tracked()
    wrong = check_source(source, files) + check_wheel(wheel, files)
    for sentence in wrong:
        sys.stderr.write(f"{sentence}\n")
    if not wrong:
        sys.stdout.write(f"{source}\n{wheel}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
