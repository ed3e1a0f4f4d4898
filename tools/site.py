"""Builds the documentation as a site: build/pages is what the site's pages are made of, build/site the site itself.

Pages of docs/ link to what lies elsewhere in the repository. A Markdown file that they link to becomes a page below
source/, any other file is copied there, and a folder is named and not linked.

The reference below reference/ is made from the source, see ``tools/reference``.

Usage: python -m tools.site
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath

from tools import reference

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = ROOT / "build" / "pages"
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
FENCE = re.compile(r"^( *```.*?^ *```)", re.MULTILINE | re.DOTALL)


def place(path: Path) -> PurePosixPath:
    """Where on the site a file of the repository is."""
    if path.is_relative_to(DOCS):
        return PurePosixPath(path.relative_to(DOCS))
    return PurePosixPath("source") / path.relative_to(ROOT)


class Pages:
    """All pages that are reached from docs/; ``waiting`` are files that are still to be written."""

    def __init__(self) -> None:
        self.waiting = [path for path in sorted(DOCS.rglob("*")) if path.is_file()]
        self.waiting += [ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]
        self.known = set(self.waiting)

    def write(self) -> None:
        """Writes every file that is reached."""
        shutil.rmtree(PAGES, ignore_errors=True)
        while self.waiting:
            path = self.waiting.pop()
            target = PAGES / place(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".md":
                target.write_text(self.page(path))
            else:
                shutil.copyfile(path, target)
        folder = PAGES / "reference"
        folder.mkdir()
        for name, make in reference.PAGES.items():
            (folder / name).write_text(make())

    def page(self, path: Path) -> str:
        """A page's text, its links as the site has them; what stands in a code block is left as it is."""
        parts = FENCE.split(path.read_text())
        parts[::2] = [LINK.sub(lambda link: self._link(path, link), part) for part in parts[::2]]
        return "".join(parts)

    def _link(self, page: Path, link: re.Match[str]) -> str:
        picture, words, goal, anchor = link[1], link[2], link[3], link[4] or ""
        if not goal or ":" in goal:
            return link[0]
        path = Path(os.path.normpath(page.parent / goal))
        if not path.is_relative_to(ROOT) or not path.exists():
            raise FileNotFoundError(f"{page.relative_to(ROOT)} links to {goal}, which is not there")
        if path.is_dir():
            return words
        if path not in self.known:
            self.known.add(path)
            self.waiting.append(path)
        return f"{picture}[{words}]({os.path.relpath(place(path), place(page).parent)}{anchor})"


def main() -> int:
    """Writes the pages and has zensical make the site of them."""
    for name, make in reference.KEPT.items():
        (DOCS / name).write_text(make())
    Pages().write()
    command = [
        sys.executable,
        "-m",
        "zensical",
        "build",
        "--strict",
        "--clean",
        "--config-file",
        str(ROOT / "zensical.toml"),
    ]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
