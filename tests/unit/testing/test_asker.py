"""What counts as a wrong answer of one of several nodes."""

from __future__ import annotations

from testing.asker import Answers


def test_an_answer_is_wrong_that_differs_from_what_its_version_said_before() -> None:
    answers = Answers()

    def told(version: str, *values: float) -> str:
        return answers.why_wrong({"model_version": version, "outputs": [{"data": list(values)}]})

    assert told("1", 0.5, 0.25) == told("2", 3.0, 4.0) == told("1", 0.5, 0.250001) == ""
    assert "version 1 answered [0.5, 0.25] before" in told("1", 0.5, 0.3)
    assert "cannot be understood" in answers.why_wrong({"error": "no"})
