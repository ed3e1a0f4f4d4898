from __future__ import annotations

import pytest

from testing.needs import need, summary


@pytest.mark.parametrize(("ci", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_what_is_missing_skips_a_test_but_never_on_ci(
    monkeypatch: pytest.MonkeyPatch, ci: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setenv("CI", ci)
    need("there", "something")
    with pytest.raises(outcome, match=r"it needs the load tool wrk \(Debian: wrk\)"):
        need(None, "the load tool wrk", "wrk")


def test_the_summary_names_kinds_and_one_command() -> None:
    reasons = ["it needs a Docker engine (Debian: docker.io mmdebstrap)"] * 2
    reasons += ["it needs the load tool wrk (Debian: wrk)", "it needs root", "there is a driver here"]
    assert summary(reasons) == (
        "Skipped: 2 that need a Docker engine, 1 that need the load tool wrk. "
        "To run them: sudo apt-get install -y --no-install-recommends docker.io mmdebstrap wrk"
    )
    assert summary(["it needs root"]) == ""
