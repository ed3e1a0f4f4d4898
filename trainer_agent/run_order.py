"""What a run is started with, and what follows from it for its program and for its trainer."""

from __future__ import annotations

from dataclasses import dataclass

from tiercel.trainer_agent.limits.contract import Share
from tiercel.trainer_agent.report_sieve import Goal
from tiercel.trainer_agent.runtimes.contract import Program
from tiercel.v1 import common_pb2, trainer_pb2


@dataclass(frozen=True, slots=True)
class RunOrder:
    """What a run is started with.

    Attributes:
        run_id: The run.
        job_id: Its job.
        spec: The job's description; its script without the content.
        share: Its first share.
        open_tiers: Tiers not delivered yet as far as this node knows, easiest first.
        carried: Whether it goes on from a checkpoint that the broker holds.
        retried: Whether another run goes on from its checkpoint if its script fails by itself.
        script_sha256: Of the content of its script, hexadecimal; empty where it has none.
    """

    run_id: str
    job_id: str
    spec: common_pb2.JobSpec
    share: Share
    open_tiers: tuple[common_pb2.Tier, ...] = ()
    carried: bool = False
    retried: bool = False
    script_sha256: str = ""

    def program(self) -> Program:
        """What to run."""
        script = self.spec.script.name if self.spec.HasField("script") else ""
        return Program(script=script, module=self.spec.module, arguments=tuple(self.spec.arguments))

    def goal(self) -> Goal:
        """What its reports are about."""
        targets = tuple(tier.target for tier in self.spec.tiers)
        return Goal(self.spec.metric, self.spec.direction == common_pb2.DIRECTION_MIN, targets)

    def welcome(self) -> trainer_pb2.TrainerWelcome:
        """What the trainer is told."""
        tiers = self.spec.tiers
        return trainer_pb2.TrainerWelcome(
            run_id=self.run_id,
            metric=self.spec.metric,
            direction=self.spec.direction,
            tiers=self.open_tiers,
            max_epochs=self.spec.max_epochs,
            cpu_cores=self.spec.resources.cpu_cores,
            accelerators=[
                common_pb2.AcceleratorShare(
                    id=held.id, fraction=held.fraction, memory_bytes=held.memory_bytes, cap=held.cap or 0.0
                )
                for held in self.share.accelerators
            ],
            keep_from=None if self.spec.ship.only_tiers or not tiers else tiers[0].target,
        )
