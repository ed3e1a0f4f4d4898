from __future__ import annotations

from dataclasses import replace

from testing.scheduling import job, waiting_job
from tiercel.broker.actors.variant_homes import with_homes
from tiercel.broker.scheduling.interface import JobView


def of(view: JobView, variant: str, endpoint: str = "digits") -> JobView:
    return replace(view, endpoint=endpoint, variant=variant)


def nowhere(_: str) -> str:
    return ""


def test_jobs_without_a_variant_may_go_anywhere() -> None:
    jobs = [replace(waiting_job("a"), endpoint="digits"), replace(job("b", node_id="n2"), endpoint="digits")]
    assert with_homes(jobs, lambda _: "n1") == (jobs, {})


def test_a_version_that_answers_decides_before_a_job_that_runs() -> None:
    jobs = [of(waiting_job("a"), "small"), of(job("b", node_id="n2"), "large")]
    shown, held_back = with_homes(jobs, lambda name: {"digits": "n1"}[name])
    assert ([view.home for view in shown], held_back) == (["n1", "n1"], {})
    shown, held_back = with_homes(jobs, nowhere)
    assert ([view.home for view in shown], held_back) == (["n2", "n2"], {})


def test_of_jobs_that_all_wait_only_the_first_is_shown() -> None:
    jobs = [of(waiting_job("b", submitted_at=2.0), "small"), of(waiting_job("a", submitted_at=1.0), "large")]
    other = of(waiting_job("c", submitted_at=3.0), "small", "other")
    shown, held_back = with_homes([*jobs, other], nowhere)
    assert [(view.id, view.home) for view in shown] == [("a", ""), ("c", "")]
    assert held_back == {"b": "waits until job a, another variant of endpoint digits, has a node"}


def test_a_checkpoint_somewhere_ties_nobody() -> None:
    waits = of(job("a", node_id="n1", movable=True), "small")
    assert with_homes([waits], nowhere) == ([waits], {})
