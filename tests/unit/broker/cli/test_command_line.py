"""What the command line says of its own errors, and how a shell is made to complete it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tiercel.broker.cli import app


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["sumbit"], "Error: No such command 'sumbit'. Did you mean 'submit'? See 'tiercel --help'."),
        (["node", "data", "ad"], "Error: No such command 'ad'. Did you mean 'add'? See 'tiercel node data --help'."),
        (["ls", "--jsn"], "Error: No such option '--jsn'. Did you mean '--json'? See 'tiercel ls --help'."),
        (["ls", "--limit"], "Error: Option '--limit' requires an argument. See 'tiercel ls --help'."),
        (["show"], "Error: Missing argument 'JOB'. See 'tiercel show --help'."),
        (
            ["ls", "--limit", "0"],
            "Error: Invalid value for '--limit': 0 is not in the range x>=1. See 'tiercel ls --help'.",
        ),
        (
            ["priority", "high", "j1"],
            "Error: Invalid value for 'N': 'j1' is not a whole number. See 'tiercel priority --help'.",
        ),
        (
            ["token", "create", "ci", "--days", "0"],
            "Error: Invalid value for '--days': 0.0 is not in the range 0<x<=366.0. See 'tiercel token create --help'.",
        ),
    ],
)
def test_an_error_is_one_line_that_says_where_help_is(words: list[str], line: str) -> None:
    result = CliRunner().invoke(app, words, prog_name="tiercel")
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"{line}\n")


def test_an_interrupt_while_it_is_imported_leaves_no_traceback() -> None:
    importing = (
        "import builtins, signal, tiercel.__main__ as entry\n"
        "import_ = builtins.__import__\n"
        "def interrupted(name, *rest):\n"
        "    if name == 'tiercel.broker.cli': signal.raise_signal(signal.SIGINT)\n"
        "    return import_(name, *rest)\n"
        "builtins.__import__ = interrupted\n"
        "entry.main()\n"
    )
    ended = subprocess.run([sys.executable, "-c", importing], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_installed_once_where_the_shell_looks(
    shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", f"/usr/bin/{shell}")
    (tmp_path / ".zshrc").write_text("alias ll=ls")
    shown = CliRunner().invoke(app, ["--show-completion"])
    for _ in range(2):
        assert CliRunner().invoke(app, ["--install-completion"]).exit_code == 0

    (file,) = [path for path in tmp_path.rglob("*tiercel*") if path.is_file()]
    assert file.read_text().strip() == shown.stdout.strip()
    lines = (tmp_path / ".zshrc").read_text().splitlines()
    assert lines[0] == "alias ll=ls"
    assert len(lines) == (2 if shell == "zsh" else 1)


def test_a_shell_that_is_not_known_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/csh")
    result = CliRunner().invoke(app, ["--install-completion"])
    assert result.exit_code == 1
    assert "bash, zsh, fish" in result.stderr
