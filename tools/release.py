"""Makes a release of what is committed: looks whether it is ready, builds both packages into dist/, and tags it.

Usage: python tools/release.py [--dry-run]      (make release; --dry-run does all but the tag)

Before it: the version in tiercel/__init__.py, and in CHANGELOG.md a section for it in the place of "Unreleased".
Nothing is sent anywhere. What is left to do is said at the end.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys

from packages import ROOT, version


def git(*words: str) -> str:
    """What a command of git prints; SystemExit with its own words if it fails."""
    done = subprocess.run(["git", *words], cwd=ROOT, check=False, capture_output=True, text=True)  # noqa: S607
    if done.returncode:
        raise SystemExit(f"git {words[0]} failed: {done.stderr.strip()}")
    return done.stdout.strip()


def sections() -> dict[str, str]:
    """The changelog by its headings, such as ``Unreleased`` and ``0.1.0``; dates are not part of them."""
    parts = re.split(r"^## \[([^\]]+)\](.*)$", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    return {
        heading: text.strip() if heading == "Unreleased" or re.fullmatch(r" - \d{4}-\d\d-\d\d", date) else ""
        for heading, date, text in zip(parts[1::3], parts[2::3], parts[3::3], strict=True)
    }


def hindrances(number: str) -> list[str]:
    """Why there can be no release of this version now, a sentence for each."""
    found = []
    if changed := git("status", "--porcelain"):
        found.append(f"Not all is committed; commit or undo first:\n{changed}")
    if git("branch", "--show-current") != "main":
        found.append("Releases are made of the branch main; switch to it.")
    if git("tag", "--list", f"v{number}"):
        found.append(f"There is a tag v{number} already; raise __version__ in tiercel/__init__.py.")
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", number):
        found.append(f"__version__ in tiercel/__init__.py is {number}; it has to be like 1.2.3 or 1.2.3rc1.")
    told = sections()
    if not told.get(number):
        found.append(f'CHANGELOG.md has no section "## [{number}] - YYYY-MM-DD" with something in it; write one.')
    if told.get("Unreleased"):
        found.append(f'CHANGELOG.md has something under "Unreleased"; move it to the section of {number}.')
    return found


def main() -> int:
    """Checks, builds, tags."""
    parser = argparse.ArgumentParser(description="Makes a release of what is committed.")
    parser.add_argument("--dry-run", action="store_true", help="do all but the tag")
    options = parser.parse_args()
    number = version()
    if found := hindrances(number):
        sys.stderr.write("\n".join(found) + "\n")
        return 1
    if subprocess.run([sys.executable, "tools/packages.py", "dist"], cwd=ROOT, check=False).returncode:
        return 1
    if options.dry_run:
        sys.stdout.write(f"{number} could be released. Nothing was tagged.\n")
        return 0
    git(
        "tag",
        "--annotate",
        "--cleanup=whitespace",
        f"v{number}",
        "--message",
        f"Tiercel {number}\n\n{sections()[number]}",
    )
    sys.stdout.write(
        f"Tagged v{number}. Left to do: make test-packages, git push origin v{number}, and send what is in dist/ to "
        "the package index.\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
