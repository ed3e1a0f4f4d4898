"""What node agents do while a broker is simulated: begin runs, end them, tell their reports, hand models over."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Mapping
from functools import partial

from tiercel.broker.lifecycle.job_events import (
    DeliveryEnded,
    JobInput,
    Reported,
    RunExited,
    RunIsAlive,
    Ticked,
)
from tiercel.broker.simulation.events import EventQueue
from tiercel.broker.simulation.nodes import SimulatedNode
from tiercel.broker.simulation.running import SimulatedJob, Usage
from tiercel.broker.simulation.scenario import Scenario
from tiercel.broker.simulation.serving import Serving
from tiercel.core.jobs import JobState, TierState

Post = Callable[[SimulatedJob, JobInput], None]


class SimulatedAgents:
    """The agents of all nodes.

    Args:
        post: Sends a job's machine what there is to tell of it; it is read when the present event is over.
    """

    def __init__(
        self,
        scenario: Scenario,
        nodes: Mapping[str, SimulatedNode],
        events: EventQueue,
        serving: Serving,
        post: Post,
    ) -> None:
        self._machines = scenario.machines
        self._record_usage = scenario.record_usage
        self._nodes, self._events, self._serving, self._post = nodes, events, serving, post
        self._stirred: dict[str, SimulatedNode] = {}
        self._runs = 0

    @property
    def runs(self) -> int:
        """How many runs there are."""
        return self._runs

    def stir(self, node_id: str) -> None:
        """A node is to be divided anew, since shares, runs or requests changed."""
        self._stirred[node_id] = self._nodes[node_id]

    def take_over(self, sim: SimulatedJob) -> None:
        """A run that there is when the simulation begins."""
        self._nodes[sim.job.node_id].runs.append(sim)
        self._runs += 1
        self.stir(sim.job.node_id)

    def settle(self) -> None:
        """Divide anew what was stirred, and foretell when something happens there next."""
        stirred, self._stirred = self._stirred, {}
        for node in stirred.values():
            node.reallocate(self._events.now)
            self._foretell(node)

    def declare_run(self, sim: SimulatedJob) -> None:
        """The node hears what is wanted of the job's run."""
        job = sim.job
        if job.stop_outcome is not None:
            self._halt(sim)
            self._events.at(self._events.now + self._machines.stop_seconds, partial(self._run_is_gone, sim, job.run_id))
        elif job.is_leaving:
            if not sim.halted:
                self._halt(sim)
                gone = partial(self._run_is_gone, sim, job.run_id, carried=True)
                self._events.at(self._events.now + self._machines.checkpoint_seconds, gone)
        elif job.state is JobState.STARTING and len(sim.nodes) < job.attempts:
            sim.nodes.append(job.node_id)
            self._events.at(self._events.now + self._machines.spawn_seconds, partial(self._run_begins, sim, job.run_id))
        else:
            self.stir(job.node_id)

    def request_delivery(self, sim: SimulatedJob, tier_number: int) -> None:
        """The run is to export the model of a tier that it reached; its training waits meanwhile."""
        sim.begin_export(tier_number, self._events.now)
        self._foretell(self._nodes[sim.job.node_id])

    def _foretell(self, node: SimulatedNode) -> None:
        node.version += 1
        when = node.next_at
        if when < math.inf:
            self._events.at(when, partial(self._node_is_due, node, node.version))

    def _run_begins(self, sim: SimulatedJob, run_id: str) -> None:
        if sim.job.run_id != run_id or not sim.job.run_active or sim.job.stop_outcome is not None:
            return
        sim.begin_run(self._events.now)
        self._nodes[sim.job.node_id].runs.append(sim)
        self._runs += 1
        self.stir(sim.job.node_id)
        self._post(sim, RunIsAlive(run_id))

    def _halt(self, sim: SimulatedJob) -> None:
        sim.halt(self._events.now)
        self.stir(sim.job.node_id)

    def _run_is_gone(self, sim: SimulatedJob, run_id: str, *, carried: bool = False) -> None:
        """The run has ended: by itself, when asked to, or (``carried``) to go on on another node."""
        job = sim.job
        if job.run_id != run_id or not job.run_active:
            return
        node = self._nodes[job.node_id]
        if sim in node.runs:
            node.runs.remove(sim)
            self._runs -= 1
        if self._record_usage:
            sim.usage.append(Usage(self._events.now, 0.0, 0.0, node.view.id))
        sim.cores, sim.due_at = 0.0, math.inf
        self.stir(node.view.id)
        code = -signal.SIGTERM if carried else 0
        self._post(sim, RunExited(run_id, code, cpu_seconds=sim.run_cpu, carried=carried))

    def _node_is_due(self, node: SimulatedNode, version: int) -> None:
        """A run of the node reports, has exported a model, ends or hangs."""
        if node.version != version:
            return
        for sim in list(node.runs):
            if sim.due_at <= self._events.now:
                self._run_is_due(sim)
            elif sim.hangs_at <= self._events.now:
                self._post(sim, Ticked())
                self.stir(node.view.id)
        if node.view.id not in self._stirred:
            self._foretell(node)

    def _run_is_due(self, sim: SimulatedJob) -> None:
        if not sim.begun:
            sim.begin_training(self._events.now)
            self._post(sim, RunIsAlive(sim.job.run_id, begun_cpu_seconds=sim.run_cpu))
        elif sim.exports:
            number = sim.end_export(self._events.now)
            answers = partial(self._answers, sim, number, sim.job.attempts)
            self._events.at(self._events.now + self._machines.delivery_seconds, answers)
        elif sim.is_closing:
            self._leave(sim)
        else:
            self._report(sim)

    def _report(self, sim: SimulatedJob) -> None:
        sim.advance(self._events.now)
        sim.arrive_at_report()
        index = sim.next_report
        sim.told += 1
        metrics = {sim.job.spec.metric: sim.trajectory.values[index]}
        epoch = sim.first_epoch + index + 1
        self._post(sim, Reported(sim.job.run_id, sim.told, epoch, metrics, self._events.now, sim.run_cpu))
        sim.next_report = index + 1
        if not sim.is_closing:
            sim.plan_report()
        elif not (sim.planned.workload.closing_cpu_seconds or index in sim.tier_reports):
            self._leave(sim)  # nobody will ask it for a model
            return
        sim.find_due()

    def _leave(self, sim: SimulatedJob) -> None:
        """Its process ends by itself."""
        self._halt(sim)
        self._events.at(self._events.now, partial(self._run_is_gone, sim, sim.job.run_id))

    def _answers(self, sim: SimulatedJob, number: int, attempt: int) -> None:
        """A tier's version answers, unless its job has left the node on which it was exported."""
        job = sim.job
        tier = job.tiers[number - 1]
        if job.attempts != attempt or not job.node_id or tier.state is not TierState.REACHED:
            return
        version = self._serving.deliver(job, tier, self._events.now)
        self._post(sim, DeliveryEnded(number, version, tier.reached_value, self._events.now))
        self.stir(job.node_id)
