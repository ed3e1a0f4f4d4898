"""Which execution provider of ONNX Runtime runs a model, in which order they are tried, and what each is told. Pure.

Names and values of options are those of ONNX Runtime's CUDA provider, checked against onnxruntime-gpu 1.31.1:
https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

ConvolutionSearch = Literal["HEURISTIC", "EXHAUSTIVE", "DEFAULT"]


class Provider(enum.Enum):
    """An execution provider; the value is what users call it."""

    CPU = "cpu"
    CUDA = "cuda"

    @property
    def ort_name(self) -> str:
        """What ONNX Runtime calls it."""
        return _ORT_NAMES[self]

    @property
    def is_accelerator(self) -> bool:
        """Whether it has memory of its own, and runs while this machine's CPU waits."""
        return self is not Provider.CPU

    @property
    def kind(self) -> str:
        """The kind of an instance group in Triton's model configuration."""
        return "KIND_GPU" if self.is_accelerator else "KIND_CPU"


_ORT_NAMES = {Provider.CPU: "CPUExecutionProvider", Provider.CUDA: "CUDAExecutionProvider"}


@dataclass(frozen=True, slots=True)
class Order:
    """Providers to try, the first that works runs the model."""

    providers: tuple[Provider, ...]  # at least one, none twice
    is_automatic: bool = False  # whether nobody asked for any: a library that lacks one is then nothing to warn of


AUTOMATIC = Order((Provider.CUDA, Provider.CPU), is_automatic=True)
CPU_ONLY = Order((Provider.CPU,))


def read_order(text: str) -> Order:
    """An order from ``auto`` or names separated by commas, such as ``cuda,cpu``.

    Raises:
        ValueError: A name is unknown or there twice.
    """
    names = [name.strip().lower() for name in text.split(",")]
    if names == ["auto"]:
        return AUTOMATIC
    known = {each.value: each for each in Provider}
    for name in names:
        if name not in known or names.count(name) > 1:
            raise ValueError(f"{text[:100]!r} must be 'auto', or some of {', '.join(known)} separated by commas")
    return Order(tuple(known[name] for name in names))


def order_for(server: Order, wanted: Provider | None) -> Order:
    """The order for one model.

    Args:
        server: What the server was told: a model is never run by a provider that is not in there.
        wanted: What the model's own configuration says; None for nothing. Who wants the CPU gets it alone, who wants
            an accelerator gets it first.
    """
    if wanted is None or wanted not in server.providers:
        return server
    if not wanted.is_accelerator:
        return Order((wanted,))
    return Order((wanted, *(each for each in server.providers if each is not wanted)))


@dataclass(frozen=True, slots=True)
class Skipped:
    """A provider that cannot be used, and why."""

    provider: Provider
    cause: str


@dataclass(frozen=True, slots=True)
class Candidates:
    """What is left of an order."""

    providers: tuple[Provider, ...]  # those that can be used, in order; may be none
    skipped: tuple[Skipped, ...]  # those before the last of these that cannot


def candidates(order: Order, problem: Callable[[Provider], str]) -> Candidates:
    """Sort out what cannot be used.

    Args:
        order: What is wanted.
        problem: Why a provider cannot be used; empty where it can.
    """
    usable: list[Provider] = []
    skipped: list[Skipped] = []
    for provider in order.providers:
        cause = problem(provider)
        if cause:
            skipped.append(Skipped(provider, cause))
        else:
            usable.append(provider)
    return Candidates(tuple(usable), tuple(skipped))


@dataclass(frozen=True, slots=True)
class CudaOptions:
    """What the CUDA provider is told, apart from what differs by session."""

    device: int = 0  # number of the device, among those that CUDA shows to this process
    # How cuDNN's convolutions are chosen. EXHAUSTIVE tries all of them for every new shape, and batches bring new
    # shapes while requests wait.
    convolution_search: ConvolutionSearch = "HEURISTIC"
    tf32: bool = False  # whether products may be rounded to TF32: faster, with 10 bits of mantissa instead of 23
    has_priority: bool = True  # whether kernels go ahead of those of other streams of this device


def cuda_provider_options(options: CudaOptions, memory_limit: int = 0, stream: int = 0) -> dict[str, str]:
    """The options of one session.

    Args:
        options: What is the same for all.
        memory_limit: Bytes that the session's arena may take; 0 for no limit. Contexts and handles are not in it.
        stream: Address of the CUDA stream that it computes on; 0 for one of its own.
    """
    told = {
        "device_id": str(options.device),
        # Else the arena doubles with each extension, and what one session took in vain its neighbours lack.
        "arena_extend_strategy": "kSameAsRequested",
        "cudnn_conv_algo_search": options.convolution_search,
        # As much workspace as the fastest convolution asks for can be gigabytes; without it, 32 MiB.
        "cudnn_conv_use_max_workspace": "0",
        "use_tf32": "1" if options.tf32 else "0",
    }
    if memory_limit:
        told["gpu_mem_limit"] = str(memory_limit)
    if stream:
        told["user_compute_stream"] = str(stream)
    return told
