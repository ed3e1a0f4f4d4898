from __future__ import annotations

import pytest

from tiercel.serving.runtime.providers import (
    AUTOMATIC,
    CPU_ONLY,
    CudaOptions,
    Order,
    Provider,
    Skipped,
    candidates,
    cuda_provider_options,
    order_for,
    read_order,
)

CPU, CUDA = Provider.CPU, Provider.CUDA


def test_an_order_is_read_as_users_write_it() -> None:
    assert read_order("auto") == AUTOMATIC
    assert read_order("cuda,cpu") == Order((CUDA, CPU))
    assert read_order(" CPU ") == CPU_ONLY
    assert not read_order("cuda").is_automatic


@pytest.mark.parametrize("text", ["", "cuda,", "gpu", "cuda,cuda", "auto,cpu"])
def test_an_impossible_order_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be 'auto', or some of cpu, cuda"):
        read_order(text)


def test_a_model_says_where_it_wants_to_run_within_what_the_server_may_use() -> None:
    assert order_for(AUTOMATIC, None) == AUTOMATIC
    assert order_for(AUTOMATIC, CPU) == CPU_ONLY
    assert order_for(read_order("cpu,cuda"), CUDA) == Order((CUDA, CPU))
    assert order_for(AUTOMATIC, CUDA) == Order((CUDA, CPU))  # somebody asked for it
    assert order_for(CPU_ONLY, CUDA) == CPU_ONLY
    assert order_for(read_order("cuda"), CPU) == read_order("cuda")


def test_what_cannot_be_used_is_skipped_with_its_cause() -> None:
    found = candidates(read_order("cuda,cpu"), lambda each: "no driver" if each is CUDA else "")
    assert found.providers == (CPU,)
    assert found.skipped == (Skipped(CUDA, "no driver"),)
    assert candidates(read_order("cuda,cpu"), lambda _: "").providers == (CUDA, CPU)
    assert candidates(read_order("cuda"), lambda _: "no driver").providers == ()


def test_the_cuda_provider_is_told_in_its_own_words() -> None:
    assert cuda_provider_options(CudaOptions()) == {
        "device_id": "0",
        "arena_extend_strategy": "kSameAsRequested",
        "cudnn_conv_algo_search": "HEURISTIC",
        "cudnn_conv_use_max_workspace": "0",
        "use_tf32": "0",
    }
    told = cuda_provider_options(CudaOptions(2, "EXHAUSTIVE", tf32=True), memory_limit=1000, stream=140_000)
    assert told["device_id"] == "2"
    assert told["cudnn_conv_algo_search"] == "EXHAUSTIVE"
    assert told["use_tf32"] == "1"
    assert told["gpu_mem_limit"] == "1000"
    assert told["user_compute_stream"] == "140000"


def test_names_and_kinds_are_those_of_onnx_runtime_and_triton() -> None:
    assert (CUDA.ort_name, CUDA.kind, CUDA.is_accelerator) == ("CUDAExecutionProvider", "KIND_GPU", True)
    assert (CPU.ort_name, CPU.kind, CPU.is_accelerator) == ("CPUExecutionProvider", "KIND_CPU", False)
