"""What a run is started with, and what follows from it for its program and for its trainer."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message

from tiercel.core.commands import python_program
from tiercel.core.errors import InvalidSpecError
from tiercel.core.jobs import Direction, JobSpec, without_script_text
from tiercel.core.ranks import ranks_of
from tiercel.core.shares import AcceleratorShare
from tiercel.core.tiers import Tier
from tiercel.core.wire import from_proto, to_proto
from tiercel.trainer_agent.disk.job_folder import PROGRAM, WORK
from tiercel.trainer_agent.limits.contract import CpuShare, Share
from tiercel.trainer_agent.reports.sieve import Goal
from tiercel.trainer_agent.runtimes.contract import Launch, Program
from tiercel.v1 import common_pb2, trainer_pb2

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class RunOrder:
    """What a run is started with."""

    run_id: str  # the run
    job_id: str  # its job
    spec: JobSpec  # the job's description; its script without the content
    share: Share  # its first share
    open_tiers: tuple[Tier, ...] = ()  # tiers not delivered yet as far as this node knows, easiest first
    transferred: bool = False  # whether it goes on from a checkpoint that the broker holds
    retried: bool = False  # whether another run goes on from its checkpoint if its script fails by itself
    script_sha256: str = ""  # of the content of its script, hexadecimal; empty where it has none
    warm_start: str = ""  # job with whose checkpoint it begins where its own has none; or empty
    tenant: str = ""  # who owns it; empty for one that was started by an earlier life of the agent

    def to_json(self) -> dict[str, Any]:
        """What a later life of the agent needs of it: everything but the script, which lies in the job's folder."""
        spec = to_proto(without_script_text(self.spec), common_pb2.JobSpec)
        return {
            "spec": json_format.MessageToDict(spec),
            "share": asdict(self.share),
            "open_tiers": [json_format.MessageToDict(to_proto(tier, common_pb2.Tier)) for tier in self.open_tiers],
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
                _parsed(JobSpec, stored["spec"], common_pb2.JobSpec()),
                Share(CpuShare(**share["cpu"]), tuple(AcceleratorShare(**each) for each in share["accelerators"])),
                tuple(_parsed(Tier, tier, common_pb2.Tier()) for tier in stored["open_tiers"]),
                retried=bool(stored.get("retried", False)),
            )
        except (KeyError, TypeError, ValueError, AttributeError, json_format.ParseError, InvalidSpecError) as error:
            raise ValueError(f"this is no order of a run: {error!r}") from error

    @property
    def script_name(self) -> str:
        """File name of its script; empty where it has none."""
        return self.spec.script.name if self.spec.script is not None else ""

    @property
    def project_sha256(self) -> str:
        """Of the project that it runs from, hexadecimal; empty where it has none."""
        return self.spec.project.sha256 if self.spec.project is not None else ""

    def launch(self, job_folder: Path) -> Launch:
        """What a runtime has to know of it."""
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
            warm=self.spec.warm,
            ranks=ranks_of(self.spec),
        )

    def program(self) -> Program:
        """What to run."""
        spec = self.spec
        if not spec.command:
            return Program(script=self.script_name, module=spec.module, arguments=spec.arguments)
        found = python_program(spec.command) if self.project_sha256 else None
        if found is None:
            return Program(command_line=spec.command, arguments=spec.arguments)
        return Program(script=found.script, module=found.module, arguments=found.arguments + spec.arguments)

    def goal(self) -> Goal:
        """What its reports are about."""
        targets = tuple(tier.target for tier in self.spec.tiers)
        return Goal(self.spec.metric, self.spec.direction is Direction.MIN, targets)

    def welcome(self) -> trainer_pb2.TrainerWelcome:
        """What the trainer is told."""
        spec = to_proto(replace(self.spec, tiers=self.open_tiers), common_pb2.JobSpec)
        tiers = self.spec.tiers
        return trainer_pb2.TrainerWelcome(
            run_id=self.run_id,
            metric=spec.metric,
            direction=spec.direction,
            tiers=spec.tiers,
            max_epochs=spec.max_epochs,
            cpu_cores=spec.resources.cpu_cores,
            accelerators=[to_proto(held, common_pb2.AcceleratorShare) for held in self.share.accelerators],
            keep_from=None if self.spec.ship.only_tiers or not tiers else tiers[0].target,
        )


def _parsed(kind: type[_T], stored: dict[str, Any], message: Message) -> _T:
    return from_proto(kind, json_format.ParseDict(stored, message, ignore_unknown_fields=True))
