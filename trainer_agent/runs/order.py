"""What a run is started with, and what follows from it for its program and for its trainer."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from google.protobuf import json_format

from tiercel.core.commands import python_program
from tiercel.trainer_agent.disk.job_folder import PROGRAM, WORK
from tiercel.trainer_agent.limits.contract import AcceleratorShare, CpuShare, Share
from tiercel.trainer_agent.reports.sieve import Goal
from tiercel.trainer_agent.runtimes.contract import Launch, Program
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
        transferred: Whether it goes on from a checkpoint that the broker holds.
        warm_start: Job with whose checkpoint it begins where its own has none; or empty.
        retried: Whether another run goes on from its checkpoint if its script fails by itself.
        script_sha256: Of the content of its script, hexadecimal; empty where it has none.
        tenant: Who owns it; empty for one that was started by an earlier life of the agent.
    """

    run_id: str
    job_id: str
    spec: common_pb2.JobSpec
    share: Share
    open_tiers: tuple[common_pb2.Tier, ...] = ()
    transferred: bool = False
    retried: bool = False
    script_sha256: str = ""
    warm_start: str = ""
    tenant: str = ""

    def to_json(self) -> dict[str, Any]:
        """What a later life of the agent needs of it: everything but the script, which lies in the job's folder."""
        spec = common_pb2.JobSpec()
        spec.CopyFrom(self.spec)
        if spec.HasField("script"):
            spec.script.ClearField("content")
        return {
            "spec": json_format.MessageToDict(spec),
            "share": asdict(self.share),
            "open_tiers": [json_format.MessageToDict(tier) for tier in self.open_tiers],
            "retried": self.retried,
        }

    @classmethod
    def from_json(cls, run_id: str, job_id: str, stored: dict[str, Any]) -> Self:
        """The inverse of :meth:`to_json`, of a run that was started already.

        Raises:
            ValueError: It is something else.
        """
        try:
            share = stored["share"]
            return cls(
                run_id,
                job_id,
                json_format.ParseDict(stored["spec"], common_pb2.JobSpec(), ignore_unknown_fields=True),
                Share(CpuShare(**share["cpu"]), tuple(AcceleratorShare(**each) for each in share["accelerators"])),
                tuple(
                    json_format.ParseDict(tier, common_pb2.Tier(), ignore_unknown_fields=True)
                    for tier in stored["open_tiers"]
                ),
                retried=bool(stored.get("retried", False)),
            )
        except (KeyError, TypeError, AttributeError, json_format.ParseError) as error:
            raise ValueError(f"this is no order of a run: {error!r}") from error

    @property
    def project_sha256(self) -> str:
        """Of the project that it runs from, hexadecimal; empty where it has none."""
        return self.spec.project.sha256 if self.spec.HasField("project") else ""

    def launch(self, job_folder: Path) -> Launch:
        """What a runtime has to know of it.

        Args:
            job_folder: The job's folder.
        """
        resources = self.spec.resources
        return Launch(
            run_id=self.run_id,
            job_folder=job_folder,
            program=self.program(),
            working_folder=PROGRAM if self.project_sha256 else WORK,
            image=self.spec.image,
            cpu_cores=resources.cpu_cores,
            memory_bytes=resources.memory_bytes,
            share=self.share.cpu,
            accelerators=self.share.accelerators,
            variables=dict(self.spec.env),
            tenant=self.tenant,
            warm=self.spec.warm if self.spec.HasField("warm") else True,
        )

    def program(self) -> Program:
        """What to run."""
        spec = self.spec
        arguments = tuple(spec.arguments)
        if not spec.command:
            script = spec.script.name if spec.HasField("script") else ""
            return Program(script=script, module=spec.module, arguments=arguments)
        found = python_program(spec.command) if self.project_sha256 else None
        if found is None:
            return Program(command_line=tuple(spec.command), arguments=arguments)
        return Program(script=found.script, module=found.module, arguments=found.arguments + arguments)

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
