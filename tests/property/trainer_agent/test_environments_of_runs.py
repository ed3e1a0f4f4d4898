"""Whatever is in a variable arrives as it is: by the minder's standard input, and by a container's."""

from __future__ import annotations

import subprocess

from hypothesis import given, settings
from hypothesis import strategies as st

from tiercel.trainer_agent.runtimes.containers.secrets import as_shell, command_with_secrets
from tiercel.trainer_agent.runtimes.processes.minder import pack_environment, unpack_environment

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
VARIABLES = st.dictionaries(st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True).map("T_{}".format), TEXT, max_size=5)


@given(VARIABLES)
def test_an_environment_is_the_same_after_it_was_packed(variables: dict[str, str]) -> None:
    unpacked = unpack_environment(pack_environment(variables))
    assert {name.decode(): value.decode() for name, value in unpacked.items()} == variables


@settings(max_examples=25, deadline=None)
@given(VARIABLES)
def test_a_shell_makes_of_secrets_what_they_are_and_runs_nothing_in_them(secrets: dict[str, str]) -> None:
    command = command_with_secrets(["/usr/bin/env", "-0"])
    done = subprocess.run(command, input=as_shell(secrets), capture_output=True, env={}, timeout=60, check=True)
    found = dict(entry.split("=", 1) for entry in done.stdout.decode().split("\0") if entry.startswith("T_"))
    assert found == secrets
    assert done.stderr == b""
