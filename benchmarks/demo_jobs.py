"""The jobs of the demo: four real models of two tenants, with three tiers each."""

from __future__ import annotations

from dataclasses import dataclass

from tiercel import Direction, JobSpec, Resources, Tier

WORKLOADS = "tiercel.trainer_agent.workloads"
MEMORY_BYTES = 1024**3


@dataclass(frozen=True, slots=True)
class DemoJob:
    """A job, and what an application asks the endpoint that it feeds."""

    tenant: str  # who submits it
    name: str  # label for people
    endpoint: str  # what it feeds
    workload: str  # module of the shipped workloads
    targets: tuple[float, ...]  # of its tiers, easiest first
    images: str  # kind of the test images, see :func:`testing.sample_images.load_samples`
    metric: str = "accuracy"  # name of its metric
    direction: Direction = Direction.MAX  # whether a larger or a smaller metric is better

    def spec(self, runtime: str) -> JobSpec:
        """What is submitted.

        Args:
            runtime: ``process`` or ``docker``.
        """
        return JobSpec(
            name=self.name,
            endpoint=self.endpoint,
            metric=self.metric,
            direction=self.direction,
            tiers=tuple(Tier(target) for target in self.targets),
            module=f"{WORKLOADS}.{self.workload}",
            resources=Resources(cpu_cores=1.0, memory_bytes=MEMORY_BYTES),
            runtime=runtime,
        )


# Targets stay well below what each model reaches in the end, and the workloads' seeds are fixed:
# a slow machine takes longer, but gets there.
JOBS = (
    DemoJob("alice", "Digits MLP", "digits", "digits_mlp", (0.80, 0.92, 0.97), "digits"),
    DemoJob("alice", "MNIST GRU", "mnist-gru", "mnist_gru", (0.80, 0.93, 0.965), "mnist"),
    DemoJob("bob", "MNIST CNN", "mnist-cnn", "mnist_cnn", (0.75, 0.92, 0.965), "mnist"),
    DemoJob(
        "bob", "MNIST VAE", "mnist-vae", "mnist_vae", (180.0, 140.0, 110.0), "mnist-autoencoder", "loss", Direction.MIN
    ),
)
"""The jobs, in the order in which they are submitted."""

TENANTS = tuple(dict.fromkeys(job.tenant for job in JOBS))
